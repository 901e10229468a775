"""What is worth remembering unasked, and what two texts have to differ in to be two. Pure.

Only the user's own short statements are captured: those that ask for it, or tell a preference, a decision, a
fact about the user or a standing rule. Never a question, never what holds a secret, never markup or commands.
"""

from __future__ import annotations

import re
import unicodedata

from perdure.context.text.secrets import redact
from perdure.plugins.memories.said import Said
from perdure.plugins.memories.saying import is_joined

LEAST_CHARS = 10
LEAST_CHARS_JOINED = 4  # of scripts that need fewer
MOST_PER_TURN = 3
_TELLING = re.compile(
    r"\b(?:remember|don['’]?t forget|note that|keep in mind|always|never|from now on|important|call me)\b"
    r"|\bi (?:really )?(?:prefer|like|love|hate|want|need|use|live|work|am)\b|\bi['’]m\b"
    r"|\bmy \w+(?: \w+)? (?:is|are)\b|\bwe (?:decided|agreed|use|will use)\b"
    r"|记住|記住|别忘|我(?:喜欢|喜歡|讨厌|想要|需要|叫|是|住|在)|我的\S+是|以后|总是|從不|从不|决定"
    r"|覚えて|忘れないで|私は|僕は|好き|嫌い|いつも|今後|決め"
    r"|기억해|잊지\s?마|나는|저는|내\s?\S+[은는]|좋아|싫어|항상|앞으로",
    re.IGNORECASE,
)
_ASKING = re.compile(r"[?？]\s*$|(?:か|吗|吗。|呢)[。]?\s*$")
_MARKUP = re.compile(r"<[/a-zA-Z!]|```|^\s*[/!$]|\[\[|\{\{|\{\"", re.MULTILINE)
_NUMBERS = re.compile(r"\d+")
_NEGATION = re.compile(
    r"\b(?:not|no|never|none|without|nicht|kein\w*|nie|pas|jamais|nunca)\b|n['’]t\b"
    r"|不|没|沒|別|别|ない|ません|안\s|않|못",
    re.IGNORECASE,
)


def worth(said: tuple[Said, ...], most: int) -> tuple[Said, ...]:
    """Of the messages of a turn those to be captured. `most`: characters."""
    return tuple(one for one in said if _is_worth(one, most))[:MOST_PER_TURN]


def is_secret(text: str) -> bool:
    """Whether a part of the text looks like a password or key."""
    return redact(text) != text


def alike(one: str, other: str) -> bool:
    """Whether two texts that are near may be the same statement: numbers and negations agree."""
    return _telling_apart(one) == _telling_apart(other)


def _telling_apart(text: str) -> tuple[list[str], int]:
    plain = unicodedata.normalize("NFKC", text)
    return sorted(_NUMBERS.findall(plain)), len(_NEGATION.findall(plain))


def _is_worth(one: Said, most: int) -> bool:
    text = one.text
    if one.role != "user" or one.trust != "owner" or len(text) > most:
        return False
    least = LEAST_CHARS_JOINED if is_joined(text) else LEAST_CHARS
    if len(text) < least or _MARKUP.search(text) or _ASKING.search(text) or is_secret(text):
        return False
    return _TELLING.search(text) is not None

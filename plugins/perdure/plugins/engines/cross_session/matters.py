"""What of a turn matters beyond its session, found by shape, without a model. Pure.

Users' sentences count where they instruct, tell of themselves, or name something exactly; the agent's where
they tell a decision. What tools, other sessions and pages say is never taken, and what the agent says after
it has read such things is as untrusted as they are. Secrets don't leave their session.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, TypeAlias

from perdure.context.compaction.redact import has_secret
from perdure.context.text.graphemes import cut_before
from perdure.contracts import Trust
from perdure.plugins.engines import views
from perdure.records import Assistant, Items, Message, Record, Text, User

Kind: TypeAlias = Literal["instruction", "decision", "fact"]

MOST_CHARS, LEAST_CHARS, MOST_NOTES = 300, 4, 12
"""Characters of a note; notes of one turn."""
SCANNED = 8_000
"""Characters of a message that are read."""

_INSTRUCTS = re.compile(
    r"\b(?:remember|keep in mind|note that|don'?t forget|from now on|in (?:the )?future|always|never"
    r"|please (?:do not|don'?t|use|avoid))\b"
    r"|记住|記住|记得|請記|请记|以后|以後|今后|总是|永远|从不|不要再|别再|务必|務必"
    r"|覚えて|忘れないで|これから|今後|必ず|いつも|기억해|앞으로|항상|절대",
    re.IGNORECASE,
)
_DECIDES = re.compile(
    r"\b(?:we(?:'ve| have)? (?:decided|agreed|chose|settled)|decision|deadline|is due|due (?:on|by)"
    r"|let'?s go with|the plan is|agreed)\b"
    r"|决定|決定|约定|約定|截止|定下来|定了|決めた|決まり|締め切り|締切|결정|마감",
    re.IGNORECASE,
)
_TELLS = re.compile(
    r"\b(?:my (?:name|favou?rite|birthday|\w+) is|call me|i(?: am|'m) (?:a|an|the|from|allergic|called)"
    r"|i (?:live|work|prefer|like|hate|use|own)|we (?:use|run|deploy|prefer)"
    r"|our \w+(?: \w+){0,3} (?:is|are))\b"
    r"|我叫|我是|我住|我喜欢|我喜歡|我讨厌|我用的|我们用|我們用|我的|私は|私の|僕は|僕の|저는|제 이름|우리는",
    re.IGNORECASE,
)
_NAMES = re.compile(  # something is said to be an exact thing: a number, an address, an identifier, a path
    r"(?:\b(?:is|are|was|equals|means)\b|=|[:：](?=\s)|是|为|為|在|は|が|는|은)[^\n]{0,40}?"
    r"(?:\d|https?://|[\w.-]+@[\w.-]+|/[\w.-]+/|`[^`]+`|(?-i:[A-Z][A-Z0-9_-]{3,}))",
    re.IGNORECASE,
)
_ASKS = re.compile(r"[?？]\s*$|[吗嗎呢か까]\s*[。.]?\s*$")
_SENTENCE = re.compile(r"(?:[^.!?。！？\n]|[.!?](?!\s|$))+[.!?。！？]*")
_CODE = re.compile(r"```.*?(?:```|\Z)|^(?: {4}|\t).*$", re.DOTALL | re.MULTILINE)


class Note(Record):
    """One sentence. `place` counts the notes of its entry."""

    entry: str
    place: int
    text: str
    kind: Kind
    trust: Trust


def notes(items: Items) -> tuple[Note, ...]:
    """What matters of a turn's messages, instructions first; at most `MOST_NOTES`."""
    found: list[Note] = []
    tainted = False
    for item in items:
        found += _of(item.entry, item.message, tainted=tainted)
        tainted |= views.trust(item.message) == "untrusted"
    order = ("instruction", "decision", "fact")
    return tuple(sorted(found, key=lambda note: order.index(note.kind))[:MOST_NOTES])


def flat(text: str) -> str:
    """By which two notes are the same one."""
    return "".join(char for char in text.casefold() if char.isalnum())


def _of(entry: str, message: Message, *, tainted: bool) -> Iterator[Note]:
    speaker = views.trust(message)
    if not entry or speaker not in ("owner", "agent") or not isinstance(message, User | Assistant):
        return
    text = "\n".join(block.text for block in message.content if isinstance(block, Text))
    trust: Trust = "untrusted" if speaker == "agent" and tainted else speaker
    place = 0
    for sentence in sentences(text):
        kind = _kind(sentence, speaker)
        if kind is not None:
            yield Note(entry, place, sentence, kind, trust)
            place += 1


def sentences(text: str) -> Iterator[str]:
    """Sentences that could be notes: no code, no questions, no secrets, bounded."""
    for found in _SENTENCE.findall(_CODE.sub("\n", text[:SCANNED])):
        sentence = " ".join(found.split()).lstrip("-*•># ")
        if len(sentence) >= LEAST_CHARS and not _ASKS.search(sentence) and not has_secret(sentence):
            long = len(sentence) > MOST_CHARS
            yield f"{sentence[: cut_before(sentence, MOST_CHARS)]}…" if long else sentence


def _kind(sentence: str, speaker: Trust) -> Kind | None:
    if _DECIDES.search(sentence):
        return "decision"
    if speaker != "owner":
        return None
    if _INSTRUCTS.search(sentence):
        return "instruction"
    return "fact" if _TELLS.search(sentence) or _NAMES.search(sentence) else None

"""In which languages a conversation is held, and whether a summary is in none of them.

By scripts first (no word list needed), then, where both are written in Latin letters, by function words.
What isn't prose says nothing: code, paths, URLs, headings. Doubt speaks for the summary: a text that is
mixed, short, or in the agent's own language is never called wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from perdure.records import Assistant, Items, Record, Text, User

_SCRIPTS: Mapping[str, tuple[re.Pattern[str], float]] = {
    "latin": (re.compile(r"[A-Za-z\u00aa-\u024f\u1e00-\u1eff]"), 5.0),
    "cyrillic": (re.compile(r"[\u0400-\u052f]"), 5.5),
    "greek": (re.compile(r"[\u0370-\u03ff\u1f00-\u1fff]"), 5.5),
    "arabic": (re.compile(r"[\u0600-\u06ff\u0750-\u077f]"), 4.5),
    "hebrew": (re.compile(r"[\u0590-\u05ff]"), 4.5),
    "devanagari": (re.compile(r"[\u0900-\u097f]"), 4.5),
    "thai": (re.compile(r"[\u0e00-\u0e7f]"), 4.0),
    "hangul": (re.compile(r"[\uac00-\ud7af\u1100-\u11ff]"), 2.5),
    "kana": (re.compile(r"[\u3041-\u30ff]"), 2.0),
    "han": (re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff]"), 2.0),
}
"""Letters of each script, and how many of them make about a word."""

_FUNCTION_WORDS = {
    name: frozenset(words.split())
    for name, words in {
        "en": "the of and to a in is it that was for on are with as at be this have from or by not "
        "but they we "
        "you has been were which will an if all would there their what so can when into no than them then",
        "de": "der die das und zu den nicht von sie ist des sich mit dem dass er es ein ich auf so "
        "eine auch als "
        "an nach wie im für man aber aus durch wenn nur war noch werden bei hat wir was wird sein "
        "einen oder",
        "fr": "le la les de des du et un une est en que qui dans pour pas sur au aux avec il elle ce "
        "cette sont "
        "par plus ne se nous vous ont été mais ou où leur fait tout deux être",
        "es": "el la los las de del y un una es en que por con para no se lo su al como más pero sus "
        "le ha este "
        "esta sí porque entre cuando muy sin sobre también me hasta hay donde está fue",
        "pt": "o os as de do da dos das e um uma é em que não para com por se na no nos nas mais "
        "como mas ao ele "
        "ela foi são seu sua ou ser quando muito há já está também só pelo pela até isso",
        "it": "il lo la i gli le di del della dei delle e un una è in che non per con si da al alla "
        "sono come più "
        "ma ha anche questo questa nel nella sul se dal stato essere tutti",
        "nl": "de het een en van ik te dat die in is niet op zijn met voor maar om aan er ook als "
        "bij dan nog wel "
        "naar heeft worden door over ze zich uit of hebben deze was dit wordt geen",
        "sv": "och i att det som en på är av för med till den har de inte om ett han men var jag sig "
        "från vi så "
        "kan när eller ska hade här finns bara",
        "pl": "i w nie na się z do to że jest o jak ale za co od po tak przez dla czy są być był "
        "jego już tylko "
        "może ten które oraz więc gdy",
        "tr": "ve bir bu için ile de da ne o gibi daha çok var olarak kadar sonra ama mi olan değil "
        "her ki ya "
        "şey oldu göre tüm",
        "id": "yang dan di itu dengan untuk tidak ini dari dalam akan pada juga saya ke karena "
        "tersebut bisa ada "
        "mereka lebih telah atau sudah kami",
        "vi": "và của là có không được cho các trong một những với đã này để khi người về từ cũng "
        "như ra đến tôi",
    }.items()
}

_ANY = frozenset().union(*_FUNCTION_WORDS.values())
_NOT_PROSE = re.compile(
    r"```.*?(?:```|\Z)|`[^`\n]*`|^[ ]{0,3}#{1,6}[ ][^\n]*$|"
    r"^[ ]{0,3}\*\*[^*\n]+\*\*:?[ ]*$",
    re.MULTILINE | re.DOTALL,
)
_RUN, _CODE = re.compile(r"[!-~]+"), re.compile(r"[\d/\\_=<>{}\[\]]|\w[.:]\w")
_WORD = re.compile(r"[^\W\d_]+")
_SHOWN, _MESSAGES = 600, 200
"""Characters of a message, and messages of a side, that are looked at: a pasted log isn't the language."""

_ENOUGH = 12.0
"""Words from which a side's scripts count."""


class Speech(Record):
    """One side's prose as words by script, and the languages in Latin letters that it is surely in."""

    words: dict[str, float]
    latin: frozenset[str]

    @property
    def total(self) -> float:
        """About how many words."""
        return sum(self.words.values())

    def share(self, script: str) -> float:
        """Of all words, those of a script."""
        return self.words.get(script, 0.0) / self.total if self.total else 0.0


class Spoken(Record):
    """What both sides of a conversation speak."""

    user: Speech
    agent: Speech


def prose(text: str) -> str:
    """The text without what isn't language."""
    return _RUN.sub(_word_of, _NOT_PROSE.sub(" ", text))


def _word_of(run: re.Match[str]) -> str:
    return " " if _CODE.search(run[0]) else run[0]


def speech(texts: Iterable[str]) -> Speech:
    """The languages of some messages, each counted by its beginning."""
    heads = [prose(text[:_SHOWN]) for text in texts]
    whole = "\n".join(heads)
    return Speech(_words(whole), frozenset(filter(None, map(_latin, [whole, *heads]))))


def spoken(items: Items) -> Spoken:
    """Who speaks what in a view; the newest messages of each side."""
    user, agent = list[str](), list[str]()
    for item in reversed(items):
        message = item.message
        if isinstance(message, (User, Assistant)):
            side = user if isinstance(message, User) else agent
            if len(side) < _MESSAGES:
                side.append("\n".join(b.text for b in message.content if isinstance(b, Text)))
    return Spoken(speech(user), speech(agent))


def is_foreign(summary: str, heard: Spoken) -> bool:
    """Whether a summary is surely in a language that neither side of the conversation uses."""
    told = Speech(_words(text := prose(summary)), frozenset())
    user = heard.user if heard.user.total >= _ENOUGH else heard.agent
    if user.total < _ENOUGH or told.total < 2:
        return False
    script, share = max(((name, told.share(name)) for name in told.words), key=lambda pair: pair[1])
    if share < (0.6 if told.total >= _ENOUGH else 0.9):
        return False
    if {script, _leading(user)} <= {"han", "kana"}:
        return _other_east(told, user, heard.agent)
    if user.share(script) < 0.15 and heard.agent.share(script) < 0.3:
        return told.share(_leading(user)) < 0.15
    return script == "latin" and _other_latin(text, heard)


def _leading(side: Speech) -> str:
    return max(side.words, key=lambda name: side.words[name])


def _other_east(told: Speech, user: Speech, agent: Speech) -> bool:
    """Japanese without a single kana, or Chinese with many: not the language of either side."""
    kana, theirs, agents = (side.words.get("kana", 0.0) / _east(side) for side in (told, user, agent))
    if _east(told) < _ENOUGH:
        return False
    if theirs >= 0.15:
        return kana < 0.02 and (agents >= 0.02 or agent.total < _ENOUGH)
    return theirs < 0.02 and kana >= 0.2 and agents < 0.1


def _east(side: Speech) -> float:
    return side.words.get("kana", 0.0) + side.words.get("han", 0.0) or 1.0


def _other_latin(text: str, heard: Spoken) -> bool:
    ours, theirs = _latin(text), heard.user.latin | heard.agent.latin
    return ours is not None and bool(theirs) and ours not in theirs


def _words(text: str) -> dict[str, float]:
    found = {name: len(letters.findall(text)) / per for name, (letters, per) in _SCRIPTS.items()}
    if found["latin"] and not _is_language(text):
        found["latin"] = 0.0
    return {name: count for name, count in found.items() if count}


def _is_language(text: str) -> bool:
    """Whether Latin letters make sentences: what is left of logs and listings has no function words."""
    words = [word.lower() for word in _WORD.findall(text)]
    known = sum(word in _ANY for word in words)
    return known >= 3 and known >= 0.08 * len(words)


def _latin(text: str) -> str | None:
    """The language of a text in Latin letters, `None` where it isn't beyond doubt."""
    words = [word.lower() for word in _WORD.findall(text)]
    if len(words) < 20:
        return None
    hits = {name: [word for word in words if word in known] for name, known in _FUNCTION_WORDS.items()}
    ranked = sorted(hits, key=lambda name: -len(hits[name]))
    first, second = len(hits[ranked[0]]), len(hits[ranked[1]])
    sure = first >= 0.14 * len(words) and first >= 1.5 * second and len(set(hits[ranked[0]])) >= 4
    return ranked[0] if sure else None

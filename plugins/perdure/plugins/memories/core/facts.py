"""What a note states about what, so that a newer statement about a thing can take an older one's place.

A deterministic heuristic for sentences of the form "X is Y", "X: Y", "changed X to Y" in English, Chinese and
Japanese. It errs towards saying nothing: an older statement is taken for past only if it has the same
subject, another value of the same kind (a number, a place, a thing), and either the subject is more than a
bare name or the newer one says itself that something changed.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Any

from perdure.plugins.search.terms import STOP, asked, terms
from perdure.records import Record


class Fact(Record):
    """`subject`: a key, equal for the same thing; `value`: its terms; `kind`: what sort of value it is.

    `firm`: the subject is more than a bare name; `change`: it says that it is new; `negated`: "no longer";
    `was`: the terms of the value that it says is past.
    """

    subject: str
    value: tuple[str, ...]
    kind: str
    firm: bool
    change: bool = False
    negated: bool = False
    was: tuple[str, ...] = ()


def contradicts(new: Fact, old: Fact) -> bool:
    """Whether `old` is past if `new` holds. Both have the same subject."""
    if new.negated != old.negated:
        return True
    one, other = set(new.value), set(old.value)
    if one <= other or other <= one:  # the same, told more or less exactly
        return False
    return new.change or (new.firm and new.kind == old.kind)


def facts(text: str, under: str = "") -> tuple[Fact, ...]:
    """What a piece of a note states; `under`: the heading that it stands under."""
    joined = _WRAPPED.sub(" ", _PLAIN.sub("", text))
    sentences = (each.strip() for each in _SENTENCE.split(joined))
    found = (_fact(each, under) for each in sentences if 3 < len(each) <= LONGEST)
    return tuple(fact for fact in found if fact is not None)


LONGEST = 300
"""Characters of a sentence that may be a statement of the kind meant here."""
_SENTENCE = re.compile(r"(?<=[.!?])\s+|[。！？；\n]+")
_WRAPPED = re.compile(r"(?<=[\w,])\n(?=[a-z])")
_PLAIN = re.compile(r"^\s*(?:[-*+]|\d+[.)])\s+(?:\[[ xX]\]\s+)?|[*_`\"“”「」『』]", re.MULTILINE)
_OPENING = re.compile(
    r"^(?:(?P<news>updated?|correction|corrected|更正|更新|订正|訂正|変更)|note|reminder|remember|fyi|注意|备注|メモ"
    r"|as of [^,:]+|since [^,:]+|from [^,:]+ on|\d{4}-\d{2}-\d{2})\s*[:：,，]\s*",
    re.IGNORECASE,
)
_CHANGED = (
    r"(?:switched|changed|moved|migrated|renamed|updated|set|bumped|raised|lowered|increased|reduced|decreased"
    r"|rescheduled|shifted|relocated|postponed|upgraded|downgraded)"
)
_NOW = re.compile(
    r"\b(?:now|currently|these days|no longer|instead|from now on|anymore)\b"
    "|现在|目前|不再|现已|今は|現在は?|もう",
    re.IGNORECASE,
)
_NOT = re.compile(r"\bno longer\b|\bnot\b.*\banymore\b|不再|もう.*ない|なくな", re.IGNORECASE)
_VERBS = (
    r"lives? in|works? (?:at|for)|runs? (?:on|at|in)|listens? on|starts? (?:at|on)|ends? (?:at|on)"
    r"|happens? (?:at|on)|go(?:es)? out (?:on|at)|takes? place (?:at|on|in)|costs?|expires? (?:on|in)"
    r"|reports? to|belongs? to|sits? in"
)
_ENGLISH = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"^(?:(?:we|i|they|he|she)(?:'ve| have| has)?\s+)?{_CHANGED}\s+(?P<s>.+?)\s+"
        r"(?:from\s+(?P<was>.+?)\s+)?to\s+(?P<new>.+)$",
        rf"^(?P<s>.+?)\s+(?:(?:was|were|is|has been|have been|got|has|have)\s+)?(?:now\s+)?{_CHANGED}\s+"
        r"(?:from\s+(?P<was>.+?)\s+)?to\s+(?P<new>.+)$",
        rf"^(?P<s>.+?)\s+(?:now\s+|currently\s+|no longer\s+)?(?P<verb>{_VERBS})\s+(?P<v>.+)$",
        r"^(?P<s>.+?)\s+(?:is|are)\s+(?:now\s+|currently\s+|no longer\s+)?(?P<v>.+)$",
        r"^(?P<key>[^:=]{2,60}?)\s*(?::\s|=|->|→)\s*(?P<v>.+)$",
    )
)
_BECAME = (
    "改[为成到]|换[成到]|变[成为]|变更为|调整[为到]|迁移到|迁到|升级到|降级到|更新为|推迟到|提前到|涨到|降到"
)
_CHINESE = tuple(
    re.compile(pattern)
    for pattern in (
        rf"^.{{0,6}}?[把将](?P<s>.+?)(?:从(?P<was>.+?))?(?:{_BECAME}|设为|定为)了?(?P<new>.+)$",
        rf"^(?P<s>.+?)(?:已经|已|又)?(?:从(?P<was>.+?))?(?:{_BECAME})了?(?P<new>.+)$",
        r"^(?P<s>.+?)(?:已经|已)?(?:从(?P<was>.+?))?(?P<home>搬到|搬去)了?(?P<new>.+)$",
        r"^(?P<s>.+?)(?:现在|目前)?(?P<home>住在)(?P<v>.+)$",
        r"^(?P<s>.+?)(?:不再)?(?:是|为|叫做?|位于|定在)(?P<v>.+)$",
        r"^(?P<key>[^:=]{1,30}?)\s*[:=→]\s*(?P<v>.+)$",
    )
)
_TURNED = "変更|変わ|移行|移転|移動|移り|移した|切り替|なった|なりました|改め|更新|延期|引き上げ|引き下げ"
_JAPANESE = tuple(
    re.compile(pattern)
    for pattern in (
        r"^(?P<s>.+?)[はがを]、?(?:(?P<was>.+?)から)?(?P<new>.+?)[にへ](?P<home>引っ越).*$",
        rf"^(?P<s>.+?)[はがを]、?(?:(?P<was>.+?)から)?(?P<new>.+?)[にへ](?:{_TURNED}).*$",
        r"^(?P<s>.+?)は、?(?:今は?|現在は?)?、?(?P<v>.+?)に(?P<home>住ん).*$",
        r"^(?P<s>.+?)は、?(?:今は?|現在は?)?、?(?P<v>.+?)(?:です|である|だ)$",
        r"^(?P<key>[^:=]{1,30}?)\s*[:=→]\s*(?P<v>.+)$",
    )
)
_KANA, _HAN = re.compile("[\u3040-\u30ff]"), re.compile("[\u4e00-\u9fff]")
_TAIL = re.compile(
    r"[,;，；、(（]|\s(?:because|since|due to|as of|until|instead|anymore|starting)\b", re.IGNORECASE
)
_FILLER = re.compile(r"现在|目前|我们|咱们|今は|現在|新しい|最新|[的之の我私了已]|\s")
_WORDS = frozenset(
    {"current", "currently", "now", "new", "today", "actual", "latest", "also", "s", "no", "longer"}
)
_PLACE = re.compile(r"(?:in|at|on|near|under|by|with|for|from|to)\b", re.IGNORECASE)
_NUMBER = re.compile(
    r"\d|\b(?:mon|tues|wednes|thurs|fri|satur|sun)days?\b|周[一二三四五六日末]|星期[一二三四五六日天]|[月火水木金土日]曜"
    r"|[一二两三四五六七八九十百]+[点时時月日号分万元円]|\b(?:noon|midnight|daily|weekly|monthly)\b",
    re.IGNORECASE,
)
"""Numbers, days and times."""


def _fact(sentence: str, under: str) -> Fact | None:
    sentence = unicodedata.normalize("NFKC", sentence).rstrip(".。!！ ")
    opening = _OPENING.match(sentence)
    news = opening is not None and opening["news"] is not None
    sentence = sentence[opening.end() :] if opening is not None else sentence
    for pattern in _patterns(sentence):
        if (found := pattern.match(sentence)) is not None:
            return _made(found, sentence, under, news=news)
    return None


def _patterns(sentence: str) -> Iterator[re.Pattern[str]]:
    if _KANA.search(sentence):
        yield from _JAPANESE
    elif _HAN.search(sentence):
        yield from _CHINESE
    else:
        yield from _ENGLISH


def _made(found: re.Match[str], sentence: str, under: str, *, news: bool) -> Fact | None:
    named: dict[str, Any] = found.groupdict()
    change = news or named.get("new") is not None or _NOW.search(sentence) is not None
    said = _TAIL.split((named.get("new") or named.get("v") or "").strip())[0].strip()
    parts = _subject(named["s"], "") if named.get("s") else _subject(named["key"] or "", under)
    value = tuple(dict.fromkeys(terms(said)))
    if not parts or len(parts) > 8 or not value:
        return None
    if relation := _relation(named, found[0], parts):
        parts = (*parts, relation)
    kind = _kind(said)
    firm = len(parts) > 1 or kind == "number" or (not parts[0].isascii() and len(parts[0]) > 3)
    negated, was = _NOT.search(sentence) is not None, tuple(dict.fromkeys(terms(named.get("was") or "")))
    return Fact(" ".join(parts), value, kind, firm, change, negated, was)


def _subject(said: str, under: str) -> tuple[str, ...]:
    """The telling terms of a subject, sorted; a script without spaces as one text, without its particles."""
    said = _NOW.sub(" ", said)
    if not said.isascii() and (_HAN.search(said) or _KANA.search(said)):
        bare = _FILLER.sub("", said)
        return (bare.casefold(),) if 1 < len(bare) <= 40 else ()
    telling = {term for term in asked(said) if term not in STOP and term not in _WORDS}
    if len(telling) == 1 and under.isascii():  # "port: 5432" below "## Database"
        telling |= {term for term in asked(under) if term not in STOP}
    return tuple(sorted(telling))


def _relation(named: dict[str, Any], sentence: str, subject: tuple[str, ...]) -> str:
    """What relates subject and value, where it is more than being: who moved lives there."""
    if named.get("home"):
        return "@home"
    verb = (named.get("verb") or "").lower()
    if verb.startswith("live") or (
        len(subject) == 1 and re.search(r"\b(?:moved|relocated)\b", sentence, re.IGNORECASE)
    ):
        return "@home"
    return "@work" if verb.startswith("work") else ""


def _kind(said: str) -> str:
    if _NUMBER.search(said):
        return "number"
    return "place" if _PLACE.match(said) else "thing"

"""Names of entities, kinds and relations: how they are written, and when two are the same. Pure.

Two names are the same when they differ in case, width, spaces, dashes, middle dots, quotes or full stops
only (`ACME Inc.` and `acme inc`, `史蒂夫·乔布斯` and `史蒂夫乔布斯`, `ﾗﾘｰ･ﾍﾟｲｼﾞ` and `ラリー・ペイジ`).
Signs that tell things apart stay (`C`, `C++`, `C#`), and so do points between digits (`1.2` is not `12`).
"""

from __future__ import annotations

import re
import unicodedata

from perdure.context.prompt.knowledge import words
from perdure.context.text.characters import clean, encodable
from perdure.context.text.secrets import redact
from perdure.errors import UsageError
from perdure.plugins.memories.saying import JOINED

MAX_NAME = 200
MAX_LABEL = 60
MAX_TERMS = 64
KINDS = ("Person", "Organization", "Project", "Concept", "Event", "Location", "Document", "Tool")
UNSPECIFIED = "Concept"
RELATIONS = (
    "WorksAt", "KnowsAbout", "RelatedTo", "DependsOn", "OwnedBy", "CreatedBy", "LocatedIn", "PartOf", "Uses",
    "Produces",
)  # fmt: skip
_ENDS = {  # what a relation tells of its ends, where nobody says it
    "worksat": ("Person", "Organization"),
    "knowsabout": ("Person", UNSPECIFIED),
    "locatedin": (UNSPECIFIED, "Location"),
    "livesin": ("Person", "Location"),
    "reportsto": ("Person", "Person"),
    "createdby": (UNSPECIFIED, "Person"),
    "uses": (UNSPECIFIED, "Tool"),
}
_BREAKS = re.compile(r"[\s_\-\u2010-\u2015\u2212\u00b7\u30fb\u2022\u2027\u2219\u22c5\uff65]+")
_BESIDE_CJK = re.compile(f" (?=[{JOINED}])|(?<=[{JOINED}]) ")
_QUOTES = re.compile("[\"'`´\u2018-\u201f\u300c-\u300f«»]")
_POINTS = re.compile(r"(?<![0-9])[.,]|[.,](?![0-9])")
_HUMPS = re.compile(r"[^\W_]+")


def key(name: str) -> str:
    """What is equal for two spellings of one name; never empty for a name that isn't."""
    folded = _folded(name)
    plain = _POINTS.sub("", _QUOTES.sub("", folded))
    spaced = _BREAKS.sub(" ", plain).strip()
    return _BESIDE_CJK.sub("", spaced) or " ".join(folded.split())


def terms(text: str, most: int = MAX_TERMS) -> tuple[str, ...]:
    """The words (pairs of characters where there are no spaces) by which a name is found, each once."""
    return tuple(dict.fromkeys(words(_folded(text))))[:most]


def fold(label: str) -> str:
    """What is equal for two spellings of a kind or relation: `works at`, `works_at`, `WorksAt`."""
    return "".join(_HUMPS.findall(_folded(label)))


def named(name: object, what: str) -> str:
    """A name as it is stored. Raises `UsageError`: empty, too long, or a secret."""
    text = _line(name, what, MAX_NAME)
    if redact(text) != text:
        raise UsageError(f"{what}: looks like a password or key, and those are not remembered; leave it out")
    return text


def kind(label: object) -> str:
    """A kind of entity as it is written: one of `KINDS`, or the caller's own. Raises `UsageError`."""
    return _label(_line(label, "kind", MAX_LABEL), KINDS, "kind")


def relation(label: object) -> str:
    """A relation as it is written: one of `RELATIONS`, or the caller's own. Raises `UsageError`."""
    return _label(_line(label, "relation", MAX_LABEL), RELATIONS, "relation")


def ends(relation_: str) -> tuple[str, str]:
    """The kinds that a relation's ends have if nobody says otherwise."""
    return _ENDS.get(fold(relation_), (UNSPECIFIED, UNSPECIFIED))


def _label(text: str, known: tuple[str, ...], what: str) -> str:
    folded = fold(text)
    if not folded:
        raise UsageError(f"{what}: {text!r} holds no letter or digit; give one like {known[0]}")
    usual = {fold(name): name for name in known}
    return usual.get(folded) or "".join(part[:1].upper() + part[1:] for part in _HUMPS.findall(text))


def _line(value: object, what: str, most: int) -> str:
    if not isinstance(value, str):
        raise UsageError(f"{what}: must be text")
    if len(value) > 4 * most:  # before anything runs over a megabyte
        raise UsageError(f"{what}: {len(value):,} characters, at most {most} are taken; shorten it")
    text = " ".join(unicodedata.normalize("NFC", clean(value, foreign=True)).split())
    if not text:
        raise UsageError(f"{what}: is empty; give a name")
    if len(text) > most:
        raise UsageError(f"{what}: {len(text):,} characters, at most {most} are taken; shorten it")
    return text


def _folded(text: str) -> str:
    plain = unicodedata.normalize("NFKC", encodable(text)).casefold()
    return unicodedata.normalize("NFKC", plain)

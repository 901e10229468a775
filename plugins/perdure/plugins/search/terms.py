"""The terms of a text, for an index that finds Chinese, Japanese and Korean as well as English and code.

Words lose case, Latin accents and the plain English endings; an identifier counts as a whole and in its
parts (`maxResults` → `maxresults max result`). Scripts without spaces become overlapping pairs of
characters; the last character of a run stands alone, too, so that a query of one character finds each
occurrence as the beginning of some term. Every term is letters and digits only.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache

VERSION = 1
"""Of the rules below: an index made by other ones is made again."""

JOINED = (
    "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
    "\uff66-\uff9f\U00020000-\U0003ffff"
)
"""Of a character class: what is written without spaces (Hangul too, whose words carry endings)."""

_RUN = re.compile(rf"([{JOINED}]+)|([^\W_{JOINED}]+)")
_WORD = re.compile(r"[A-Za-z0-9]+")
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_LONGEST = 64
"""Characters of a word that count: longer ones are data."""

_SILENT = """
a an and are as at be been but by can could did do does for from had has have how i if in into is it its me
my of on or our shall should so that the their them then there these they this to was we were what when where
which who whom whose why will with would you your
什么 怎么 哪个 哪里 多少 我们 你们 他们 是不 不是
です ます まし した でし のは とは は何 何で はど どこ どの いつ ので から して いる ある
する こと もの これ それ この その とい いう
무엇 어디 입니 니다 인가 가요
的 了 是 在 吗 呢 吧 我 你 他 她 它 这 那 の は が を に へ と で も や か ね よ
"""
STOP = frozenset(_SILENT.split())
"""Terms that say nothing by themselves; of scripts without spaces, pairs of characters."""


def terms(text: str) -> list[str]:
    """All terms, in order, repeated ones too. What runs together yields pairs, then its last character."""
    if text.isascii():
        return [term for word in _WORD.findall(text) for term in _word(word[:_LONGEST])]
    return list(_terms(unicodedata.normalize("NFKC", text)))


def asked(text: str) -> list[str]:
    """The different terms of a query, in order, without those that say nothing; all, where none says more."""
    found = list(dict.fromkeys(_terms(unicodedata.normalize("NFKC", text), closed=False)))
    telling = [term for term in found if term not in STOP]
    return telling or found


def _terms(text: str, *, closed: bool = True) -> Iterator[str]:
    for joined, word in _RUN.findall(text):
        if joined:
            yield from pairs(joined, closed=closed)
        else:
            yield from _word(word[:_LONGEST])


def pairs(run: str, *, closed: bool = True) -> Iterator[str]:
    """Overlapping pairs of characters; `closed`: and the last character alone."""
    for at in range(len(run) - 1):
        yield run[at : at + 2]
    if closed or len(run) == 1:
        yield run[-1]


@lru_cache(maxsize=20_000)
def _word(word: str) -> tuple[str, ...]:
    whole = stem(plain(word))
    parts = _PART.findall(word) if word.isascii() else []
    if len(parts) < 2:
        return (whole,)
    return (whole, *(stem(part.lower()) for part in parts if len(part) > 1))


def plain(word: str) -> str:
    """Without case, and Latin letters without accents."""
    word = word.casefold()
    if word.isascii():
        return word
    return "".join(map(_bare, word))


@lru_cache(maxsize=2_000)
def _bare(char: str) -> str:
    first = unicodedata.normalize("NFKD", char)[0]
    return first if first.isascii() else char


def stem(word: str) -> str:
    """A plain English word without -s, -es, -ies, -ed, -ing; others as they are."""
    if len(word) < 4 or not word.isascii() or not word.isalpha():
        return word
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("sses", "xes", "ches", "shes")):
        return word[:-2]
    if word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for ending in ("ing", "ed"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return _undoubled(word[: -len(ending)])
    return word[:-1] if word.endswith("e") and len(word) > 4 else word


def _undoubled(word: str) -> str:
    return word[:-1] if word[-1] == word[-2] and word[-1] not in "lsz" else word

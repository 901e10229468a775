"""Which pieces of the notes are past, because a newer one says otherwise. Pure.

By an explicit mark (`<!-- supersedes: … -->`), or by statements about the same subject. What comes from an
untrusted source never makes a more trusted text past.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import TypeAlias

import msgspec

from perdure.contracts import Trust
from perdure.plugins.memories.core.facts import Fact, contradicts
from perdure.plugins.memories.core.files import is_evergreen
from perdure.plugins.search.store import Chunk, Statement
from perdure.plugins.search.terms import asked, terms

LATEST = 8
"""How many of the newest statements about a subject an older one is compared with."""
_PLACE = re.compile(r"(.+\.md)(?:#L(\d+)(?:-L(\d+))?)?$")
_Told: TypeAlias = tuple[Statement, Fact]
_RANK: Mapping[Trust, int] = {"untrusted": 0, "system": 1, "agent": 1, "owner": 1}


def outdated(statements: Iterable[Statement]) -> dict[int, int]:
    """Chunk → how many of its statements are past. `statements`: oldest first."""
    past: dict[int, int] = {}
    by_subject = sorted(statements, key=lambda each: each.subject)  # stable: still oldest first
    for _, group in groupby(by_subject, key=lambda each: each.subject):
        told = [(each, msgspec.json.decode(each.said, type=Fact)) for each in group]
        changes = [one for one in told if one[1].change and not is_evergreen(one[0].source)]
        for at, one in enumerate(told):
            later = told[max(at + 1, len(told) - LATEST) :]
            left = changes[-1:] if is_evergreen(one[0].source) else []
            if any(_outdates(each, one) for each in later) or any(_has_left(each, one) for each in left):
                past[one[0].chunk] = past.get(one[0].chunk, 0) + 1
    return past


def _outdates(new: _Told, old: _Told) -> bool:
    """Whether a later statement says otherwise; one that a dated change has left behind doesn't."""
    left = is_evergreen(new[0].source) and _has_left(old, new)
    return not left and _replaces(new[0], old[0]) and contradicts(new[1], old[1])


def _has_left(change: _Told, old: _Told) -> bool:
    """Whether a change names the value of `old`, whose age nobody knows, as the one that it ended."""
    return _replaces(change[0], old[0]) and set(old[1].value) == set(change[1].was)


def _replaces(new: Statement, old: Statement) -> bool:
    return new.chunk != old.chunk and _RANK[new.trust] >= _RANK[old.trust]


def marked(marks: Iterable[Statement], chunks: Iterable[Chunk]) -> set[int]:
    """The chunks that marks name: by their place, or older ones that hold all words of the mark."""
    wanted = list(marks)
    if not wanted:
        return set()
    known = [(chunk, frozenset(terms(chunk.searched()))) for chunk in chunks]
    return {
        chunk.id
        for mark in wanted
        for chunk, held in known
        if chunk.id != mark.chunk and _names(mark, chunk, held)
    }


def _names(mark: Statement, chunk: Chunk, held: frozenset[str]) -> bool:
    if _RANK[mark.trust] < _RANK[chunk.trust]:
        return False
    if (place := _PLACE.match(mark.said)) is not None:
        first = int(place[2] or 1)
        last = int(place[3] or place[2] or 10**9)
        return chunk.source == place[1] and chunk.start <= last and chunk.end >= first
    older = (chunk.at, chunk.source, chunk.start) < (mark.at, mark.source, mark.start)
    return older and held.issuperset(asked(mark.said))

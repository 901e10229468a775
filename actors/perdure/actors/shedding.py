"""Which sessions fall asleep when memory is short: a pure choice by bytes, rest and the price of waking."""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from perdure.records import Record

WAKE = 0.002  # seconds that any waking costs: lock, open, stat, the prompt's files
DECODED = 120e6  # bytes of view that a second decodes and measures
WEIGHED = 1_024  # sessions that are weighed at once: those that rest longest


class Resting(Record):
    """A session that could sleep: what it owns, since when it rests, what its view would cost to read."""

    key: str
    owned: int
    since: float
    view: int


def reload_cost(view: int) -> float:
    """Seconds of work until a session with so many bytes of view is awake again."""
    return WAKE + view / DECODED


def score(each: Resting, now: float) -> float:
    """Bytes × seconds of rest ÷ seconds of waking: the largest goes first."""
    return each.owned * (max(0.0, now - each.since) + 1.0) / reload_cost(each.view)


def choose(resting: Iterable[Resting], now: float, too_much: int) -> tuple[Resting, ...]:
    """Whom to put to sleep so that `too_much` bytes go; all of them where that is not enough."""
    heap = [(-score(each, now), each.since, each.key, each) for each in resting]
    heapq.heapify(heap)
    chosen: list[Resting] = []
    while heap and too_much > 0:
        each = heapq.heappop(heap)[-1]
        chosen.append(each)
        too_much -= each.owned
    return tuple(chosen)

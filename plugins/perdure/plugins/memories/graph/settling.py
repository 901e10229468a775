"""Which of several statements of a functional relation hold, and until when. Pure.

A functional relation has one target at a time (`WorksAt`, `LocatedIn`): a statement ends where the next one
with another target begins. A statement can only be ended by one that is trusted at least as much: what a web
page says never ends what the user said. The result depends on what is stored, not on the order in which it
came.
"""

from __future__ import annotations

from collections.abc import Iterable

from perdure.contracts.memories import Trust
from perdure.plugins.memories.trust import rank
from perdure.records import Record


class Statement(Record):
    """An edge of one source and relation. `start`: when it began to hold, in ms; `recorded`: when it was
    told.
    """

    id: int
    target: int
    start: int
    recorded: int
    trust: Trust


class Closed(Record):
    """At what moment a statement ended, by which other."""

    at: int
    by: int


def settle(statements: Iterable[Statement]) -> dict[int, Closed | None]:
    """For each statement's id, what ended it."""
    ends: dict[int, Closed | None] = {}
    near: list[_Nearest] = [_Nearest() for _ in range(4)]  # by the trust that is asked for
    for one in sorted(statements, key=lambda one: (one.start, one.recorded, one.id), reverse=True):
        trust = rank(one.trust)
        ends[one.id] = near[trust].other_than(one.target)
        for place in near[: trust + 1]:
            place.now(one)
    return ends


class _Nearest:
    """Walking back in time: the nearest later statement, and the nearest with another target than that."""

    def __init__(self) -> None:
        self.first: Statement | None = None
        self.second: Statement | None = None

    def now(self, one: Statement) -> None:
        if self.first is not None and self.first.target != one.target:
            self.second = self.first
        self.first = one

    def other_than(self, target: int) -> Closed | None:
        found = self.second if self.first is not None and self.first.target == target else self.first
        return None if found is None else Closed(found.start, found.id)

"""When an engine that failed is asked again: pure decisions, by session and for the engine as a whole."""

from __future__ import annotations

from perdure.records import Record

CHANCES = 3  # failures in a row, of one session, before the engine rests for it
HUNG = 2  # one that hung counts for so many: each further one costs its deadline
FIRST_REST, LONGEST_REST = 30.0, 900.0  # seconds, doubling
MANY = 3  # sessions that it fails in a row before it is begun anew
RESTARTS, WINDOW = 3, 600.0  # so many in so many seconds, then it rests for everybody


class Condition(Record):
    """How an engine fares with one session. `failures` in a row; until `rests` it isn't asked; `spells` of
    rest so far, without a success between them.
    """

    failures: int = 0
    rests: float = 0.0
    spells: int = 0

    def resting(self, now: float) -> bool:
        """Whether it is left alone."""
        return now < self.rests


WELL = Condition()


def failed(was: Condition, now: float, *, hung: bool = False) -> Condition:
    """One failure more."""
    failures = was.failures + (HUNG if hung else 1)
    if failures < CHANCES:
        return Condition(failures, 0.0, was.spells)
    return rested(Condition(failures, 0.0, was.spells), now)


def rested(was: Condition, now: float) -> Condition:
    """It is left alone, each time for twice as long."""
    rest = min(LONGEST_REST, FIRST_REST * 2.0**was.spells)
    return Condition(was.failures, now + rest, was.spells + 1)


def restarts_left(times: tuple[float, ...], now: float) -> bool:
    """Whether it may be begun anew, after restarts at `times`."""
    return sum(1 for at in times if now - at < WINDOW) < RESTARTS

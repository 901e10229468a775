"""How often something may break before more is done about it. Pure: time comes in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Intensity:
    """At most `limit` events within `period` seconds, as OTP counts restarts."""

    limit: int
    period: float

    def note(self, past: tuple[float, ...], now: float) -> tuple[tuple[float, ...], bool]:
        """The events that still count, this one included, and whether they are within the limit.

        An event exactly `period` seconds old counts no longer.
        """
        recent = (*(at for at in past if now - at < self.period), now)
        recent = recent[-(self.limit + 1) :]
        return recent, len(recent) <= self.limit


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential, with a cap. In seconds."""

    first: float = 0.1
    factor: float = 2.0
    cap: float = 5.0

    def delay(self, attempt: int) -> float:
        """Before restart number `attempt`, counted from 1 (bounded first, so that it can't overflow)."""
        return min(self.cap, self.first * self.factor ** min(attempt - 1, 64))


class Breaker:
    """Closed while things work; open (refusing) for `rest` seconds after too many faults; then one trial."""

    __slots__ = ("_intensity", "_past", "_rest", "_since", "_trial")

    def __init__(self, intensity: Intensity, rest: float) -> None:
        self._intensity, self._rest = intensity, rest
        self._past: tuple[float, ...] = ()
        self._since: float | None = None
        self._trial = False

    def state(self, now: float) -> Literal["closed", "open", "half-open"]:
        """What it would say now."""
        if self._since is None:
            return "closed"
        return "half-open" if now - self._since >= self._rest else "open"

    def reopens(self) -> float | None:
        """When the next trial is allowed, or None where it is closed."""
        return None if self._since is None else self._since + self._rest

    def allow(self, now: float) -> bool:
        """Whether one more may be begun; in half-open state one at a time."""
        state = self.state(now)
        if state == "closed":
            return True
        if state == "open" or self._trial:
            return False
        self._trial = True
        return True

    def worked(self) -> None:
        """A success closes it."""
        self._since, self._trial = None, False

    def undecided(self) -> None:
        """It ended without saying anything about the pool's health: another trial is allowed."""
        self._trial = False

    def broke(self, now: float) -> bool:
        """A fault. True where it opens by this one."""
        self._past, within = self._intensity.note(self._past, now)
        if self._trial or not within:
            opened = self._since is None
            self._since, self._trial, self._past = now, False, ()
            return opened
        return False

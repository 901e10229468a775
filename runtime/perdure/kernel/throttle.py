"""How much of a resource that says "not now" may be asked for: one pause for all, then a careful return.

Pure: time comes in. A refusal pauses everybody once; after the pause one trial at a time, and each success
lets one more be under way (which doubles with each round, as TCP's slow start), so that those who waited
don't return as a herd. Faults without a word about time open it like a breaker, after `faults` of different
askers in a row, with pauses that double.
"""

from __future__ import annotations

from math import inf
from typing import Literal
from zlib import crc32

FAULTS = 3  # different askers that failed in a row: one whose own request is ill opens nothing
SPREAD = 0.02  # of a pause: hosts that were refused together must not come back together


class Throttle:
    """Of one resource of width `limit`. `name` and the count of its pauses seed the spread."""

    def __init__(
        self, limit: int, *, name: str = "", first: float = 0.5, cap: float = 60.0, faults: int = FAULTS
    ) -> None:
        self._limit, self._name, self._first, self._cap, self._faults = limit, name, first, cap, faults
        self.until = -inf  # of the clock's now: nobody asks before
        self.pauses = 0  # in all, for `status`
        self._width = limit
        self._failed: set[str] = set()  # who failed since the last success
        self._row = 0

    def state(self, now: float) -> Literal["open", "trying", "paused"]:
        """As `status` shows it: paused, coming back, or wholly open."""
        if now < self.until:
            return "paused"
        return "open" if self._width >= self._limit else "trying"

    def allowed(self, now: float) -> int:
        """How many may be under way."""
        return 0 if now < self.until else self._width

    def worked(self, now: float) -> None:
        """One came back well. During a pause that says nothing: it was begun before."""
        if now < self.until:
            return
        self._failed.clear()
        self._row = 0
        self._width = min(self._limit, self._width + 1)

    def refused(self, now: float, after: float | None) -> bool:
        """It said "not now", perhaps for how long. True where a pause begins by this one."""
        if now < self.until:  # of the same burst: a longer pause holds, a shorter one changes nothing
            self.until = max(self.until, now + (after or 0.0))
            return False
        self._pause(now, after)
        return True

    def failed(self, now: float, who: str) -> bool:
        """It broke, and nothing was said about time. True where that opens the breaker."""
        if len(self._failed) < self._faults:
            self._failed.add(who)
        if now < self.until or (len(self._failed) < self._faults and self._width >= self._limit):
            return False
        self._pause(now, None)
        return True

    def _pause(self, now: float, after: float | None) -> None:
        self._row += 1
        self.pauses += 1
        pause = after if after is not None else min(self._cap, self._first * 2.0 ** min(self._row - 1, 32))
        spread = crc32(f"{self._name}/{self.pauses}".encode()) / 2**32
        self.until = now + pause * (1.0 + SPREAD * spread)
        self._width = 1

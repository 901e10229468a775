"""Token buckets: so many in a minute, with a burst. Pure: time comes in."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

MINUTE = 60.0
ROUNDING = 1e-6  # who waited as long as was said must not be sent away for the last bit
KEPT = 65_536  # buckets remembered; the one unused longest goes, which only ever lets more through


class Buckets:
    """One bucket a key, each of its own size `per_minute`: full at first, and refilled evenly."""

    def __init__(self) -> None:
        self._level: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()  # tokens, as of when

    def short(self, key: Hashable, per_minute: float, now: float) -> float:
        """Seconds until one may be taken; 0: now."""
        level = self._now(key, per_minute, now)
        return 0.0 if level > 1.0 - ROUNDING else (1.0 - level) * MINUTE / per_minute

    def take(self, key: Hashable, per_minute: float, now: float) -> None:
        """Take one. Only where `short` said 0."""
        self._level[key] = self._now(key, per_minute, now) - 1.0, now
        self._level.move_to_end(key)
        if len(self._level) > KEPT:
            self._level.popitem(last=False)

    def _now(self, key: Hashable, per_minute: float, now: float) -> float:
        level, at = self._level.get(key, (per_minute, now))
        return min(max(1.0, per_minute), level + (now - at) * per_minute / MINUTE)

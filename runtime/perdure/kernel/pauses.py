"""How long the garbage collector stops everything: counted by its own call-backs, told in `status`.

A server's heap is frozen once after start-up. What comes later is its connections: a thousand streams are
300,000 objects of the HTTP server and the loop, and a full collection that looks at them stops everything for
0.2 s. So a server freezes again after a full collection that took longer than `LONG`; thresholds stay as they
are. A cycle among the frozen is never freed (a closed connection leaves one of about forty objects, of two
hundred): when `MOST` times as much was frozen as the last collection that saw all had to look at, measured by
the seconds that it took, the next one sees all again.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

LONG = 0.05  # seconds of a full collection after which a server freezes again
MOST = 4  # what may be frozen before all is looked at again, in units of what was alive then


class Pauses:
    """Counts full collections and the longest pause of each generation, in seconds by `now`.

    `freeze` has been called: the program is all ours, and long collections are followed by another.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now, self._began = now, 0.0
        self._ours = False  # the heap is
        self._sees_all = True  # the next full collection looks at all that came since the start
        self._whole = self._since = 0.0  # seconds that it took when it last did, and what was frozen since
        self.frozen = self.frozen_again = 0  # objects at the start, and how often since
        self.count = 0
        self.longest = [0.0, 0.0, 0.0]
        self.total = 0.0

    def begin(self) -> None:
        """Listen, until `end`."""
        gc.callbacks.append(self._called)

    def end(self) -> None:
        """Leave the program's collector as it was."""
        if self._called in gc.callbacks:
            gc.callbacks.remove(self._called)

    def _called(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._began = self._now()
            return
        took, generation = self._now() - self._began, info["generation"]
        self.total += took
        self.count += generation == 2
        self.longest[generation] = max(self.longest[generation], took)
        if generation == 2 and self._ours and took > LONG:
            self._freeze_again(took)

    def freeze(self) -> None:
        """Collect once and take all that is left out of the collector's sight; again when there is more.

        To be called once, after start-up and outside of turns, where the program is all ours.
        """
        gc.collect()
        gc.freeze()
        self._ours, self.frozen = True, gc.get_freeze_count()

    def _freeze_again(self, took: float) -> None:
        gc.freeze()
        self.frozen_again += 1
        if self._sees_all:
            self._sees_all, self._whole, self._since = False, took, 0.0
            return
        self._since += took
        if self._since > MOST * self._whole:
            gc.unfreeze()
            self._sees_all = True

    def line(self) -> dict[str, Any]:
        """For `status`, in milliseconds."""
        return {
            "full_collections": self.count,
            "frozen_objects": self.frozen,  # counting them all would take as long as a collection
            "frozen_again": self.frozen_again,
            "total_ms": round(self.total * 1000, 2),
            "longest_ms": [round(each * 1000, 2) for each in self.longest],
        }

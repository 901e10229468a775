"""How long the garbage collector stops everything: counted by its own call-backs, told in `status`."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any


class Pauses:
    """Counts full collections and the longest pause of each generation, in seconds by `now`."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now, self._began = now, 0.0
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

    def line(self) -> dict[str, Any]:
        """For `status`, in milliseconds."""
        return {
            "full_collections": self.count,
            "frozen_objects": gc.get_freeze_count(),
            "total_ms": round(self.total * 1000, 2),
            "longest_ms": [round(each * 1000, 2) for each in self.longest],
        }


def freeze() -> None:
    """Collect once and take all that is left out of the collector's sight.

    To be done once, after start-up and outside of turns: a cycle that is alive now is never freed.
    """
    gc.collect()
    gc.freeze()

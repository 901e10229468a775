"""All deadlines and timers of a real clock in one heap, run by one ticker.

An answered ask stays in the heap until due, because removing it costs more than skipping it; the heap is
rebuilt when more than three quarters are such leftovers. The ticker wakes only for an earlier deadline.
(A deadline each by the loop's own timers costs 19 µs an ask, this 3.)
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from math import inf
from typing import Any, TypeAlias

import anyio

from perdure.kernel.park import Park, new_park
from perdure.kernel.waiter import Waiter

GRAIN = 0.002  # seconds between two looks at the heap, so that many close deadlines cost one wake
SMALL = 1024  # entries below which a rebuild isn't worth it


class Timer:
    """A call in the future; `cancel` is idempotent and may come late."""

    __slots__ = ("_dropped", "fn", "when")

    def __init__(self, when: float, fn: Callable[[], object], dropped: Callable[[], None]) -> None:
        self.when = when
        self.fn: Callable[[], object] | None = fn
        self._dropped = dropped

    def cancel(self) -> None:
        """Don't call."""
        if self.fn is not None:
            self.fn = None
            self._dropped()


Entry: TypeAlias = tuple[float, int, "Waiter[Any] | Timer"]


class Deadlines:
    """The heap. `now` and `failed` are the clock's."""

    def __init__(self, now: Callable[[], float], failed: Callable[[BaseException], None]) -> None:
        self._now = now
        self._failed = failed
        self._heap: list[Entry] = []
        self._count = 0
        self._live = 0
        self._target = inf
        self._bell: Park | None = None
        self.running = False
        self.wakes = 0

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def live(self) -> int:
        """Entries that still mean something."""
        return self._live

    def watch(self, at: float, waiter: Waiter[Any]) -> None:
        """Wake the waiter's park at `at`, unless `leave` comes first."""
        self._count += 1
        waiter.ticket = self._count
        self._push((at, self._count, waiter))

    def leave(self, waiter: Waiter[Any]) -> None:
        """The wait is over, whatever ended it."""
        waiter.ticket = 0
        self._live -= 1

    def call_at(self, when: float, fn: Callable[[], object]) -> Timer:
        """A timer in the same heap."""
        self._count += 1
        timer = Timer(when, fn, self._drop)
        self._push((when, self._count, timer))
        return timer

    def _drop(self) -> None:
        self._live -= 1

    def _push(self, entry: Entry) -> None:
        self._live += 1
        heap = self._heap
        heapq.heappush(heap, entry)
        if len(heap) > SMALL and len(heap) > 4 * self._live:
            heap[:] = [e for e in heap if _alive(e)]
            heapq.heapify(heap)
        if entry[0] < self._target and self._bell is not None:
            self._bell.wake()

    def fire(self) -> None:
        """Everything that is due by now."""
        heap, now = self._heap, self._now()
        while heap and (heap[0][0] <= now or not _alive(heap[0])):
            entry = heapq.heappop(heap)
            if not _alive(entry):
                continue
            target = entry[2]
            if isinstance(target, Waiter):
                if target.park is not None:
                    target.park.wake()
            else:
                self._call(target)

    def _call(self, timer: Timer) -> None:
        fn, timer.fn = timer.fn, None
        self._live -= 1
        try:
            if fn is not None:
                fn()
        except Exception as exc:  # a timer's fault is its own; the ticker serves everyone
            self._failed(exc)

    async def run(self) -> None:
        """The ticker: one task for all deadlines of the clock."""
        self.running = True
        try:
            while True:
                self.fire()
                self._bell = new_park()
                self._target = self._heap[0][0] if self._heap else inf
                with anyio.move_on_after(max(GRAIN, self._target - self._now())):
                    await self._bell.wait()
                self.wakes += 1
        finally:
            self.running, self._bell, self._target = False, None, inf


def _alive(entry: Entry) -> bool:
    target = entry[2]
    return target.ticket == entry[1] if isinstance(target, Waiter) else target.fn is not None

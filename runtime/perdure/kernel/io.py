"""Where blocking work happens: in a thread in production, inline under virtual time.

A task that waits for a thread would hold virtual time up, and a simulated disk needs no fsync. Appends are
single writes and stay inline under either policy (microseconds; a thread costs 15-100 times that).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

from anyio import CapacityLimiter, to_thread

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

Fault = Callable[[str, str], None]


class IoPolicy:
    """One for a host. `sync`: whether fsync is done. `before(op, path)` may raise, to inject faults:
    the edges tell it of every call that changes the disk (`edges.disk`).
    """

    __slots__ = ("before", "sync", "virtual")

    def __init__(self, virtual: bool, *, sync: bool | None = None, before: Fault | None = None) -> None:
        self.virtual = virtual
        self.sync = (not virtual) if sync is None else sync
        self.before = before

    async def run(self, fn: Callable[[*Ts], T], *args: *Ts, limiter: CapacityLimiter | None = None) -> T:
        """The result of `fn(*args)`, which may block. `limiter`: its threads are not those of all others."""
        if self.virtual:
            return fn(*args)
        return await to_thread.run_sync(fn, *args, limiter=limiter)

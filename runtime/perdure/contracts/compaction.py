"""What starts a compaction, and what is noted before it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from perdure.contracts.engines import EngineContext
from perdure.records import Items, Record

CompactionReason: TypeAlias = Literal["overflow", "threshold", "manual", "idle", "size", "model_switch"]


class Pressure(Record):
    """What a compaction trigger decides on. Tokens are those of the unguarded request.

    `moment`: before a step of a turn, after a turn (`rest`), when the session has rested for as long as
    a cache lives (`idle`), when a request did not fit (`overflow`), when a smaller window was chosen.
    """

    moment: Literal["step", "rest", "idle", "overflow", "model_switch"]
    tokens: int
    window: int
    threshold: int
    idle_line: int
    entries: int
    view_bytes: int
    size_entries: int
    size_bytes: int


@runtime_checkable
class CompactionTrigger(Protocol):
    """Says when a session is compacted. Whether one may start then, the coordinator decides alone.

    `wants` is asked by the session itself: it computes from these numbers and waits for nothing.
    `None` on an overflow leaves the overflow to the user; what a person commands isn't asked about.
    """

    def wants(self, pressure: Pressure) -> CompactionReason | None: ...


MemoryFlush: TypeAlias = Callable[[EngineContext, Items], Awaitable[str]]
"""Called with messages that a compaction is about to take out of the view, in order, a part at a time.

What it returns is appended to the day's note of the workspace, and nothing else is changed.
"""

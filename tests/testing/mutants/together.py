"""Faults that show when calls come at once, late, or are cut off."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import anyio

from perdure.contracts import (
    Assembled,
    Bootstrapped,
)
from testing.mutants.made import mutant
from testing.reference import Reference

FOREVER = 3.0  # seconds: longer than any deadline of these tests


# --- concurrency -----------------------------------------------------------------------------


@mutant("concurrency.sessions")
class OneCallAtATimeInAField(Reference):
    """Keeps what a call is about in the engine, across a wait."""

    current: Any = None

    async def assemble(self, context: Any, messages: Any) -> Assembled:
        self.current = (context, messages)
        await anyio.sleep(0.001)
        return await super().assemble(*self.current)


@mutant("concurrency.beside")
class RefusesWhileBusy(Reference):
    busy = False

    async def ingest_batch(self, context: Any, items: Any) -> int:
        self.busy = True
        try:
            await anyio.sleep(0.001)
            return await super().ingest_batch(context, items)
        finally:
            self.busy = False

    async def assemble(self, context: Any, messages: Any) -> Assembled:
        if self.busy:
            raise RuntimeError("busy")
        return await super().assemble(context, messages)


@mutant("concurrency.same-session")
class NotTwiceForASession(Reference):
    asked: Any = frozenset()

    async def assemble(self, context: Any, messages: Any) -> Assembled:
        if context.session_id in self.asked:
            raise RuntimeError("already assembling")
        self.asked |= {context.session_id}
        try:
            await anyio.sleep(0.001)
            return await super().assemble(context, messages)
        finally:
            self.asked -= {context.session_id}


@mutant("concurrency.loop")
class HoldsTheLoop(Reference):
    async def after_turn(self, context: Any, report: Any) -> None:
        time.sleep(0.6)  # noqa: ASYNC251 (its fault)


@mutant("concurrency.loops")
class OnlyAsyncio(Reference):
    async def assemble(self, context: Any, messages: Any) -> Assembled:
        await asyncio.sleep(0)
        return await super().assemble(context, messages)


@mutant("concurrency.alone")
class OneFailureForAll(Reference):
    broken = ""

    async def ingest_batch(self, context: Any, items: Any) -> int:
        try:
            return await super().ingest_batch(context, items)
        except OSError:
            self.broken = "the store is broken"
            raise

    def digest(self, context: Any, notes: list[Any]) -> str:
        return self.broken or super().digest(context, notes)


# --- time ------------------------------------------------------------------------------------


@mutant("time.machine")
class ReadsTheClock(Reference):
    def digest(self, context: Any, notes: list[Any]) -> str:
        return f"{super().digest(context, notes)}\nIt is {int(time.time()) // 100_000}."


@mutant("time.backwards")
class TimeMustGrow(Reference):
    seen = 0

    async def ingest_batch(self, context: Any, items: Any) -> int:
        assert context.runtime.wall_ms() >= self.seen
        self.seen = context.runtime.wall_ms()
        return await super().ingest_batch(context, items)


@mutant("time.long-rest")
class ForgetsAfterAYear(Reference):
    first = 0

    async def assemble(self, context: Any, messages: Any) -> Assembled:
        self.first = self.first or context.runtime.wall_ms()
        old = context.runtime.wall_ms() - self.first > 30_000_000_000
        return Assembled(()) if old else await super().assemble(context, messages)


@mutant("time.epoch")
class TimeIsTruth(Reference):
    async def assemble(self, context: Any, messages: Any) -> Assembled:
        return await super().assemble(context, messages) if context.runtime.wall_ms() else Assembled(())


@mutant("time.virtual")
class ThreadsInVirtualTime(Reference):
    async def notes(self, context: Any) -> Any:
        if context.runtime.virtual:
            raise RuntimeError
        return await super().notes(context)


# --- cancellation ----------------------------------------------------------------------------


@mutant("cancellation.ends")
class CatchesCancellation(Reference):
    async def assemble(self, context: Any, messages: Any) -> Assembled:
        try:
            return await super().assemble(context, messages)
        except BaseException:
            return Assembled(messages)


@mutant("cancellation.delivery")
class MarksBeforeItWrites(Reference):
    """An entry counts as stored before it is."""

    def __init__(self, lent: Any = None) -> None:
        super().__init__(lent)
        self.seen: set[Any] = set()

    async def ingest_batch(self, context: Any, items: Any) -> int:
        new = tuple(item for item in items if (context.session_id, item.entry) not in self.seen)
        self.seen |= {(context.session_id, item.entry) for item in new}
        return await super().ingest_batch(context, new)

    async def bootstrap(self, context: Any) -> Bootstrapped:
        found = await super().bootstrap(context)
        if found.cursor == "":
            self.seen = {(id, entry) for id, entry in self.seen if id != context.session_id}
        return found


@mutant("cancellation.assemble", "cancellation.others")
class LocksForGood(Reference):
    """A lock that is not given back when a call is cut off."""

    def __init__(self, lent: Any = None) -> None:
        super().__init__(lent)
        self.free = True

    async def assemble(self, context: Any, messages: Any) -> Assembled:
        if not self.free:
            return Assembled(messages[-1:])
        self.free = False
        answer = await super().assemble(context, messages)
        self.free = True
        return answer


@mutant("cancellation.wakes")
class HalfAWaking(Reference):
    """What it imports is marked as imported first."""

    async def bootstrap(self, context: Any) -> Bootstrapped:
        path = self.path(f"woken {context.session_id}")
        if path.exists():
            return Bootstrapped(0, None if self.lines(self.path(context.session_id)) else self.ended(path))
        path.write_text("")
        history = await context.runtime.history()
        path.write_text(history[-1].entry if history else "")
        return await super().bootstrap(context)

    def ended(self, path: Path) -> str:
        return path.read_text() or "x"

"""Any actor as a context engine: each method of the contract becomes one message, what it answers the result.

An actor is an object with `ask`, `receive` or `handle` (the first of them that it has), or a callable; with
`async def`, or plain `def` that doesn't wait. It gets one message after another, as actors do. What it
doesn't know it answers with `None` or `NotImplemented`, and the harmless default counts: an actor that knows
`Assemble` alone is an engine.

    class Clerk:                                   # it was here before, and does other work too
        async def receive(self, message):
            match message:
                case Assemble(messages=view):
                    return view[-20:]

    api.register_context_engine("clerk", lambda: ActorEngine(EngineInfo("clerk", "Clerk"), Clerk()))
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import anyio

from perdure.contracts import (
    Assembled,
    Bootstrapped,
    Delegate,
    EngineCompaction,
    EngineContext,
    EngineInfo,
    Maintained,
    Moment,
    Rollback,
    Spawn,
    SpawnEnd,
    TurnReport,
)
from perdure.errors import Busy
from perdure.records import Item, Items

WAITING = 1_000  # messages that may wait for one actor: more would wait for longer than any deadline


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """Answer: `Bootstrapped`."""

    context: EngineContext


@dataclass(frozen=True, slots=True)
class Ingest:
    """Committed entries, in order; they may come again. Answer: how many were stored."""

    context: EngineContext
    items: Items


@dataclass(frozen=True, slots=True)
class AfterTurn:
    """Answer: nothing."""

    context: EngineContext
    report: TurnReport


@dataclass(frozen=True, slots=True)
class Assemble:
    """Answer: `Assembled`, or only its messages."""

    context: EngineContext
    messages: Items


@dataclass(frozen=True, slots=True)
class Compact:
    """Answer: `EngineCompaction`. `delegate()` is the runtime's own compaction: the default."""

    context: EngineContext
    delegate: Delegate
    force: bool
    instructions: str


@dataclass(frozen=True, slots=True)
class Maintain:
    """Answer: `Maintained`."""

    context: EngineContext
    moment: Moment


@dataclass(frozen=True, slots=True)
class PrepareSpawn:
    """Answer: an async function that takes it back; an error refuses the child."""

    context: EngineContext
    spawn: Spawn


@dataclass(frozen=True, slots=True)
class SubagentEnded:
    """Answer: nothing."""

    context: EngineContext
    child_key: str
    end: SpawnEnd


@dataclass(frozen=True, slots=True)
class Dispose:
    """The last message. Answer: nothing."""


EngineMessage: TypeAlias = (
    Bootstrap | Ingest | AfterTurn | Assemble | Compact | Maintain | PrepareSpawn | SubagentEnded | Dispose
)
Receive: TypeAlias = Callable[[EngineMessage], Any]


class ActorEngine:
    """The engine `info` whose methods are messages to `actor`. Raises `TypeError` for what is no actor."""

    def __init__(self, info: EngineInfo, actor: object) -> None:
        self.info, self._receive, self._turn = info, receiver(actor), anyio.Lock()

    async def bootstrap(self, context: EngineContext) -> Bootstrapped:
        return await self._ask(Bootstrap(context), Bootstrapped) or Bootstrapped()

    async def ingest(self, context: EngineContext, item: Item) -> bool:
        return await self.ingest_batch(context, (item,)) > 0

    async def ingest_batch(self, context: EngineContext, items: Items) -> int:
        return int(await self._ask(Ingest(context, items), int) or 0)

    async def after_turn(self, context: EngineContext, report: TurnReport) -> None:
        await self._told(AfterTurn(context, report))

    async def assemble(self, context: EngineContext, messages: Items) -> Assembled:
        found = await self._ask(Assemble(context, messages), Assembled, tuple, list)
        if found is None:
            return Assembled(messages)
        return found if isinstance(found, Assembled) else Assembled(tuple(found))

    async def compact(
        self, context: EngineContext, delegate: Delegate, *, force: bool, instructions: str
    ) -> EngineCompaction:
        found = await self._ask(Compact(context, delegate, force, instructions), EngineCompaction)
        return await delegate() if found is None else found

    async def maintain(self, context: EngineContext, moment: Moment) -> Maintained:
        return await self._ask(Maintain(context, moment), Maintained) or Maintained()

    async def prepare_subagent_spawn(self, context: EngineContext, spawn: Spawn) -> Rollback | None:
        found: Rollback | None = await self._told(PrepareSpawn(context, spawn))
        if found is not None and not callable(found):
            raise TypeError(f"{self.info.id} answered PrepareSpawn with {type(found).__name__}: no function")
        return found

    async def on_subagent_ended(self, context: EngineContext, child_key: str, end: SpawnEnd) -> None:
        await self._told(SubagentEnded(context, child_key, end))

    async def dispose(self) -> None:
        await self._told(Dispose())

    async def _ask(self, message: EngineMessage, *kinds: type) -> Any:
        """Its answer, of one of those kinds, or `None` where it has none."""
        found = await self._told(message)
        if found is None or isinstance(found, kinds):
            return found
        asked, wanted = type(message).__name__, " or ".join(kind.__name__ for kind in kinds)
        raise TypeError(f"{self.info.id} answered {asked} with {type(found).__name__}, not {wanted}")

    async def _told(self, message: EngineMessage) -> Any:
        if self._turn.statistics().tasks_waiting >= WAITING:
            raise Busy(f"{self.info.id} has {WAITING:,} messages waiting: it is too slow, or it hangs")
        async with self._turn:
            found = self._receive(message)
            if inspect.isawaitable(found):
                found = await found
        return None if found is NotImplemented else found


def receiver(actor: object) -> Receive:
    """How an actor is told something: `ask`, `receive`, `handle`, or a call."""
    for name in ("ask", "receive", "handle"):
        found = getattr(actor, name, None)
        if callable(found):
            return _as_receive(found)
    if callable(actor):
        return _as_receive(actor)
    raise TypeError(f"{type(actor).__name__} is no actor: it has neither `ask`, `receive` nor `handle`")


def _as_receive(found: Callable[..., Any]) -> Receive:
    return found


__all__ = [
    "ActorEngine", "AfterTurn", "Assemble", "Bootstrap", "Compact", "Dispose", "EngineMessage", "Ingest",
    "Maintain", "PrepareSpawn", "SubagentEnded",
]  # fmt: skip

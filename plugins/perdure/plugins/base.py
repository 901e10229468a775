"""The base of an engine: every method of the contract with a harmless default, so that one overrides its own.

    class Tail(Engine):
        info = EngineInfo("tail", "The last ten turns", passive=True)

        async def assemble(self, context: EngineContext, messages: Items) -> Assembled:
            return Assembled(flat(turns(messages)[-10:]))

Nothing is stored, the messages pass, the runtime compacts, children begin. `turns` and `flat` cut a view
where it may be cut: a call and its result never part. An actor becomes an engine by `actor.ActorEngine`, one
in another process by `process.ProcessEngine`.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from perdure.contracts import (
    Assembled,
    Bootstrapped,
    Delegate,
    EngineCompaction,
    EngineContext,
    EngineInfo,
    Maintained,
    Moment,
    PluginRuntime,
    Rollback,
    Spawn,
    SpawnEnd,
    Tool,
    TurnReport,
)
from perdure.records import Item, Items, User


class Engine:
    """A context engine that changes nothing. `lent` is what the host lends its plugin, if it was told."""

    info: EngineInfo

    def __init__(self, lent: PluginRuntime | None = None) -> None:
        self.lent = lent

    async def bootstrap(self, context: EngineContext) -> Bootstrapped:
        """Nothing of its own: the host's cursor counts."""
        return Bootstrapped()

    async def ingest(self, context: EngineContext, item: Item) -> bool:
        """Not stored: the log is the truth."""
        return False

    async def ingest_batch(self, context: EngineContext, items: Items) -> int:
        """`ingest` for each, in order."""
        return sum([await self.ingest(context, item) for item in items])

    async def after_turn(self, context: EngineContext, report: TurnReport) -> None:
        """Nothing to do."""

    async def assemble(self, context: EngineContext, messages: Items) -> Assembled:
        """The same messages."""
        return Assembled(messages)

    async def compact(
        self, context: EngineContext, delegate: Delegate, *, force: bool, instructions: str
    ) -> EngineCompaction:
        """What the runtime would do."""
        return await delegate()

    async def maintain(self, context: EngineContext, moment: Moment) -> Maintained:
        """Nothing to tidy."""
        return Maintained()

    async def prepare_subagent_spawn(self, context: EngineContext, spawn: Spawn) -> Rollback | None:
        """The child may begin; nothing is to be taken back."""
        return None

    async def on_subagent_ended(self, context: EngineContext, child_key: str, end: SpawnEnd) -> None:
        """Nothing to do."""

    async def dispose(self) -> None:
        """Nothing to close."""

    def tools(self) -> tuple[Tool, ...]:
        """None."""
        return ()


def turns(messages: Items) -> tuple[Items, ...]:
    """The messages by turn: each begins with a user's message, but for what stands before the first."""
    starts = [n for n, item in enumerate(messages) if isinstance(item.message, User)]
    edges = [0, *(n for n in starts if n), len(messages)]
    return tuple(messages[a:b] for a, b in pairwise(edges) if a < b)


def flat(parts: Iterable[Items]) -> Items:
    """Turns as one view again."""
    return tuple(item for part in parts for item in part)

"""The contract of a context engine: how a session's context is assembled, stored and compacted.

Four members are required: `info`, `ingest`, `assemble`, `compact`. Seven are optional, each a protocol of
its own here, looked up by name. A method may be `async def`, or plain `def`: then it runs in a thread. The
safety steps stand around every one: an engine gets repaired history, and what it returns is sealed again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from perdure.contracts.lending import PluginRuntime
from perdure.contracts.tools import Tool
from perdure.records import Item, Items, Message, ModelInfo, Record


class EngineInfo(Record):
    """Who an engine is. `owns_compaction` hands compaction over to it wholly; `passive` engines store
    nothing and have no hooks, so that no worker is troubled for them; `shares`: whose text a session may
    get to see, its own, or that of all sessions of its agent.
    """

    id: str
    name: str
    version: str = "1"
    owns_compaction: bool = False
    passive: bool = False
    shares: Literal["session", "agent"] = "session"


# --- what a call is told --------------------------------------------------------------------------


class Replacement(Record):
    """Another message in place of that of a `message` entry."""

    entry: str
    message: Message


class Rewritten(Record):
    """What `rewrite_transcript_entries` did. `bytes_freed` counts context, not disk: the file only grows."""

    changed: bool
    entries: int = 0
    bytes_freed: int = 0
    reason: str = ""


class EngineRuntime(PluginRuntime, Protocol):
    """What one engine call may use of its session, besides what every plugin is lent."""

    def estimate(self, items: Items) -> int:
        """Tokens of messages, by the session's own calibrated estimator."""
        ...

    async def history(self, after: str = "", limit: int = 1_000) -> Items:
        """Messages stored on the session's live path behind the entry `after` ("": from the first), oldest
        first, at most `limit`; covered and moved ones included. From file and segments: what an engine
        that lost its store is rebuilt from. An unknown `after` raises `LookupError`.
        """
        ...

    async def rewrite_transcript_entries(self, replacements: tuple[Replacement, ...]) -> Rewritten:
        """The one safe way to change the log: branches before the first match, writes the rest again
        under new ids, remaps what refers to it. Only in `maintain`.
        """
        ...


@dataclass(frozen=True, slots=True)
class EngineContext:
    """Of every engine call: whose it is, and what room there is.

    `token_budget`: for messages and addition together; 0 where a call has none. `prompt`: the text of the
    newest user message. `tools`: names of what the model is offered. `heartbeat`: the turn is one.
    """

    session_id: str
    session_key: str
    session_file: str
    token_budget: int
    runtime: EngineRuntime
    model: ModelInfo | None = None
    prompt: str = ""
    tools: tuple[str, ...] = ()
    heartbeat: bool = False


class TurnReport(Record):
    """What `after_turn` is told. `items`: committed by the turn, its user message included; `view`: all.

    `stop`: how it ended; `tokens`: the size of the view, by the session's estimator.
    """

    items: Items
    view: Items
    stop: str = "stop"
    tokens: int = 0


Moment: TypeAlias = Literal["bootstrap", "turn", "compaction"]
"""When `maintain` is called: after bootstrap, after each successful turn, after each compaction."""

SpawnMode: TypeAlias = Literal["isolated", "forked", "projected"]
"""A child's context: nothing of the parent's; all of it; a budgeted projection of it."""

SpawnEnd: TypeAlias = Literal["completed", "deleted", "swept", "released"]
"""A child has ended and is kept; with its session; it went by retention; its parent let it go."""


class Spawn(Record):
    """A child session that is about to begin. `ttl_ms`: at most as long; 0: no limit is set."""

    parent_key: str
    child_key: str
    parent_id: str
    task: str
    mode: SpawnMode = "isolated"
    ttl_ms: int = 0


Rollback: TypeAlias = Callable[[], Awaitable[None]]


# --- what a call answers --------------------------------------------------------------------------


class Bootstrapped(Record):
    """`cursor`: the last entry of the session in the engine's own store ("": it has none); the host delivers
    what comes behind it. `None`: the engine keeps none, and the host's own cursor counts.
    """

    imported: int = 0
    cursor: str | None = None
    reason: str = ""


class Assembled(Record):
    """An engine's answer to `assemble`; `addition` goes just below the cache boundary.

    `estimated_tokens`: of both, 0 where it did not count. The host counts for itself, too; the answer's room
    is what the larger of both leaves.
    """

    messages: Items
    estimated_tokens: int = 0
    addition: str = ""


class EngineCompaction(Record):
    """An engine's answer to `compact`. `ok` without `compacted`: nothing was to be done."""

    ok: bool
    compacted: bool
    reason: str = ""
    summary: str = ""
    first_kept: str = ""
    tokens_before: int = 0
    tokens_after: int = 0


class Maintained(Record):
    """An engine's answer to `maintain`: whether it changed what is stored."""

    changed: bool = False
    rewritten: int = 0
    reason: str = ""


Delegate: TypeAlias = Callable[[], Awaitable[EngineCompaction]]
"""The runtime's own compaction, for engines that leave it that."""


# --- the engine -----------------------------------------------------------------------------------


@runtime_checkable
class ContextEngine(Protocol):
    """What every engine has. Optional members: `Bootstraps`, `IngestsBatches`, `AfterTurns`, `Maintains`,
    `PreparesSpawns`, `EndsSubagents`, `Disposes`, `ForgetsSessions`, `OffersTools`.
    """

    @property
    def info(self) -> EngineInfo: ...
    async def ingest(self, context: EngineContext, item: Item) -> bool:
        """Store one committed entry; whether it did. Entries come in order and may come again after a
        crash: a second time changes nothing.
        """
        ...

    async def assemble(self, context: EngineContext, messages: Items) -> Assembled:
        """Before every model call: the messages to send, of `messages` (repaired, in order) or its own."""
        ...

    async def compact(
        self, context: EngineContext, delegate: Delegate, *, force: bool, instructions: str
    ) -> EngineCompaction:
        """The view must shrink: by `delegate()`, or in the engine's own store if it owns compaction."""
        ...


class Bootstraps(Protocol):
    """Called once when a session wakes whose file has messages; then `maintain` for "bootstrap"."""

    async def bootstrap(self, context: EngineContext) -> Bootstrapped: ...


class IngestsBatches(Protocol):
    """Called instead of `ingest`, with entries in order; how many it stored."""

    async def ingest_batch(self, context: EngineContext, items: Items) -> int: ...


class AfterTurns(Protocol):
    """Called once when a turn is over, after all its entries were delivered. An engine that owns compaction
    has as long for it as for a compaction.
    """

    async def after_turn(self, context: EngineContext, report: TurnReport) -> None: ...


class Maintains(Protocol):
    """May rewrite entries (`runtime.rewrite_transcript_entries`) and tidy the engine's store."""

    async def maintain(self, context: EngineContext, moment: Moment) -> Maintained: ...


class PreparesSpawns(Protocol):
    """Called before a child session begins; an error refuses the child. The answer takes it back."""

    async def prepare_subagent_spawn(self, context: EngineContext, spawn: Spawn) -> Rollback | None: ...


class EndsSubagents(Protocol):
    """Called once a child is over; failures are logged only."""

    async def on_subagent_ended(self, context: EngineContext, child_key: str, end: SpawnEnd) -> None: ...


class Disposes(Protocol):
    """Called when the host closes or replaces the engine. Ten seconds at most."""

    async def dispose(self) -> None: ...


class ForgetsSessions(Protocol):
    """Called when a session was deleted for good, perhaps at the engine's next start: nothing of it is kept.

    `session_id` is the header's id of one of its files; a later session of the same key has another.
    """

    async def forget_session(self, key: str, session_id: str) -> None: ...


class OffersTools(Protocol):
    """Tools that the sessions of this engine are offered beside the host's; asked once per instance."""

    def tools(self) -> tuple[Tool, ...]: ...


METHODS = (
    "bootstrap", "maintain", "ingest", "ingest_batch", "after_turn", "assemble", "compact",
    "prepare_subagent_spawn", "on_subagent_ended", "dispose",
)  # fmt: skip
"""All methods of the contract; with `info` its eleven members."""

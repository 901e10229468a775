"""What a session's actors are given by the host: one bundle, resolved once, handed down."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from perdure.actors.approvals import Approvals
from perdure.actors.calls import Calls
from perdure.actors.durable import Durable
from perdure.actors.fallbacks import Fallbacks
from perdure.actors.gates import Gates
from perdure.actors.inbound import Inbound
from perdure.actors.memories.slot import MemorySlot
from perdure.actors.memory import Memory
from perdure.actors.outbox import Outbox
from perdure.actors.spending import Spending
from perdure.actors.subagents.family import Family
from perdure.actors.timers import Timers
from perdure.actors.upkeep import Upkeep
from perdure.actors.waits import Waits
from perdure.context.compaction.prompts import Instructions
from perdure.context.environment import Environment
from perdure.context.numbers import PRUNE_TTL_SECONDS
from perdure.context.pipeline import TransformContext
from perdure.contracts import (
    Blobs,
    CompactionReason,
    MemoryFlush,
    Model,
    PluginRuntime,
    Pressure,
    Tool,
)
from perdure.edges.images import Scaler
from perdure.edges.log import Log
from perdure.edges.session.files import SessionFiles
from perdure.edges.settings import Settings
from perdure.edges.tracing import OFF, Tracing
from perdure.errors import ModelUnusable
from perdure.events import Recorded
from perdure.kernel.channel import Channel
from perdure.kernel.clock import Clock
from perdure.kernel.daemons import Daemons
from perdure.kernel.io import IoPolicy
from perdure.kernel.kernel import Kernel
from perdure.kernel.pool import Pool
from perdure.records import Item, ModelInfo

if TYPE_CHECKING:
    from perdure.actors.engines.roster import Roster


class Resolver(Protocol):
    """Answers, from configuration and session, what a session runs with."""

    def environment(
        self,
        key: str,
        model: ModelInfo,
        thinking: str,
        *,
        fresh: bool = True,
        query: str = "",
        knowledge: bool = True,
        engine: str | None = None,
    ) -> Environment:
        """`fresh` False: by the workspace's files as this session was last shown them, if that is known.

        `engine`: the session's own choice.
        """
        ...

    def heartbeat(self, key: str, model: ModelInfo) -> tuple[str | None, Environment]:
        """The text of HEARTBEAT.md, and a light environment that has little beside it."""
        ...

    def model_for(self, key: str, ref: str | None) -> ModelInfo:
        """The session's own choice `ref` where it can be had, else the agent's, else the default."""
        ...

    def model_info(self, ref: str) -> ModelInfo:
        """Raises `ConfigError` for an unknown model."""
        ...

    def model(self, info: ModelInfo) -> Model: ...
    def lacks(self, info: ModelInfo) -> str: ...
    def models(self) -> tuple[Model, ...]: ...
    def summariser(self, info: ModelInfo) -> ModelInfo:
        """Which model writes summaries for a session on `info`."""
        ...

    def instructions(self, focus: str) -> Instructions: ...
    def workspace(self, key: str) -> Path: ...
    def shown_workspace(self, key: str) -> str: ...


@dataclass(frozen=True, slots=True)
class Timing:
    """Deadlines and retries, in seconds and counts. Every wait on someone else has one of these."""

    model_idle: float = 120.0  # silence in a stream before it counts as stalled
    tool: float = 600.0
    engine: float = 30.0
    summary: float = 900.0
    flush: float = 120.0
    ask: float = 60.0
    retries: int = 5
    retry_base: float = 0.5
    retry_cap: float = 60.0
    longest_wait: float = 300.0  # that a provider may ask of a running turn; a timer takes up the rest
    max_steps: int = 1000


def configured_timing(settings: Settings) -> Timing:
    """As the configuration has it."""
    models, host = settings.models, settings.host
    return Timing(
        model_idle=models.idle_timeout_seconds,
        tool=host.tool_timeout_seconds,
        engine=settings.plugins.deadline_seconds,
        summary=settings.compaction.timeout_seconds,
        retries=models.retries,
    )


@dataclass(slots=True)
class Services:
    """The bundle; only a reload of the configuration changes it.

    `publish(key, event)` reaches `.events()` streams; it is best-effort.
    """

    kernel: Kernel
    clock: Clock
    io: IoPolicy
    files: SessionFiles
    blobs: Blobs
    resolver: Resolver
    tools: Mapping[str, Tool]
    pools: Mapping[str, Pool]
    events: Channel
    log: Log
    upkeep: Upkeep
    durable: Durable
    outbox: Outbox
    gates: Gates
    spending: Spending
    inbound: Inbound
    waits: Waits
    timers: Timers
    approvals: Approvals
    calls: Calls
    fallbacks: Fallbacks
    memory: Memory
    memories: MemorySlot
    family: Family
    lent: Callable[[str], PluginRuntime]
    engines: Roster
    state: Path
    mail: Callable[[str, Any], None]
    daemons: Daemons
    timing: Timing = Timing()
    hooks: tuple[TransformContext, ...] = ()
    wanted: Callable[[str, Pressure], CompactionReason | None] = lambda _key, _pressure: None
    flush: MemoryFlush | None = None
    evidence_limit: int = 256 * 1024  # characters of tool output that an entry may hold itself
    scaler: Scaler | None = None
    compacts_idle: bool = True
    truncates: bool = True
    truncate_after: int = 2 * 1024 * 1024
    watches_cache: bool = True
    keep_alive: int = 0  # refreshes of a cached prefix in one rest, at most; 0: it is let go
    cache_life: float = PRUNE_TTL_SECONDS  # seconds of rest after which a provider's cache is cold
    on_opened: Callable[[str], None] = lambda key: None
    on_not_opened: Callable[[str, BaseException], None] = lambda key, error: None

    @property
    def flushes(self) -> bool:
        """Whether anybody notes what a compaction will take away."""
        return self.flush is not None or self.memories.flushes

    def admit(self, key: str, sender: str) -> None:
        """Before anything of a letter is written. Raises `Busy`: too many in a minute, or in the queue.

        A new session would begin on a model that can't be called: `ModelUnusable`.
        """
        info = self.fallbacks.choose(key, self.resolver.model_for(key, None))
        if (lacking := self.resolver.lacks(info)) and not self.files.exists(key):
            raise ModelUnusable(f"{key}: {info.ref} can't be called: {lacking}")
        self.gates.admit(key, info.provider)
        self.inbound.admit(key, sender)

    tracing: Tracing = OFF

    def recorded(self, key: str, item: Item) -> None:
        """Tell who listens that a message is in a session's file, once it is durable."""
        told = Recorded(key, item.entry, item.message)
        self.durable.after(lambda: self.events.publish(told), lambda _error: None)

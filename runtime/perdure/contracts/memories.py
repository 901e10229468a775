"""The contract of the memory slot: what an agent knows next week, apart from its sessions' contexts.

A method that is told a context may be `async def`, or plain `def`: then it runs in a thread. Each call has
a deadline; what fails is logged and counted, and costs no turn.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, runtime_checkable

from perdure.contracts.lending import PluginRuntime
from perdure.contracts.tools import Tool
from perdure.records import Items, Record

if TYPE_CHECKING:  # the pure core imports this package, and no path
    from pathlib import Path

Trust: TypeAlias = Literal["owner", "agent", "untrusted", "system"]
"""Where a remembered text comes from: the user, the agent's own notes, a tool or the web, the runtime."""


class MemoryInfo(Record):
    """Who a memory is."""

    id: str
    name: str
    version: str = "1"


@dataclass(frozen=True, slots=True)
class MemoryContext:
    """Of every memory call: for which agent and session, and where that agent's files are."""

    agent: str
    session_key: str
    workspace: Path
    runtime: PluginRuntime


class Recalled(Record):
    """One remembered text. `source`: where it stands (`memory/2026-01-05.md#L3-L9`, an id of the store);
    `entries`: ids of the session entries that it came from; `score` in 0 … 1, higher is nearer.
    """

    text: str
    source: str
    score: float
    trust: Trust = "agent"
    entries: tuple[str, ...] = ()
    at: int = 0
    superseded: bool = False


class Forgotten(Record):
    """What `forget` took away: of files, of index and vectors, of summaries and caches made from it."""

    notes: int = 0
    chunks: int = 0
    derived: int = 0
    sources: tuple[str, ...] = ()


@runtime_checkable
class Memory(Protocol):
    """What every memory has. Optional members: `Recalls`, `Captures`, `Forgets`, `Closes`.

    Its factory, `tools` and `guidance` open and change nothing: commands that only look ask for them, too.
    """

    @property
    def info(self) -> MemoryInfo: ...
    def tools(self) -> tuple[Tool, ...]:
        """What the model is offered (`memory_search` …); asked once. They read `ToolContext.workspace`."""
        ...

    def guidance(self) -> str:
        """Stable lines for the system prompt: when to use the tools, and where to write. May be empty."""
        ...


class Recalls(Protocol):
    """For proactive recall: what bears on `query`, best first, together at most `chars` characters."""

    async def recall(self, context: MemoryContext, query: str, chars: int) -> tuple[Recalled, ...]: ...


class Captures(Protocol):
    """Called with the messages that a turn has committed, once, in order; may come again after a crash."""

    async def capture(self, context: MemoryContext, items: Items) -> None: ...


class Forgets(Protocol):
    """Take away what says `text` (or stands at the source `text`), everywhere in this memory."""

    async def forget(self, context: MemoryContext, text: str) -> Forgotten: ...


class Closes(Protocol):
    """Called when the host closes."""

    async def dispose(self) -> None: ...

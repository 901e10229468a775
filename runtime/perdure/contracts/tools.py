"""What a tool is, what it may use and what it returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from perdure.records import Block, Image, Record, ToolSpec

if TYPE_CHECKING:  # the pure core imports this package, and no path
    from pathlib import Path


class ToolOutput(Record):
    """What a tool returns.

    `content` is what the model sees; `details` is JSON for programs, never sent; `full` is the whole
    output where `content` is only its structured summary: it is kept as evidence.
    """

    content: tuple[Block, ...]
    is_error: bool = False
    details: bytes | None = None
    full: bytes | None = None


@runtime_checkable
class Recall(Protocol):
    """Reads back what left the view: covered entries, evidence by hash, segments."""

    async def recall(self, ref: str, start: int, length: int) -> str: ...
    async def images(self, ref: str) -> tuple[Image, ...]: ...
    async def search(self, text: str, limit: int) -> str: ...


class ToolContext(Protocol):
    """What a tool may use: its workspace, the session's own past, and the one I/O policy."""

    @property
    def session(self) -> str: ...
    @property
    def session_id(self) -> str:
        """The header's id of the session's file: another one after `/new`."""
        ...

    @property
    def call_id(self) -> str: ...
    @property
    def workspace(self) -> Path: ...
    @property
    def recall(self) -> Recall: ...
    @property
    def virtual(self) -> bool:
        """Time is virtual: no process may be run and no thread awaited."""
        ...

    async def run_blocking(self, work: Callable[[], Any]) -> Any:
        """Run blocking work where the I/O policy wants it (a thread; inline under a virtual clock)."""
        ...


class Tool(Protocol):
    """One tool. Errors a model should read are returned with `is_error`, not raised."""

    @property
    def spec(self) -> ToolSpec: ...
    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput: ...

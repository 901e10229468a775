"""A tool context for tests, and a way to run one call on each loop."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import msgspec

from perdure.contracts import Tool, ToolOutput
from perdure.records import Image, Text

LOOPS = ("asyncio", "trio")


class Remembered:
    """A past that holds what it is given."""

    def __init__(self, **entries: str) -> None:
        self.entries = entries

    async def recall(self, ref: str, start: int, length: int) -> str:
        return self.entries[ref][start : start + length]

    async def images(self, ref: str) -> tuple[Image, ...]:
        return ()

    async def search(self, text: str, limit: int) -> str:
        return "\n".join([k for k, v in self.entries.items() if text in v][:limit])


class Context:
    """What a host gives a tool; `virtual` runs everything in place."""

    session = "agent:main:cli:dm:local"

    def __init__(self, workspace: Path, *, virtual: bool = False, recall: Any = None) -> None:
        self.workspace, self.virtual, self.recall = workspace, virtual, recall or Remembered()

    async def run_blocking(self, work: Callable[[], Any]) -> Any:
        return work() if self.virtual else await anyio.to_thread.run_sync(work)


def call(
    tool: Tool, workspace: Path, loop: str = "asyncio", *, virtual: bool = False, **arguments: Any
) -> ToolOutput:
    """One call from outside any loop."""

    async def main() -> ToolOutput:
        with anyio.fail_after(30):
            return await tool.run(arguments, Context(workspace, virtual=virtual))

    return anyio.run(main, backend=loop)


def said(output: ToolOutput) -> str:
    """All text of a result."""
    return "\n".join(block.text for block in output.content if isinstance(block, Text))


def images(output: ToolOutput) -> list[Image]:
    """All images of a result."""
    return [block for block in output.content if isinstance(block, Image)]


def facts(output: ToolOutput) -> dict[str, Any]:
    """The details of a result."""
    assert output.details is not None
    return dict(msgspec.json.decode(output.details))

"""Memories for tests, and models that keep notes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from helpers_host import Play, _played, entries
from perdure.contracts import MemoryContext, MemoryInfo, Recalled, Request, Tool
from perdure.edges.models.reply import ScriptedReply, call, say
from perdure.edges.models.summaries import is_summary_request
from perdure.edges.settings import MemorySettings, PluginSettings, Settings, SlotSettings
from perdure.kernel.clock import Clock
from perdure.records import Items, ModelInfo

SMALL = ModelInfo("scripted", "test", window=16_000, cache_minimum=16)
DAY = "2026-01-05"
WORDS = "The lemon tree in row seven needs water and a stake before the wind comes on Thursday. "


def long(n: int, words: int = 550) -> ScriptedReply:
    """An answer that fills a small window soon."""
    return say(f"Answer {n}. " + WORDS * (words // 6))


class Keeper:
    """A memory that keeps everything in its hands: what it was told, what it was asked."""

    info = MemoryInfo("keeper", "Keeper", "7")

    def __init__(self, *tools: Tool, guidance: str = "", found: tuple[Recalled, ...] = ()) -> None:
        self._tools, self._guidance, self.found = tools, guidance, found
        self.told: list[tuple[MemoryContext, Items]] = []
        self.asked: list[tuple[MemoryContext, str, int]] = []
        self.disposed = 0

    def tools(self) -> tuple[Tool, ...]:
        return self._tools

    def guidance(self) -> str:
        return self._guidance

    async def recall(self, context: MemoryContext, query: str, chars: int) -> tuple[Recalled, ...]:
        self.asked.append((context, query, chars))
        return self.found

    async def capture(self, context: MemoryContext, items: Items) -> None:
        self.told.append((context, items))

    async def dispose(self) -> None:
        self.disposed += 1


def chosen(memory: str, *, strict: bool = False, **told: Any) -> Settings:
    """Settings with a memory in the slot; `told` are those of `[memory]`."""
    slots = SlotSettings(memory=memory)
    return Settings(plugins=PluginSettings(slots=slots, strict=strict), memory=MemorySettings(**told))


FLUSHING = chosen("none", flush=True)

Notes = Callable[[dict[str, Any]], ScriptedReply]


class Noting(Play):
    """A play whose flushes are answered by `notes`; what they asked is kept in `asked`."""

    def __init__(self, *replies: Any, notes: Any = None, **options: Any) -> None:
        super().__init__(*replies, **options)
        self.notes = notes or appends("- noted")
        self.asked: list[dict[str, Any]] = []

    async def __call__(self, body: dict[str, Any], request: Request) -> ScriptedReply:
        if request.session.endswith("#flush") and not is_summary_request(body):
            self.asked.append(body)
            return await _played(self.notes, body, request)
        return await super().__call__(body, request)

    @property
    def shown(self) -> str:
        """All that flushes were shown."""
        return "\n".join(first_text(body) for body in self.asked)


def first_text(body: dict[str, Any]) -> str:
    """The material of a flush's request."""
    content = body["messages"][0]["content"]
    return content if isinstance(content, str) else "".join(block.get("text", "") for block in content)


def appends(*texts: str) -> ScriptedReply:
    """An answer that notes these."""
    return ScriptedReply(tuple(call("memory_append", f"note{n}", text=text) for n, text in enumerate(texts)))


def note_path(folder: Path, day: str = DAY) -> Path:
    """The day's note of the workspace that `hosted` gives."""
    return folder / "workspace" / "memory" / f"{day}.md"


def flushes(folder: Path) -> list[dict[str, Any]]:
    """The records of flushes, apart from any conversation."""
    path = folder / "state" / "flushes.jsonl"
    return entries(path) if path.exists() else []


def logged(folder: Path, event: str) -> list[dict[str, Any]]:
    """Lines of the runtime log."""
    rows = (folder / "state" / "runtime.log").read_text().splitlines()
    return [row for row in map(json.loads, rows) if row["event"] == event]


async def rest(clock: Clock) -> None:
    """Let workers end."""
    await clock.sleep(1)

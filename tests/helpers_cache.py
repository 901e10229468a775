"""A session whose prompt cache is watched: what is done to it, and what the log says then."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TypeAlias

from msgspec.structs import replace

from helpers_host import INFO, KEY, Play, ask, hosted, session_path, tells, virtual
from perdure.context.changed import Changed
from perdure.context.pipeline import HookContext
from perdure.contracts import Assembled, EngineContext
from perdure.edges.models.accounting import Accounting
from perdure.edges.models.scripted import ScriptedModel
from perdure.edges.settings import Settings
from perdure.host import Host
from perdure.kernel.virtual import VirtualClock
from perdure.plugins.engines.legacy import LegacyEngine
from perdure.records import Item, Items, ModelInfo, Text, ToolResult, User

OTHER = replace(INFO, provider="second", id="other")
LONG = "The lemon tree in row seven needs water and a stake before the wind comes on Thursday. " * 40


class Lab:
    """One session under one provider's cache, over any number of hosts of one state folder."""

    def __init__(self, folder: Path, clock: VirtualClock) -> None:
        self.folder, self.clock = folder, clock
        self.play = Play()
        self.books = Accounting()
        self.options: dict[str, Any] = {"tools": [tells("look", LONG), tells("peek", LONG)]}
        self.host: Host
        self._stack = AsyncExitStack()

    async def start(self, **changed: Any) -> None:
        """Stop the host, if one runs, and start another with these options changed."""
        await self.stop()
        self.options |= changed
        self.options["models"] = {OTHER.ref: OTHER}
        self.options["factories"] = {OTHER.provider: self._other}
        host = hosted(self.folder, self.play, self.clock, accounting=self.books, **self.options)
        self.host = await self._stack.enter_async_context(host)

    def _other(self, info: ModelInfo) -> ScriptedModel:
        return self.play.model(self.clock, info, accounting=self.books)

    async def stop(self) -> None:
        await self._stack.aclose()
        self._stack = AsyncExitStack()

    async def say(self, text: str = LONG, **options: Any) -> Any:
        """A turn, ten seconds after the last one."""
        await self.clock.sleep(10)
        return await ask(self.host, text, **options)

    def settings(self, **tables: Any) -> Settings:
        return replace(self.options.get("settings") or Settings(), **tables)

    @property
    def workspace(self) -> Path:
        return self.folder / "workspace"

    @property
    def path(self) -> Path:
        return session_path(self.folder)

    @property
    def breaks(self) -> list[dict[str, Any]]:
        """What the runtime log tells of broken caches."""
        return events(self.folder, "cache.break")


def events(folder: Path, name: str) -> list[dict[str, Any]]:
    """The events of that name in a state folder's runtime log."""
    log = folder / "state" / "runtime.log"
    told = [json.loads(line) for line in log.read_bytes().splitlines()] if log.exists() else []
    return [event for event in told if event["event"] == name]


def in_lab(folder: Path, main: Callable[[Lab], Awaitable[None]]) -> None:
    """`main(lab)` in virtual time, its host stopped at the end."""

    async def run(clock: VirtualClock) -> None:
        lab = Lab(folder, clock)
        try:
            await main(lab)
        finally:
            await lab.stop()

    virtual(run)


Change: TypeAlias = Callable[[Items], Items]


class Meddler(LegacyEngine):
    """An engine that does something to every view, and adds something to the prompt."""

    def __init__(self) -> None:
        self.change: Change = lambda items: items
        self.addition = ""

    async def assemble(self, context: EngineContext, messages: Items) -> Assembled:
        return Assembled(self.change(messages), addition=self.addition)


class Meddling:
    """A hook that does something to every view."""

    __qualname__ = "meddling"

    def __init__(self) -> None:
        self.change: Change = lambda items: items

    def __call__(self, items: Items, context: HookContext) -> Changed:
        return Changed(self.change(items))


def first_said(text: str) -> Change:
    """Something else in the place of the first message."""
    return lambda items: (Item(items[0].entry, User((Text(text),))), *items[1:])


def first_result(text: str) -> Change:
    """Something else in the place of the first tool result."""

    def change(items: Items) -> Items:
        at = next(n for n, item in enumerate(items) if isinstance(item.message, ToolResult))
        message = replace(items[at].message, content=(Text(text),))
        return (*items[:at], Item(items[at].entry, message), *items[at + 1 :])

    return change


__all__ = [
    "INFO",
    "KEY",
    "LONG",
    "OTHER",
    "Lab",
    "Meddler",
    "Meddling",
    "events",
    "first_result",
    "first_said",
    "in_lab",
]

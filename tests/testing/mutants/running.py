"""Faults of subagents, of disposal, and with hostile inputs."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import msgspec
from msgspec.structs import replace

from perdure.contracts import (
    Assembled,
)
from perdure.records import (
    Item,
    Summary,
    Text,
    ToolCall,
    ToolResult,
    User,
)
from testing.mutants.made import mutant
from testing.reference import Reference

FOREVER = 3.0  # seconds: longer than any deadline of these tests


# --- subagents -------------------------------------------------------------------------------


@mutant("subagents.prepares")
class RollbackIsNoFunction(Reference):
    async def prepare_subagent_spawn(self, context: Any, spawn: Any) -> Any:
        return {"rollback": True}


@mutant("subagents.rollback")
class RollbackForgets(Reference):
    async def prepare_subagent_spawn(self, context: Any, spawn: Any) -> Any:
        await super().prepare_subagent_spawn(context, spawn)

        async def back() -> None:
            return

        return back


@mutant("subagents.twice")
class RollbackOnce(Reference):
    async def prepare_subagent_spawn(self, context: Any, spawn: Any) -> Any:
        path = self.heir(spawn.child_key)
        path.write_text("")

        async def back() -> None:
            path.unlink()

        return back


@mutant("subagents.isolated")
class InheritsAlways(Reference):
    async def prepare_subagent_spawn(self, context: Any, spawn: Any) -> Any:
        return await super().prepare_subagent_spawn(context, replace(spawn, mode="forked"))


@mutant("subagents.begins")
class ChildHasNoTask(Reference):
    async def prepare_subagent_spawn(self, context: Any, spawn: Any) -> Any:
        self.path(f"mute {spawn.child_key}").write_text("")
        return await super().prepare_subagent_spawn(context, spawn)

    async def assemble(self, context: Any, messages: Any) -> Assembled:
        mute = self.path(f"mute {context.session_key}").exists()
        return Assembled(()) if mute else await super().assemble(context, messages)


@mutant("subagents.ends")
class EndsOnce(Reference):
    async def on_subagent_ended(self, context: Any, child_key: str, end: Any) -> None:
        self.heir(child_key).unlink()


@mutant("subagents.child-alone")
class EndTakesTheParent(Reference):
    ended = False

    async def on_subagent_ended(self, context: Any, child_key: str, end: Any) -> None:
        self.ended = True

    async def assemble(self, context: Any, messages: Any) -> Assembled:
        return await super().assemble(context, messages[-1:] if self.ended else messages)


# --- dispose ---------------------------------------------------------------------------------


@mutant("dispose.ends")
class HangsOnDispose(Reference):
    async def dispose(self) -> None:
        await anyio.sleep(FOREVER)


@mutant("dispose.unused")
class DisposesWhatItUsed(Reference):
    used: Any = None

    async def ingest_batch(self, context: Any, items: Any) -> int:
        self.used = context.runtime
        return await super().ingest_batch(context, items)

    async def dispose(self) -> None:
        self.used.log("disposed")


@mutant("dispose.twice")
class DisposesOnce(Reference):
    async def dispose(self) -> None:
        del self.lock
        self.lock_was = True

    def lines(self, path: Path) -> list[Any]:
        return self.read(path)


@mutant("dispose.leaves-nothing")
class LeaksATask(Reference):
    tasks: Any = ()

    async def assemble(self, context: Any, messages: Any) -> Assembled:
        with suppress(RuntimeError):
            self.tasks = (*self.tasks, asyncio.get_running_loop().create_task(asyncio.sleep(FOREVER)))
        return await super().assemble(context, messages)


@mutant("dispose.leaves-nothing")
class LeaksAFile(Reference):
    def lines(self, path: Path) -> list[Any]:
        KEPT_OPEN.append(os.open(path.with_suffix(".lock"), os.O_CREAT))
        for number in KEPT_OPEN[:-1]:
            os.close(number)
        del KEPT_OPEN[:-1]
        return super().lines(path)


KEPT_OPEN: list[int] = []


@mutant("dispose.leaves-nothing")
class LeaksAProcess(Reference):
    def lines(self, path: Path) -> list[Any]:
        if "one" not in CHILDREN:
            CHILDREN["one"] = subprocess.Popen(
                [sys.executable, "-S", "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE
            )
        return super().lines(path)


CHILDREN: dict[str, Any] = {}


@mutant("dispose.beside", "dispose.after")
class WaitsForever(Reference):
    """Behind `dispose` every call waits for what will not come."""

    def __init__(self, lent: Any = None) -> None:
        super().__init__(lent)
        self.gone = False

    async def assemble(self, context: Any, messages: Any) -> Assembled:
        await anyio.lowlevel.checkpoint()
        if self.gone:
            await anyio.sleep(FOREVER)
        return await super().assemble(context, messages)

    async def dispose(self) -> None:
        self.gone = True


# --- hostile inputs --------------------------------------------------------------------------


@mutant("hostile.texts")
class StrictText(Reference):
    def note(self, item: Item) -> Any:
        note = super().note(item)
        note["note"].encode()
        return note


@mutant("hostile.prompts")
class PromptIsAPattern(Reference):
    async def assemble(self, context: Any, messages: Any) -> Assembled:
        import re

        re.compile(context.prompt)
        return await super().assemble(context, messages)


@mutant("hostile.calls")
class ParsesArguments(Reference):
    def note(self, item: Item) -> Any:
        for block in getattr(item.message, "content", ()):
            if isinstance(block, ToolCall):
                assert isinstance(msgspec.json.decode(block.arguments), dict)
        return super().note(item)


@mutant("hostile.large")
class RefusesLargeTexts(Reference):
    def note(self, item: Item) -> Any:
        for block in getattr(item.message, "content", ()):
            if isinstance(block, Text) and len(block.text) > 1_000_000:
                raise ValueError("too large")
        return super().note(item)


@mutant("hostile.views")
class ExpectsAUserFirst(Reference):
    def select(self, context: Any, messages: Any, room: int) -> Any:
        assert not messages or isinstance(messages[0].message, User | Summary)
        return super().select(context, messages, room)


@mutant("hostile.made-up")
class EveryMessageIsAnEntry(Reference):
    def select(self, context: Any, messages: Any, room: int) -> Any:
        assert all(item.entry for item in messages if not isinstance(item.message, Summary | ToolResult))
        return super().select(context, messages, room)


@mutant("hostile.no-model-known")
class NeedsToKnowTheModel(Reference):
    async def assemble(self, context: Any, messages: Any) -> Assembled:
        assert context.model.window > 1
        return await super().assemble(context, messages)


@mutant("hostile.same-words")
class SameWordsSameMessage(Reference):
    def select(self, context: Any, messages: Any, room: int) -> Any:
        seen, out = set[str](), []
        for item in super().select(context, messages, room):
            words = repr(item.message) if isinstance(item.message, User) else item.entry
            if words not in seen:
                out.append(item)
            seen.add(words)
        return tuple(out)

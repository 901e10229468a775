"""The engine `lossless` over a runtime that tests own: conversations, deliveries, what the tools say."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from helpers_messages import call, result, says, user
from perdure.contracts import EngineCompaction, EngineContext, ToolOutput
from perdure.plugins.engines.lossless.engine import Lossless
from perdure.plugins.engines.lossless.pieces import Node, Raw, View
from perdure.plugins.engines.lossless.store import NAME
from perdure.records import Item, Items, ModelInfo, Text, User
from perdure.testing.lending import FakeRuntime, engine_context

ID, KEY = "session-1", "agent:main:cli:dm:test"
START = 1_767_600_000_000
BUDGET = 4_000


def gist(prompt: str, system: str = "") -> str:
    """A summariser that is brief: how much there was, and the first words of it."""
    told = prompt.split("</conversation>")[0]
    return (
        f"Work went on; {len(told):,} characters were said. It began with: {' '.join(told.split())[15:120]}."
    )


def fail(error: BaseException) -> Callable[[str, str], str]:
    """A summariser that fails so."""

    def answer(prompt: str, system: str) -> str:
        raise error

    return answer


def turn(n: int, text: str = "", *, calls: int = 1, size: int = 300) -> list[Item]:
    """One turn: a request, calls with results, an answer. Entries are `t<n>-…`."""
    at = START + n * 60_000
    out = [
        Item(f"t{n}-u", user(text or f"Please do step {n} of the plan, in /srv/app/part{n}.py", timestamp=at))
    ]
    for k in range(calls):
        out.append(Item(f"t{n}-a{k}", says(call(f"c{n}_{k}"), stop="toolUse", timestamp=at + k)))
        body = f"output {n}.{k} " + "lorem ipsum dolor " * (size // 18)
        out.append(Item(f"t{n}-r{k}", result(f"c{n}_{k}", body, timestamp=at + k)))
    out.append(Item(f"t{n}-e", says(f"Step {n} is done: part{n}.py has {n} functions.", timestamp=at + 50)))
    return out


@dataclass
class Bench:
    """An engine, its runtime, and one session's file as the host has it."""

    runtime: FakeRuntime
    engine: Lossless
    id: str = ID
    key: str = KEY
    budget: int = BUDGET

    @property
    def context(self) -> EngineContext:
        return engine_context(self.runtime, id=self.id, key=self.key, budget=self.budget)

    def file(self, *items: Item) -> Items:
        """Entries are in the session's file now."""
        self.runtime.stored = (*self.runtime.stored, *items)
        return items

    async def say(self, *items: Item) -> None:
        """Entries come into the file and are delivered."""
        await self.engine.ingest_batch(self.context, self.file(*items))

    async def sent(self, messages: Items | None = None) -> Items:
        """What an assembly gives for the whole file, or for these."""
        given = self.runtime.stored if messages is None else messages
        return (await self.engine.assemble(self.context, given)).messages

    async def compact(self, *, force: bool = False, instructions: str = "") -> EngineCompaction:
        async def delegate() -> EngineCompaction:
            raise AssertionError("this engine compacts by itself")

        return await self.engine.compact(self.context, delegate, force=force, instructions=instructions)

    async def view(self) -> View:
        store = await self.engine.sessions.store()
        loaded = store.load(self.id)
        return loaded.view if loaded else ()

    async def sound(self) -> View:
        """The view, after the check has found nothing wrong."""
        assert not await self.engine.check(self.id)
        return await self.view()

    async def reopened(self) -> Bench:
        """The same with another engine on the same store."""
        await self.engine.dispose()
        self.engine = Lossless(self.runtime)
        return self

    async def use(self, tool: str, **arguments: Any) -> str:
        output = await self.output(tool, **arguments)
        assert not output.is_error, text_of(output)
        return text_of(output)

    async def output(
        self, tool: str, *, session: str = "", session_id: str | None = None, **arguments: Any
    ) -> ToolOutput:
        found = next(one for one in self.engine.tools() if one.spec.name == f"history_{tool}")
        return await found.run(
            arguments, Context(session or self.key, self.id if session_id is None else session_id)
        )


class Context:
    """What a tool is told."""

    call_id, virtual, workspace, recall = "call", True, Path("/"), None

    def __init__(self, session: str, session_id: str) -> None:
        self.session, self.session_id = session, session_id

    async def run_blocking(self, work: Callable[[], Any]) -> Any:
        return work()


def bench(folder: Path, answer: Callable[[str, str], str] = gist, **settings: Any) -> Bench:
    """A bench whose settings are those of a small window."""
    small: Mapping[str, Any] = {
        "fresh_count": 8, "leaf_messages": 4, "leaf_tokens": 1_200, "leaf_target": 200,
        "condensed_target": 200, "background": False,
    }  # fmt: skip
    runtime = FakeRuntime(folder, {**small, **settings}, answer=answer)
    return Bench(runtime, Lossless(runtime))


def entries_below(view: View, nodes: Mapping[str, Node]) -> list[str]:
    """Entries that a view shows or stands for, in order, as often as it does."""
    found: list[str] = []
    for piece in view:
        if isinstance(piece, Raw):
            found.append(piece.entry)
        else:
            found += _below(piece, nodes)
    return found


def _below(node: Node, nodes: Mapping[str, Node]) -> list[str]:
    found: list[str] = []
    for key in node.sources:
        kind, _, name = key.partition(":")
        found += _below(nodes[name], nodes) if kind == "s" else [name]
    return found


def files(folder: Path, pattern: str = "*") -> list[Path]:
    """Files below a folder, by name."""
    return sorted(path for path in folder.rglob(pattern) if path.is_file())


def lose(folder: Path, pattern: str = f"{NAME}*") -> None:
    """The database is gone, or what the pattern names."""
    for path in files(folder, pattern):
        path.unlink()


def text_of(output: ToolOutput) -> str:
    return "".join(block.text for block in output.content if isinstance(block, Text))


def summaries(items: Items) -> list[str]:
    """The summaries of a request, as texts."""
    return [
        block.text
        for item in items
        if not item.entry and isinstance(item.message, User)
        for block in item.message.content
        if isinstance(block, Text) and block.text.startswith("<summary ")
    ]


def run(main: Callable[[], Any]) -> Any:
    return anyio.run(main)


MODEL = ModelInfo("scripted", "test", window=32_000)

"""What all shipped memories keep to: both loops, threads, cancellations, a store that can't be used."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import anyio
import anyio.to_thread
import pytest

from helpers_memories import KEY, ToolSession, turns, user
from helpers_tools import LOOPS, said
from perdure.contracts import MemoryContext, ToolOutput
from perdure.errors import PerdureError
from perdure.plugins.memories.graph.memory import GraphMemory
from perdure.plugins.memories.markdown.memory import MarkdownMemory
from perdure.plugins.memories.vector.memory import VectorMemory
from perdure.testing.lending import FakeRuntime

T = TypeVar("T")
FACTS = "<history>They met.</history><memory>- Ada leads.\n</memory>"
MEMORIES: dict[str, tuple[Any, dict[str, object], str]] = {
    "memory-graph": (GraphMemory, {"capture": True}, "[]"),
    "memory-markdown": (MarkdownMemory, {"bound": 2, "keep": 1}, FACTS),
    "memory-vector": (VectorMemory, {"auto_capture": True, "auto_recall": True}, ""),
}
FILES = {
    "memory-graph": "graph.sqlite",
    "memory-markdown": "markdown.sqlite",
    "memory-vector": "vector.sqlite",
}
CALLS: dict[str, tuple[str, Callable[[int], dict[str, str]]]] = {
    "memory-graph": ("memory_relate", lambda n: {"source": f"N{n}", "relation": "Uses", "target": "Rust"}),
    "memory-markdown": ("memory_search", lambda n: {"query": f"Ada {n}"}),
    "memory-vector": ("memory_store", lambda n: {"text": f"The number of room {n} is {n}"}),
}


class Threaded(FakeRuntime):
    """Blocking work runs in threads, as in production."""

    virtual = False

    async def run_blocking(self, work: Callable[[], T]) -> T:
        return await anyio.to_thread.run_sync(work)


def made(name: str, folder: Path) -> tuple[Any, FakeRuntime, MemoryContext]:
    make, settings, reply = MEMORIES[name]
    runtime = Threaded(folder / "store", settings, answer=lambda prompt, system: reply)
    (folder / "workspace").mkdir()
    return make(runtime), runtime, MemoryContext("main", KEY, folder / "workspace", runtime)


async def call(memory: Any, name: str, n: int, workspace: Path) -> ToolOutput:
    tool, arguments = CALLS[name]
    found = next(one for one in memory.tools() if one.spec.name == tool)
    output: ToolOutput = await found.run(arguments(n), ToolSession(workspace, call_id=f"call-{n}"))
    return output


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("name", MEMORIES)
def test_many_calls_at_once_in_threads_are_all_served(name: str, loop: str, tmp_path: Path) -> None:
    memory, runtime, context = made(name, tmp_path)

    async def one(n: int) -> None:
        assert not (await call(memory, name, n, context.workspace)).is_error
        await memory.capture(context, turns(1, first=n, words="I prefer number"))
        await memory.recall(context, "Ada N3 number room", 1_000)

    async def main() -> None:
        with anyio.fail_after(20):
            async with anyio.create_task_group() as group:
                for n in range(12):
                    group.start_soon(one, n)
            await memory.dispose()
            assert not (await call(memory, name, 3, context.workspace)).is_error  # opens again
            await memory.dispose()

    anyio.run(main, backend=loop)
    assert not [event for event, _ in runtime.logged if "not" in event]


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("name", MEMORIES)
def test_a_cancelled_call_leaves_a_memory_that_works(name: str, loop: str, tmp_path: Path) -> None:
    memory, _, context = made(name, tmp_path)

    async def work(n: int) -> None:
        await memory.capture(
            context, (*turns(2, first=2 * n, words="I prefer number"), user(f"x{n}", "I am x"))
        )
        await call(memory, name, n, context.workspace)
        await memory.recall(context, "Ada", 1_000)

    async def main() -> None:
        with anyio.fail_after(20):
            for n in range(8):
                async with anyio.create_task_group() as group:
                    group.start_soon(work, n)
                    for _ in range(n):
                        await anyio.lowlevel.checkpoint()
                    group.cancel_scope.cancel()
            await work(9)
            await memory.dispose()

    anyio.run(main, backend=loop)


@pytest.mark.parametrize("name", MEMORIES)
def test_a_store_that_is_no_database_is_told_in_one_line_and_left_as_it_is(name: str, tmp_path: Path) -> None:
    memory, runtime, context = made(name, tmp_path)
    path = runtime.store / FILES[name]
    path.write_bytes(b"not a database, but somebody's notes " * 200)
    before = path.read_bytes()

    async def main() -> None:
        (context.workspace / "MEMORY.md").write_text("- Ada 1 leads\n")
        output = await call(memory, name, 1, context.workspace)
        assert output.is_error
        assert (
            "graph.sqlite" in said(output)
            or "markdown.sqlite" in said(output)
            or "vector.sqlite" in said(output)
        )
        assert said(output).count("\n") == 0
        with pytest.raises(PerdureError):
            await memory.forget(context, "Ada")
        await memory.dispose()

    anyio.run(main)
    assert path.read_bytes() == before


@pytest.mark.parametrize("name", MEMORIES)
def test_making_a_memory_touches_no_disk(name: str, tmp_path: Path) -> None:
    _, runtime, _ = made(name, tmp_path)
    assert list(runtime.store.iterdir()) == []

"""Many sessions at once, in real threads, on both loops."""

from functools import partial

import anyio
import anyio.to_thread
import pytest

from helpers_memory_core import Notes
from perdure.plugins.memories.core.indexes import MOST, Indexes
from perdure.testing.lending import FakeRuntime


class Threads(FakeRuntime):
    """Blocking work runs in threads, as in production."""

    virtual = False

    async def run_blocking(self, work):
        return await anyio.to_thread.run_sync(work)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_searches_and_writes_at_once_are_all_answered(tmp_path, backend):
    async def run():
        notes = Notes(tmp_path, runtime=Threads(tmp_path / "store"))
        notes.write("MEMORY.md", "- The port is 5432.\n")
        told = []

        async def session(number):
            notes.write(f"memory/2026-01-{number + 1:02}.md", f"Session {number} saw the harbour.\n")
            told.append(await notes.snippets("port", session=f"agent:a{number % 3}:cli:dm:{number}"))

        async with anyio.create_task_group() as tasks:
            for number in range(12):
                tasks.start_soon(session, number)
        assert len(told) == 12
        assert all("- The port is 5432." in each for each in told)
        with anyio.move_on_after(0.001):
            await notes.snippets("harbour")  # a search that nobody waits for any more
        assert len(await notes.search("harbour", maxResults=20)) > 0
        await notes.memory.dispose()

    anyio.run(run, backend=backend)


def test_a_bounded_number_of_indexes_is_open(tmp_path):
    indexes = Indexes(tmp_path, "bit", virtual=True)
    for number in range(MOST + 5):
        indexes.use(f"agent-{number}", lambda index: index.store.pending())
    assert len(indexes._open) == MOST
    assert indexes._turns == {}
    indexes.use("agent-0", partial(_search, tmp_path))
    indexes.close()
    assert indexes._open == {}


def _search(folder, index):
    return index.search(folder, "port", index_stages(), 0)


def index_stages():
    from perdure.plugins.search.stages import Stages

    return Stages()

"""Full disks, threads, two things at once, an end in the middle."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread

from helpers_kernel import each_loop
from helpers_lossless import Bench, bench, gist, run, turn
from helpers_messages import says, user
from perdure.edges import disk
from perdure.errors import Closed, StorageFailed
from perdure.kernel.run import Backend, backend_options
from perdure.plugins.engines.lossless.engine import Lossless
from perdure.plugins.engines.lossless.pieces import Node
from perdure.records import Item, Items, Summary
from perdure.testing.lending import FakeRuntime


async def grown(tmp_path: Path, turns: int = 16) -> Bench:
    b = bench(tmp_path)
    for n in range(turns):
        await b.say(*turn(n))
    return b


@pytest.mark.parametrize("op", ["open", "write", "truncate"])
def test_a_disk_that_is_full_stores_nothing_and_says_so(tmp_path: Path, op: str) -> None:
    async def main() -> None:
        b = await grown(tmp_path)
        before = await b.sound()

        def fault(what: str, path: str) -> None:
            if what == op and path.endswith(".jsonl"):
                raise OSError(errno.ENOSPC, "No space left on device", path)

        with disk.faults(fault), pytest.raises(StorageFailed, match="No space left"):
            await b.compact(force=True)
        assert await b.sound() == before
        assert (await b.compact(force=True)).compacted
        await b.engine.rebuild(b.context)
        await b.sound()

    run(main)


def test_a_full_disk_while_entries_come_loses_none_of_them(tmp_path: Path) -> None:
    async def main() -> None:
        b = await grown(tmp_path, 3)
        items = b.file(*turn(50))

        def fault(what: str, path: str) -> None:
            raise OSError(errno.ENOSPC, "No space left on device", path)

        with disk.faults(fault), pytest.raises(StorageFailed):
            await b.engine.ingest_batch(b.context, items)
        assert await b.sent() == b.runtime.stored
        assert await b.engine.ingest_batch(b.context, items) == len(items)
        await b.sound()

    run(main)


@pytest.mark.parametrize(
    "turn", [(), (Item("a", user("So?")), Item("b", says("Yes.")))], ids=["alone", "last"]
)
def test_a_history_that_ends_in_a_summary_is_read_to_its_end(tmp_path: Path, turn: tuple[Item, ...]) -> None:
    async def main() -> None:
        b, read = bench(tmp_path), []
        real = b.runtime.history

        async def history(after: str = "", limit: int = 1_000) -> Items:
            read.append(after)
            assert len(read) < 20, read
            return await real(after, limit)

        b.runtime.history = history  # type: ignore[method-assign]
        await b.say(*turn, Item("s", Summary("What was said before.")))
        assert (await b.engine.bootstrap(b.context)).cursor == ("b" if turn else "")
        assert await b.sound() == await b.view()

    run(main)


def test_a_torn_line_of_the_journal_costs_itself_only(tmp_path: Path) -> None:
    async def main() -> None:
        b = await grown(tmp_path)
        await b.compact(force=True)
        view = await b.sound()
        store = await b.engine.sessions.store()
        path = store.journal(b.id).path
        with path.open("ab") as file:
            file.write(b'{"crc":1,"node":{"id":"sum_torn')
        await b.engine.rebuild(b.context)
        assert await b.sound() == view
        for n in range(20, 36):
            await b.say(*turn(n))
        await b.compact(force=True)
        view = await b.sound()
        await b.engine.rebuild(b.context)
        assert await b.sound() == view

    run(main)


def test_a_request_during_a_compaction_fits_and_nothing_is_covered_twice(tmp_path: Path) -> None:
    async def main() -> None:
        b = await grown(tmp_path)
        seen = []

        async def complete(key: str, prompt: str, *, system: str = "", max_tokens: int = 0) -> str:
            await b.say(*turn(100 + len(seen), calls=3))
            seen.append(b.runtime.estimate(await b.sent()))
            return gist(prompt)

        b.runtime.complete = complete  # type: ignore[method-assign]
        await b.compact()
        assert seen
        assert max(seen) <= b.budget
        await b.sound()

    run(main)


def test_a_call_behind_the_engines_end_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        b = await grown(tmp_path, 2)
        await b.engine.dispose()
        await b.engine.dispose()
        with pytest.raises(Closed):
            await b.sent()

    run(main)


class Threaded(FakeRuntime):
    """Blocking work runs in threads, and a model takes its time."""

    virtual = False

    async def run_blocking(self, work: Callable[[], Any]) -> Any:
        return await to_thread.run_sync(work)

    async def complete(self, key: str, prompt: str, *, system: str = "", max_tokens: int = 2_000) -> str:
        await anyio.lowlevel.checkpoint()
        return gist(prompt)


@each_loop
def test_many_sessions_in_threads_at_once_stay_whole_and_apart(loop: Backend, tmp_path: Path) -> None:
    async def talk(engine: Lossless, b: Bench, name: str) -> None:
        for n in range(14):
            await b.say(*turn(n, f"{name} speaks of {name} only"))
            await b.sent()
            if n % 5 == 4:
                await b.compact(force=True)
        text = str(await b.sent())
        assert name in text
        assert not any(other in text for other in NAMES if other != name)

    async def main() -> None:
        first = bench(tmp_path)
        runtime = Threaded(tmp_path, first.runtime.settings)
        engine = Lossless(runtime)
        benches = [
            Bench(Threaded(tmp_path), engine, id=f"s-{name}", key=f"agent:main:cli:dm:{name}")
            for name in NAMES
        ]
        async with anyio.create_task_group() as group:
            for one, name in zip(benches, NAMES, strict=True):
                group.start_soon(talk, engine, one, name)
        for one in benches:
            assert any(isinstance(piece, Node) for piece in await one.sound())
        await engine.dispose()

    name, options = backend_options(loop)
    anyio.run(main, backend=name, backend_options=options)


NAMES = ("aardvark", "badger", "caracal", "dormouse")


@pytest.mark.parametrize("after", range(1, 40, 4))
def test_an_end_at_any_await_leaves_what_is_stored_whole(tmp_path: Path, after: int) -> None:
    """Cancelled at the n-th piece of blocking work, or the model's n-th answer."""

    async def main() -> None:
        b = await grown(tmp_path, 10)
        left = [after]
        with anyio.CancelScope() as scope:
            real = b.runtime.run_blocking

            async def run_blocking(work: Callable[[], Any]) -> Any:
                left[0] -= 1
                if left[0] == 0:
                    scope.cancel()
                await anyio.lowlevel.checkpoint()
                return await real(work)

            b.runtime.run_blocking = run_blocking  # type: ignore[method-assign]
            await b.compact(force=True)
            for n in range(20, 24):
                await b.say(*turn(n))
                await b.sent()
        b.runtime.run_blocking = real  # type: ignore[method-assign]
        await b.engine.bootstrap(b.context)
        await b.sent()
        await b.sound()
        view = await b.view()
        await b.engine.rebuild(b.context)
        assert await b.sound() == view

    run(main)

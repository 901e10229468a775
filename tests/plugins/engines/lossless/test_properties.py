"""Any history, in any order of delivery, compaction, branching and crash: the view stays whole."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from helpers_lossless import Bench, bench, entries_below, fail, gist, lose, run, turn
from perdure.errors import ModelError
from perdure.plugins.engines.lossless import rows
from perdure.plugins.engines.lossless.derive import derive
from perdure.plugins.engines.lossless.engine import Lossless
from perdure.plugins.engines.lossless.pieces import Node, Raw

MODELS: dict[str, Callable[[str, str], str]] = {
    "good": gist,
    "empty": lambda prompt, system: "",
    "echo": lambda prompt, system: prompt,
    "refusing": lambda prompt, system: "I'm sorry, but I can't help with that.",
    "skeleton": lambda prompt, system: "## Goal\n\n## Decisions\n- none\n",
    "cut": fail(ModelError("cut", "cut off")),
    "gone": fail(ModelError("auth", "no key")),
}
TURNS = st.tuples(st.just("turn"), st.integers(0, 3), st.sampled_from([20, 300, 3_000]))
OPS = st.one_of(
    TURNS,
    TURNS,
    st.tuples(st.just("assemble"), st.just(0), st.just(0)),
    st.tuples(st.just("compact"), st.sampled_from(sorted(MODELS)), st.booleans()),
    st.tuples(st.just("redeliver"), st.integers(0, 30), st.integers(1, 30)),
    st.tuples(st.just("branch"), st.integers(0, 40), st.integers(0, 2)),
    st.tuples(st.just("restart"), st.just(0), st.just(0)),
    st.tuples(st.just("crash"), st.integers(1, 60), st.booleans()),
    st.tuples(st.just("lose"), st.just(0), st.just(0)),
)


class Crash(BaseException):
    """The process is killed here."""


class World:
    """One session through a list of operations, with what must hold after each."""

    def __init__(self, folder: Path) -> None:
        self.b = bench(folder)
        self.b.budget = 2_500
        self.turns = 0

    async def do(self, op: tuple[str, Any, Any]) -> None:
        name, one, two = op
        await getattr(self, f"_{name}")(one, two)

    async def _turn(self, calls: int, size: int) -> None:
        self.turns += 1
        await self.b.say(*turn(self.turns, calls=calls, size=size))

    async def _assemble(self, *_: Any) -> None:
        await self.b.sent()

    async def _compact(self, model: str, force: bool) -> None:
        self.b.runtime.answer = MODELS[model]
        before = await self.b.view()
        done = await self.b.compact(force=force)
        assert done.compacted == (done.tokens_after < done.tokens_before)
        if model == "gone" and not force:
            assert not done.compacted
            assert await self.b.view() == before

    async def _redeliver(self, start: int, count: int) -> None:
        """Of what is on the path: a host delivers nothing else."""
        again = self.b.runtime.stored[start : start + count]
        assert await self.b.engine.ingest_batch(self.b.context, again) == 0

    async def _branch(self, back: int, calls: int) -> None:
        """The host goes back some entries, and on from there: nobody tells the engine."""
        stored = self.b.runtime.stored
        starts = [n for n, item in enumerate(stored) if item.entry.endswith("-u")]
        if len(starts) > 1:
            self.b.runtime.stored = stored[
                : max(n for n in starts if n <= max(starts[1], len(stored) - back))
            ]
        await self._turn(calls, 100)
        await self.b.sent()

    async def _restart(self, *_: Any) -> None:
        await self.b.reopened()
        await self.b.engine.bootstrap(self.b.context)

    async def _lose(self, *_: Any) -> None:
        view = await self.b.view()
        await self.b.engine.dispose()
        lose(self.b.runtime.store)
        await self._restart()
        assert await self.b.view() == view

    async def _crash(self, after: int, compacting: bool) -> None:
        """Killed at the n-th statement of a delivery or of a compaction."""
        store = await self.b.engine.sessions.store()
        left = [after]

        def trace(*_: Any) -> bool:
            left[0] -= 1
            if left[0] < 0:
                raise Crash
            return True

        with store.db.reading() as db:
            db.exec_trace = trace
        try:
            if compacting:
                self.b.runtime.answer = gist
                await self.b.compact(force=True)
            else:
                await self._turn(2, 300)
        except Crash:
            pass
        with store.db.reading() as db:
            db.exec_trace = None
        store.close()
        self.b.engine = Lossless(self.b.runtime)
        await self.b.engine.bootstrap(self.b.context)

    async def hold(self) -> None:
        """Each entry of the path is in the view or below a summary, once; it fits, or the floor is there."""
        await self.b.sent()
        view = await self.b.sound()
        store = await self.b.engine.sessions.store()
        with store.db.reading() as db:
            session = rows.session(db, self.b.id)
            if session is None:
                assert not self.b.runtime.stored
                return
            nodes = {node.id: node for node in rows.nodes(db, session.no)}
            assert derive(rows.raws(db, session.no), nodes.values()) == view
        stored = self.b.runtime.stored
        assert entries_below(view, nodes) == [item.entry for item in stored]
        made = await self.b.engine.assemble(self.b.context, stored)
        shown = {item.entry for item in made.messages if item.entry}
        assert shown == {piece.entry for piece in view if isinstance(piece, Raw)}
        assert made.messages == (await self.b.engine.assemble(self.b.context, stored)).messages
        assert sum(not item.entry for item in made.messages) == sum(isinstance(p, Node) for p in view)
        if self.b.runtime.estimate(made.messages) > self.b.budget:  # nothing but what is never covered
            assert len(view) <= 10 + sum(
                piece.role == "ToolResult" for piece in view if isinstance(piece, Raw)
            )


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(OPS, min_size=3, max_size=18))
def test_whatever_happens_each_entry_is_shown_or_stood_for_once(ops: list[tuple[str, Any, Any]]) -> None:
    async def main() -> None:
        with tempfile.TemporaryDirectory() as folder:
            world = World(Path(folder))
            for op in ops:
                await world.do(op)
                await world.hold()
            await world.b.engine.dispose()

    run(main)


@pytest.mark.parametrize("after", range(1, 60, 5))
def test_a_kill_inside_a_compaction_leaves_the_view_before_or_after_it(tmp_path: Path, after: int) -> None:
    async def main() -> None:
        world = World(tmp_path)
        for n in range(6):
            await world.do(("turn", 1 + n % 2, 300))
        await world.do(("crash", after, True))
        await world.hold()
        await world.do(("lose", 0, 0))
        await world.hold()

    run(main)


async def _two(b: Bench, other: Bench) -> None:
    for n in range(12):
        await b.say(*turn(n, f"the word of the first is aardvark {n}"))
        await other.say(*turn(n, f"the word of the second is zebra {n}"))


def test_sessions_of_one_store_never_see_each_other(tmp_path: Path) -> None:
    async def main() -> None:
        b = bench(tmp_path)
        other = Bench(b.runtime, b.engine, id="session-2", key="agent:main:cli:dm:other")
        b.runtime.stored = ()
        other.runtime = type(b.runtime)(tmp_path, b.runtime.settings, answer=gist)
        await _two(b, other)
        for one in (b, other):
            assert (await one.compact(force=True)).compacted
        assert "zebra" not in str(await b.sent())
        assert "aardvark" not in str(await other.sent())
        assert "Nothing" in await b.use("grep", pattern="zebra")
        assert "aardvark" in await b.use("grep", pattern="aardvark")
        assert "Nothing" in await b.use("grep", pattern="zebra", mode="regex")
        theirs = next(p.id for p in await other.view() if isinstance(p, Node))
        for tool in ("expand", "describe"):
            assert (await b.output(tool, id=theirs)).is_error
        await b.sound()
        await other.sound()
        assert await b.engine.forget(other.id)
        assert await other.view() == ()
        await b.sound()

    run(main)

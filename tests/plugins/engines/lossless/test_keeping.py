"""Nothing is lost: what was said is reachable, and the view is remade of history and journal alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from helpers_lossless import Bench, bench, entries_below, fail, files, lose, run, turn
from perdure.errors import ModelError
from perdure.plugins.engines.lossless import rows
from perdure.plugins.engines.lossless.pieces import Node
from perdure.plugins.engines.lossless.store import NAME


async def compacted(b: Bench, times: int) -> None:
    """So many compactions that made the view smaller, with turns between them."""
    n = done = 0
    while done < times:
        for _ in range(3):
            n += 1
            await b.say(*turn(n, calls=2))
            await b.sent()
        done += (await b.compact(force=True)).compacted
        assert n < 10 * times


async def reached(b: Bench) -> dict[str, str]:
    """Every message that the view's summaries lead to by the tools alone, as they tell it."""
    found: dict[str, str] = {}
    waiting = re.findall(r'<summary id="(\w+)"', str(await b.sent()))
    while waiting:
        id, after = waiting.pop(), ""
        while True:
            page = await b.use("expand", id=id, after=after)
            waiting += re.findall(r"^\[(sum_\w+)\]", page, re.M)
            found.update(dict(re.findall(r"^\[(t[\w-]+)\] ([^\n]*)", page, re.M)))
            more = re.search(rf'\[more: history_expand id="{id}" after="(\S+)"\]$', page)
            if more is None:
                break
            after = more[1]
    return found


def test_after_fifty_compactions_every_message_is_reachable_by_the_tools(tmp_path: Path) -> None:
    async def main() -> None:
        b = bench(tmp_path, condensed_sources=2, routine_depth=9)
        b.budget = 1_200
        await compacted(b, 50)
        view = await b.sound()
        assert max(piece.depth for piece in view if isinstance(piece, Node)) >= 3
        shown = {item.entry for item in await b.sent()}
        told = await reached(b)
        for item in b.runtime.stored:
            assert item.entry in shown or item.entry in told, item.entry
        for item in b.runtime.stored[::7]:
            whole = await b.use("describe", id=item.entry)
            assert all(getattr(block, "text", "") in whole for block in item.message.content)

    run(main)


@pytest.mark.parametrize("lost", ["database", "database and what one held in memory", "journal"])
def test_a_store_that_is_lost_is_made_again_with_the_same_view(tmp_path: Path, lost: str) -> None:
    async def main() -> None:
        b = bench(tmp_path)
        await compacted(b, 6)
        view, sent = await b.sound(), await b.sent()
        if lost == "journal":
            lose(tmp_path, "*.jsonl")
            assert {f.kind for f in await b.engine.check(b.id)} == {"journal"}
            await b.say(*turn(900))
            assert (await b.compact(force=True)).compacted  # writes it again, whole
            view, sent = await b.sound(), await b.sent()
        if lost != "database and what one held in memory":
            await b.engine.dispose()
        lose(tmp_path)
        if lost == "database and what one held in memory":
            await b.engine.dispose()
        b = await b.reopened()
        told = await b.engine.bootstrap(b.context)
        assert told.imported == len(b.runtime.stored)
        assert told.cursor == b.runtime.stored[-1].entry
        assert await b.sound() == view
        assert await b.sent() == sent

    run(main)


def test_a_damaged_database_is_set_aside_and_made_again(tmp_path: Path) -> None:
    async def main() -> None:
        b = bench(tmp_path)
        await compacted(b, 3)
        view = await b.sound()
        await b.engine.dispose()
        (tmp_path / NAME).write_bytes(b"no database at all" * 1000)
        b = await b.reopened()
        await b.engine.bootstrap(b.context)
        assert await b.sound() == view
        assert files(tmp_path, f"{NAME}.damaged-*")

    run(main)


def test_a_rebuild_by_command_gives_the_same_view(tmp_path: Path) -> None:
    async def main() -> None:
        b = bench(tmp_path)
        await compacted(b, 5)
        view = await b.sound()
        assert await b.engine.rebuild(b.context) == len(b.runtime.stored)
        assert await b.sound() == view

    run(main)


def test_digests_are_written_anew_once_a_model_answers(tmp_path: Path) -> None:
    async def main() -> None:
        b = bench(tmp_path, fail(ModelError("auth", "no key")))
        for n in range(20):
            await b.say(*turn(n))
        assert (await b.compact(force=True)).compacted
        assert {p.rung for p in await b.sound() if isinstance(p, Node)} == {"digest"}
        b.runtime.answer = lambda prompt, system: "The model tells what was done, and that it was done well."
        for n in range(20, 24):
            await b.say(*turn(n))
        await b.compact()
        view = await b.sound()
        assert any(p.rung == "normal" and p.replaces for p in view if isinstance(p, Node))
        await b.engine.rebuild(b.context)
        assert await b.sound() == view

    run(main)


def test_a_view_shows_or_stands_for_each_entry_once(tmp_path: Path) -> None:
    async def main() -> None:
        b = bench(tmp_path)
        await compacted(b, 8)
        store = await b.engine.sessions.store()
        with store.db.reading() as db:
            session = rows.session(db, b.id)
            assert session is not None
            nodes = {node.id: node for node in rows.nodes(db, session.no)}
        below = entries_below(await b.view(), nodes)
        assert below == [item.entry for item in b.runtime.stored]

    run(main)

"""Upgrade and downgrade: what a newer perdure wrote is refused and left as it is, what is older is read."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from helpers_host import KEY, Play, ask, hosted, real, said_by_users, session_path
from perdure.edges.index import VERSION
from perdure.edges.journal.form import Identity, header
from perdure.errors import NewerState, UnreadableFile
from perdure.kernel.clock import RealClock


async def one_life(folder: Path, text: str) -> None:
    async with hosted(folder, Play(), RealClock()) as host:
        assert (await ask(host, text)).stop == "stop"


def newer_shard(state: Path) -> None:
    record = json.loads((state / "shard.lock").read_bytes()) | {"v": 9}
    (state / "shard.lock").write_text(json.dumps(record).ljust(511) + "\n")


def newer_index(state: Path) -> None:
    with closing(sqlite3.connect(state / "index.sqlite")) as db:
        db.execute("pragma user_version = 9")


def newer_journal(state: Path) -> None:
    (state / "journal/00000001.wal").write_bytes(header(1, Identity("b", "v")).replace(b'"v": 1', b'"v": 9'))


@pytest.mark.parametrize("made", [newer_shard, newer_index, newer_journal])
def test_a_state_folder_of_a_newer_perdure_is_refused_and_not_changed(
    made: Callable[[Path], None], tmp_path: Path
) -> None:
    state = tmp_path / "state"

    async def main() -> None:
        await one_life(tmp_path, "one")
        made(state)
        before = {p: p.read_bytes() for p in state.rglob("*") if p.is_file() and "runtime.log" not in p.name}
        with pytest.raises(
            NewerState, match=rf"version 9.*up to (1|{VERSION}): update perdure, or restore"
        ) as told:
            await one_life(tmp_path, "two")
        assert "\n" not in str(told.value)
        after = {p: p.read_bytes() for p in before}
        if made is not newer_shard:  # who owned the folder last is written down all the same
            before.pop(state / "shard.lock"), after.pop(state / "shard.lock")
        assert after == before

    real(main)
    assert json.loads((state / "shard.lock").read_bytes())["clean"] is True


def test_a_session_of_a_newer_perdure_is_refused_alone(tmp_path: Path) -> None:
    async def main() -> None:
        await one_life(tmp_path, "one")
        path = session_path(tmp_path)
        path.write_bytes(path.read_bytes().replace(b'"perdure":{"v":1', b'"perdure":{"v":9'))
        before = path.read_bytes()
        async with hosted(tmp_path, Play(), RealClock()) as host:
            with pytest.raises(UnreadableFile, match="newer perdure"):
                await host.send(KEY, "two")
            assert (await ask(host, "elsewhere", key=f"{KEY}2")).stop == "stop"
        assert path.read_bytes() == before

    real(main)


def test_an_older_state_folder_is_read(tmp_path: Path) -> None:
    state = tmp_path / "state"

    async def main() -> None:
        await one_life(tmp_path, "one")
        record = json.loads((state / "shard.lock").read_bytes())
        del record["v"]
        (state / "shard.lock").write_text(json.dumps(record))
        with closing(sqlite3.connect(state / "index.sqlite")) as db:
            db.execute("pragma user_version = 0")
        (state / "journal").rmdir()
        await one_life(tmp_path, "two")

    real(main)
    assert said_by_users(session_path(tmp_path)) == ["one", "two"]

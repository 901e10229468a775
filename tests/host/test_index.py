"""The index is never the truth: a disk that takes none costs a warning, and no session."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers_host import KEY, Play, ask, hosted, real, session_path
from perdure.edges.index import SessionIndex
from perdure.edges.session.facts import Seen
from perdure.errors import StorageFailed
from perdure.kernel.clock import RealClock


def log_of(folder: Path) -> str:
    return (folder / "state" / "runtime.log").read_text()


def test_a_host_whose_index_cannot_be_opened_goes_on_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_args: object, **_more: object) -> None:
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error

    monkeypatch.setattr(sqlite3, "connect", refuse)

    async def main() -> None:
        async with hosted(tmp_path, Play(), RealClock()) as host:
            assert (await ask(host, "hello")).text == "ok 1"

    real(main)
    assert "hello" in session_path(tmp_path).read_text()
    warned = [line for line in log_of(tmp_path).splitlines() if "index.failed" in line]
    assert len(warned) == 1
    assert "make room" in warned[0]
    assert "warning" in warned[0]


def test_an_index_that_fails_later_costs_no_letter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object, **_more: object) -> Iterator[None]:
        raise StorageFailed("index.sqlite: the index can't be used (disk I/O error): make room")

    for name in ("put", "remember", "seen", "rebuild"):
        monkeypatch.setattr(SessionIndex, name, refuse)

    async def main() -> None:
        async with hosted(tmp_path, Play(), RealClock()) as host:
            assert host.upkeep.older("s", "anna", "m") is None
            host.upkeep.evicted("s", Seen("anna", "m", "e"))
            assert host.upkeep.older("s", "anna", "m") == "e"
            assert (await ask(host, "hello", KEY)).text == "ok 1"
            await host.upkeep.flush()

    real(main)
    assert "index.failed" in log_of(tmp_path)
    assert "job" not in log_of(tmp_path)


def test_an_empty_session_file_is_begun_by_the_first_message(tmp_path: Path) -> None:
    path = tmp_path / "state" / "sessions" / "main" / "agent+main+cli+dm+local.jsonl"
    path.parent.mkdir(parents=True)
    path.touch()

    async def main() -> None:
        async with hosted(tmp_path, Play(), RealClock()) as host:
            assert (await ask(host, "hello")).text == "ok 1"

    real(main)
    assert path.read_bytes().startswith(b'{"type":"session"')

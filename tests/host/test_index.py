"""The index is never the truth: a disk that takes none costs a warning, and no session."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from helpers_host import KEY, Gate, Play, ask, hosted, real, said_by_users, session_path
from perdure.edges.index import SessionIndex
from perdure.edges.models.reply import ScriptedReply, say
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


@pytest.mark.parametrize("kept", ["as it was left", "lost"])
@pytest.mark.parametrize("surveyed", [4 * 1024 * 1024, 0])
def test_letters_left_waiting_by_a_clean_close_are_answered_after_the_next_start(
    kept: str, surveyed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.actors.upkeep.SURVEYED", surveyed)  # 0: as if the file were huge
    monkeypatch.setattr("perdure.host.DRAIN", 0.0)
    index = tmp_path / "state" / "index.sqlite"

    async def main() -> None:
        clock = RealClock()
        gate = Gate(clock)
        play = Play(gate)
        async with hosted(tmp_path, play, clock) as host:
            await host.send(KEY, "first")
            await gate.arrived()
            await host.send(KEY, "second")
        assert len(play.bodies[KEY]) == 1
        if kept == "lost":
            index.unlink()
        answered = clock.waiter("an answer")
        play = Play(say_and_tell(answered.set))
        async with hosted(tmp_path, play, clock):
            await clock.wait(answered, 20)

    real(main)
    assert said_by_users(session_path(tmp_path)) == ["first", "second"]


def say_and_tell(tell: Callable[[], None]) -> Callable[..., ScriptedReply]:
    def answer(_body: object, _request: object) -> ScriptedReply:
        tell()
        return say("late, but here")

    return answer

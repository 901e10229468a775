"""The index is never the truth: a disk that takes none costs a warning, and no session."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from msgspec.structs import replace

from helpers_host import KEY, Gate, Play, ask, hosted, real, said_by_users, session_path
from perdure.edges.index import Row, SessionIndex
from perdure.edges.models.reply import ScriptedReply, say
from perdure.edges.placement import LocalPlacement
from perdure.edges.session.facts import Seen
from perdure.errors import StorageFailed
from perdure.kernel.clock import RealClock

HEAD = (
    b'{"type":"session","version":3,"id":"s","timestamp":"2026-01-05T08:00:00.000Z","cwd":"/w"}\n'
    b'{"type":"message","id":"a","parentId":null,"timestamp":"2026-01-05T08:00:00.000Z",'
    b'"message":{"role":"assistant","content":[],"stopReason":"stop"}}\n'
)


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
    monkeypatch.setattr("perdure.hosting.running.DRAIN", 0.0)
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


@pytest.mark.parametrize("broken", ["next_timer", "unfinished"])
def test_an_index_that_fails_at_the_start_is_tried_again_until_who_waits_is_answered(
    broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.hosting.running.DRAIN", 0.0)
    monkeypatch.setattr("perdure.actors.upkeep.BEGIN_AGAIN", 0.001)
    works, failures = getattr(SessionIndex, broken), [StorageFailed("no room"), OSError("no disk")]

    def fails(index: SessionIndex) -> Any:
        if failures:
            raise failures.pop()
        return works(index)

    async def main() -> None:
        clock = RealClock()
        gate = Gate(clock)
        async with hosted(tmp_path, Play(gate), clock) as host:
            await host.send(KEY, "first")
            await gate.arrived()
        monkeypatch.setattr(SessionIndex, broken, fails)
        answered = clock.waiter("an answer")
        async with hosted(tmp_path, Play(say_and_tell(answered.set)), clock):
            await clock.wait(answered, 20)

    real(main)
    assert not failures


def test_a_start_with_5000_sessions_opens_none_of_their_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "state" / "sessions" / "main"
    root.mkdir(parents=True)
    index = SessionIndex(tmp_path / "state" / "index.sqlite", sync=False)
    rows = []
    for n in range(5_000):
        path = root / f"agent+main+cli+dm+{n}.jsonl"
        path.write_bytes(HEAD)
        rows.append(Row(f"agent:main:cli:dm:{n}", str(path), len(HEAD), path.stat().st_mtime_ns, entries=0))
    index.rebuild(rows)
    index.put(replace(rows[7], pending=1))
    index.close()
    LocalPlacement(tmp_path / "state", wall_ms=1).close(clean=True)
    opened: list[str] = []
    really = os.open

    def noting(path: Any, *arguments: Any, **more: Any) -> int:
        opened.extend([str(path)] if str(path).endswith(".jsonl") else [])
        return really(path, *arguments, **more)

    monkeypatch.setattr(os, "open", noting)

    async def main() -> None:
        async with hosted(tmp_path, Play(), RealClock()) as host:
            assert (await ask(host, "hello", "agent:main:cli:dm:3")).text == "ok 1"

    real(main)
    touched = {name.rpartition("+")[2] for name in opened}
    assert touched <= {"3.jsonl", "7.jsonl"}, len(touched)


def test_an_index_that_is_scanned_anew_holds_nobody_up_and_keeps_what_is_newer(tmp_path: Path) -> None:
    index = SessionIndex(tmp_path / "index.sqlite", sync=False)
    index.remember("s", [Seen("anna", "m", "e")])
    index.put(Row("gone", "/gone", 1, 1))

    def scan() -> Iterator[Row]:
        yield Row("a", "/a", 1, 1, entries=1)
        done = threading.Thread(target=index.put, args=(Row("a", "/a", 2, 2, entries=2),))
        done.start()
        done.join(5)  # a lock held over the scan would keep it waiting
        assert not done.is_alive()
        assert index.seen("s", "anna", "m") == "e"
        yield Row("b", "/b", 1, 1)

    index.rebuild(scan())
    assert {row.key: row.entries for row in index.rows()} == {"a": 2, "b": None}
    index.close()


def test_old_message_ids_are_known_again_after_the_index_was_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in ("actors.upkeep", "actors.transcript", "edges.session.facts", "edges.session.fold"):
        monkeypatch.setattr(f"perdure.{place}.RECENT_IDS", 3)

    async def main() -> None:
        async with hosted(tmp_path, Play(), RealClock()) as host:
            for n in range(8):
                await ask(host, f"message {n} {'x' * 100}", mid=f"m{n}")
        (tmp_path / "state" / "index.sqlite").unlink()
        play = Play()
        async with hosted(tmp_path, play, RealClock()) as host:
            index = host.upkeep.index
            assert index is not None
            with anyio.fail_after(20):
                while index.fresh:  # a thread of the host's scans it
                    await anyio.lowlevel.checkpoint()
            for n in range(8):
                assert (await host.send(KEY, f"message {n} {'x' * 100}", mid=f"m{n}")).receipt.repeated
            assert not play.bodies[KEY]

    real(main)


def say_and_tell(tell: Callable[[], None]) -> Callable[..., ScriptedReply]:
    def answer(_body: object, _request: object) -> ScriptedReply:
        tell()
        return say("late, but here")

    return answer


def test_without_any_index_letters_that_wait_are_found_in_the_files_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_args: object, **_more: object) -> None:
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error

    monkeypatch.setattr(sqlite3, "connect", refuse)
    play = Play()

    async def leave() -> None:
        gate = Gate(RealClock())
        async with hosted(tmp_path, Play(gate), RealClock()) as host:
            await host.send(KEY, "first")
            await gate.arrived()
            await host.send(KEY, "second")
            host.kill()
        for lock in (tmp_path / "state").rglob("*.lock"):
            if lock.name.startswith("agent"):
                lock.unlink()  # nothing beside the file says that it was awake

    async def take_up() -> None:
        async with hosted(tmp_path, play, RealClock()):
            with anyio.fail_after(20):
                while not play.bodies[KEY]:  # noqa: ASYNC110
                    await anyio.sleep(0.01)

    real(leave)
    real(take_up)
    assert said_by_users(session_path(tmp_path))[:1] == ["first"]

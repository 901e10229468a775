"""Durability `power`: nothing is acknowledged before it is on the disk, on both loops and by a sick disk."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from helpers_host import KEY, Play, ask, calls, hosted, real, said_by_users, session_path, tells, virtual
from helpers_kernel import each_loop
from helpers_power import Platter
from perdure.edges import disk
from perdure.edges.journal.form import Identity
from perdure.edges.journal.replay import recover
from perdure.edges.journal.segment import segments
from perdure.edges.models.reply import say
from perdure.edges.settings import HostSettings, Settings
from perdure.errors import StorageFailed
from perdure.kernel.clock import RealClock
from perdure.kernel.io import IoPolicy
from perdure.kernel.run import Backend
from perdure.kernel.virtual import VirtualClock

POWER = Settings(host=HostSettings(durability="power", journal_mb=1))


@each_loop
def test_a_receipt_and_a_reply_come_after_the_sync_that_holds_them(loop: Backend, tmp_path: Path) -> None:
    synced: list[bytes] = []

    def watched(op: str, path: str) -> None:
        if op == "fsync" and path.endswith(".wal"):
            synced.append(Path(path).read_bytes())

    async def main() -> None:
        play = Play(calls("look", text="let me see"), say("it is done"))

        async def looked(arguments: Any, context: Any) -> str:
            assert any(b"let me see" in data for data in synced)  # the call is durable before the tool runs
            return "found"

        tool = tells("look")
        tool._fn = looked
        clock = RealClock()
        async with hosted(
            tmp_path, play, clock, tools=[tool], settings=POWER, io=IoPolicy(False, before=watched)
        ) as host:
            sent = await host.send(KEY, "please look")
            assert any(b"please look" in data for data in synced)
            assert (await sent.reply(20)).text == "it is done"
            assert any(b"it is done" in data for data in synced)
            assert host.status()["storage"]["durability"] == "power"
        assert not segments(tmp_path / "state" / "journal")  # left clean: nothing to replay

    real(main, loop)


@each_loop
def test_what_was_answered_is_there_after_the_power_went(loop: Backend, tmp_path: Path) -> None:
    platter = Platter(tmp_path / "state")

    async def main(clock: VirtualClock) -> None:
        io = IoPolicy(True, sync=True, before=platter)
        async with hosted(tmp_path, Play(), clock, settings=POWER, io=io) as host:
            for n in range(5):
                await ask(host, f"question {n}")
                await ask(host, f"other {n}", key=f"{KEY}2")
            before = session_path(tmp_path).read_bytes()
            host.kill()
        assert platter.cut_power(random.Random(1)).restored
        assert session_path(tmp_path).read_bytes() == before
        async with hosted(tmp_path, Play(), clock, settings=POWER, io=IoPolicy(True, sync=True)) as host:
            assert (await ask(host, "again")).stop == "stop"

    virtual(main, loop)
    assert said_by_users(session_path(tmp_path)) == [*(f"question {n}" for n in range(5)), "again"]


@contextmanager
def failing() -> Iterator[None]:
    """Syncs of the journal fail until the block ends."""

    def fault(op: str, path: str) -> None:
        if op == "fsync" and path.endswith(".wal"):
            raise OSError(5, "Input/output error")

    with disk.faults(fault):
        yield


@each_loop
def test_a_journal_that_fails_refuses_all_until_it_works_again(loop: Backend, tmp_path: Path) -> None:
    platter = Platter(tmp_path / "state")

    async def main(clock: VirtualClock) -> None:
        io = IoPolicy(True, sync=True, before=platter)
        async with hosted(tmp_path, Play(), clock, settings=POWER, io=io) as host:
            await ask(host, "one")
            with failing():
                with pytest.raises(StorageFailed, match="journal can't be synced"):
                    await host.send(KEY, "two", mid="m2")
                with pytest.raises(StorageFailed, match="journal"):  # nobody is acknowledged meanwhile
                    await host.send(f"{KEY}2", "three")
                assert "journal" in host.status()["storage"]["failed"]
            await clock.sleep(3)
            assert host.status()["storage"]["failed"] == ""
            sent = await host.send(KEY, "two", mid="m2")  # it is in the file: answered from the record
            assert sent.receipt.repeated
            assert (await ask(host, "four")).stop == "stop"
            host.kill()
        platter.cut_power(random.Random(2))

    virtual(main, loop)
    assert said_by_users(session_path(tmp_path)) == ["one", "two", "four"]


def test_one_failed_sync_costs_a_descriptor_and_nobody_notices(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, Play(), clock, settings=POWER, io=IoPolicy(True, sync=True)) as host:
            await ask(host, "one")
            failed = []

            def once(op: str, path: str) -> None:
                if op == "fsync" and path.endswith(".wal") and not failed:
                    failed.append(path)
                    raise OSError(5, "Input/output error")

            with disk.faults(once):
                assert (await ask(host, "two")).stop == "stop"
            assert failed
            assert host.status()["storage"]["failures"] == 1
            host.kill()
        # same boot, same volume: what the page cache shows is written again all the same
        found = recover(tmp_path / "state/journal", tmp_path / "state", Identity("b", "v"))
        assert found.replayed

    virtual(main)
    assert said_by_users(session_path(tmp_path)) == ["one", "two"]


def test_a_new_session_an_undo_and_a_truncation_leave_nothing_to_put_back_wrongly(tmp_path: Path) -> None:
    words = "words upon words that fill a window " * 60

    async def main(clock: VirtualClock) -> None:
        play = Play(*[say(f"answer {n} {words}") for n in range(6)])
        io = IoPolicy(True, sync=True)
        async with hosted(tmp_path, play, clock, settings=POWER, io=io, truncate_after=1_024) as host:
            for n in range(4):
                await ask(host, f"question {n}")
            await host.command(KEY, "/compact")
            await clock.sleep(60)
            await ask(host, "after the truncation")
            await host.command(KEY, "/new")
            await ask(host, "in the new file")
            state = tmp_path / "state"
            before = {path: path.read_bytes() for path in state.glob("sessions/**/*.jsonl")}
            host.kill()
        found = recover(state / "journal", state, Identity("another boot", ""))
        assert found.replayed
        assert not found.aside
        assert {path: path.read_bytes() for path in before} == before
        assert set(state.glob("sessions/**/*.jsonl")) == set(before)

    virtual(main)


def test_a_killed_process_on_the_same_boot_replays_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        for text in ("one", "two"):
            async with hosted(tmp_path, Play(), RealClock(), settings=POWER) as host:
                await ask(host, text)
                host.kill()
        log = (tmp_path / "state" / "runtime.log").read_text()
        assert "journal.replayed" not in log
        assert "journal.put_aside" not in log

    real(main)
    assert said_by_users(session_path(tmp_path)) == ["one", "two"]


def test_under_virtual_time_power_syncs_nothing_and_needs_no_thread(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, Play(), clock, settings=POWER) as host:
            await ask(host, "one")
            assert host.status()["storage"]["durability"] == "process"
        assert not segments(tmp_path / "state" / "journal")

    virtual(main)


@each_loop
def test_many_writers_share_a_sync(loop: Backend, tmp_path: Path) -> None:
    async def main() -> None:
        async with hosted(tmp_path, Play(), RealClock(), settings=POWER) as host:
            async with anyio.create_task_group() as group:
                for n in range(40):
                    group.start_soon(ask, host, "hello", f"{KEY}{n}")
            told = host.status()["storage"]
            assert told["records"] > 1.5 * told["batches"]

    real(main, loop)


@each_loop
def test_answers_come_in_the_order_in_which_they_were_asked_for(loop: Backend, tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        io = IoPolicy(True, sync=True)
        async with hosted(tmp_path, Play(), clock, settings=POWER, io=io) as host:
            await ask(host, "one")
            durable, journal, told = host.durable, host.durable.journal, []
            assert journal is not None
            for n in range(6):
                journal.barrier(f"{tmp_path}/state/x{n}", sync=False)
                durable.after(lambda n=n: told.append(n), lambda error: told.append(-1))
            assert told == []
            await clock.sleep(1)
            durable.after(lambda: told.append(6), lambda error: told.append(-1))  # nothing is owed: at once
            assert told == list(range(7))

    virtual(main, loop)


@each_loop
def test_a_timer_comes_once_and_breaks_nothing_before_its_letter_is_durable(
    loop: Backend, tmp_path: Path
) -> None:
    async def main(clock: VirtualClock) -> None:
        io = IoPolicy(True, sync=True)
        async with hosted(tmp_path, Play(), clock, settings=POWER, io=io) as host:
            await host.schedule(KEY, "water the garden", every="1h")
            await clock.sleep(2 * 3_600 + 60)
            status = host.status()
            assert (status["timers"]["fired"], status["totals"]["crashes"]) == (2, 0)
        assert said_by_users(session_path(tmp_path)) == ["water the garden"] * 2

    virtual(main, loop)

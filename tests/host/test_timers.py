"""Schedules outlive the host, come once for each instant, and cost a sleeping session nothing."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from helpers_host import (
    KEY,
    START,
    Gate,
    Play,
    ask,
    hosted,
    messages,
    real,
    said_by_users,
    session_path,
    text_of,
    virtual,
)
from perdure.edges.models.reply import fail, say
from perdure.edges.settings import ModelSettings, Settings
from perdure.edges.settings_timers import ScheduleSettings, TimerSettings
from perdure.errors import ConfigError, UsageError
from perdure.kernel.clock import RealClock
from perdure.kernel.run import Backend
from perdure.kernel.virtual import VirtualClock

HOUR = 3_600.0
LOOPS: tuple[Backend, ...] = ("asyncio", "trio")


class Set(VirtualClock):
    """A clock that somebody sets: `jump` moves the wall's time alone."""

    def __init__(self, seed: int = 0, start: int = START) -> None:
        super().__init__(seed, start)
        self.steady = False

    def jump(self, seconds: float) -> None:
        self.start_ms += int(seconds * 1000)


def log(folder: Path, event: str) -> list[dict[str, Any]]:
    rows = (folder / "state" / "runtime.log").read_text().splitlines()
    return [row for row in map(json.loads, rows) if row["event"] == event]


@pytest.mark.parametrize("loop", LOOPS)
def test_a_schedule_comes_at_each_instant_and_the_agent_answers(tmp_path: Path, loop: Backend) -> None:
    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, Play(), clock) as host:
            made = await host.schedule(KEY, "look at the garden", every="4h")
            assert made.next == START + 4 * 3_600_000
            await clock.sleep(13 * HOUR)
            assert [s.next for s in await host.schedules(KEY)] == [START + 16 * 3_600_000]
            await host.unschedule(KEY, made.id)
            await clock.sleep(13 * HOUR)

    virtual(main, loop)
    assert said_by_users(session_path(tmp_path)) == ["look at the garden"] * 3
    assert len(log(tmp_path, "timer.fired")) == 3


def test_after_a_stop_one_missed_instant_is_made_up_for_and_the_next_lies_ahead(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, Play(), clock) as host:
            await host.schedule(KEY, "once", every="4h")
            await host.schedule(KEY, "not at all", every="4h", catch_up="skip")
        await clock.sleep(13 * HOUR)
        async with hosted(tmp_path, Play(), clock) as host:
            await clock.sleep(60)
            assert {s.next for s in await host.schedules(KEY)} == {START + 16 * 3_600_000}

    virtual(main)
    assert said_by_users(session_path(tmp_path)) == ["once"]
    assert len(log(tmp_path, "timer.skipped")) == 1


def test_a_kill_around_an_instant_neither_loses_nor_repeats_it(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        for begun in range(6):
            play = Play()
            host = await hosted(tmp_path, play, clock).__aenter__()
            if not begun:
                await host.schedule(KEY, "tick", every="1h")
            gate = Gate(clock)
            play.then(gate)
            await clock.sleep(HOUR)
            await gate.arrived()
            host.kill()
            await host.__aexit__(None, None, None)
        async with hosted(tmp_path, Play(), clock):
            await clock.sleep(60)

    virtual(main)
    assert said_by_users(session_path(tmp_path)) == ["tick"] * 6


def test_a_clock_set_back_repeats_nothing_and_one_set_forward_makes_up_for_one(tmp_path: Path) -> None:
    clock = Set()

    async def main() -> None:
        async with hosted(tmp_path, Play(), clock) as host:
            await host.schedule(KEY, "tick", every="4h")
            await clock.sleep(4 * HOUR + 120)
            assert len(said_by_users(session_path(tmp_path))) == 1
            clock.jump(-3600)
            await clock.sleep(2 * HOUR)
            assert len(said_by_users(session_path(tmp_path))) == 1
            clock.jump(13 * 3600)
            await clock.sleep(120)
            assert len(said_by_users(session_path(tmp_path))) == 2
            (row,) = await host.schedules(KEY)
            assert 0 < row.next - clock.wall_ms() <= 4 * 3_600_000
            clock.jump(-3650 * 86400)  # it was ten years ahead
            await clock.sleep(120)
            (row,) = await host.schedules(KEY)
            assert 0 < row.next - clock.wall_ms() <= 4 * 3_600_000
            assert host.status()["timers"]["clock_jumps"] == 3

    from perdure.kernel.run import run

    run(lambda _kernel: main(), backend="asyncio", clock=clock)


def test_a_one_time_schedule_is_over_when_it_has_come(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, Play(), clock) as host:
            await host.schedule(KEY, "now", at="2026-01-05T09:00", timezone="UTC")
            with pytest.raises(UsageError, match="over already"):
                await host.schedule(KEY, "then", at="2026-01-05T07:00")
            await clock.sleep(2 * HOUR)
            assert await host.schedules(KEY) == ()
        async with hosted(tmp_path, Play(), clock) as host:
            assert await host.schedules(KEY) == ()
            await clock.sleep(30 * HOUR)

    virtual(main)
    assert said_by_users(session_path(tmp_path)) == ["now"]


def test_configured_schedules_follow_the_configuration(tmp_path: Path) -> None:
    def told(**more: Any) -> Settings:
        fields = {"session": KEY, "message": "hello", "cron": "0 9 * * *"} | more
        return Settings(schedules=(ScheduleSettings("daily", **fields),))

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, Play(), clock, settings=told()) as host:
            await clock.sleep(26 * HOUR)  # 9:00 of two days
            host.timers.reload(told(message="good morning"))
            await clock.sleep(24 * HOUR)
            host.timers.reload(told(cron="0 12 * * *"))
            await clock.sleep(60)
            (row,) = await host.schedules(KEY)
            assert row.timer.schedule.cron == "0 12 * * *"
        async with hosted(tmp_path, Play(), clock, settings=told(enabled=False)) as host:
            await clock.sleep(48 * HOUR)
            assert await host.schedules(KEY) == ()

    virtual(main)
    assert said_by_users(session_path(tmp_path)) == ["hello", "hello", "good morning"]


def test_an_isolated_schedule_has_a_session_of_its_own(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, Play(), clock) as host:
            made = await host.schedule(KEY, "report", every="1h", isolated=True, id="hourly")
            assert made.key == "agent:main:cron:hourly"
            await clock.sleep(HOUR + 60)

    virtual(main)
    assert said_by_users(session_path(tmp_path, "agent:main:cron:hourly")) == ["report"]
    assert not session_path(tmp_path).exists()


def test_timers_survive_new_compaction_and_sleep(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, Play(), clock, most_awake=1) as host:
            await host.schedule(KEY, "tick", every="1h", id="t")
            await ask(host, "a")
            await ask(host, "b")
            await host.command(KEY, "/compact")
            assert [s.id for s in await host.schedules(KEY)] == ["t"]
            await ask(host, "elsewhere", "agent:main:cli:dm:other")
            await clock.sleep(1)
            assert KEY not in host.directory.awake
            await clock.sleep(HOUR)
            assert said_by_users(session_path(tmp_path))[-1] == "tick"
            await host.command(KEY, "/new")
            await clock.sleep(HOUR)
            assert said_by_users(session_path(tmp_path)) == ["tick"]

    virtual(main)


def test_a_hundred_sessions_that_are_due_at_once_are_let_go_at_the_stated_rate(tmp_path: Path) -> None:
    settings = Settings(timers=TimerSettings(per_second=20))
    keys = [f"agent:main:cli:dm:{n}" for n in range(100)]

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, Play(), clock, settings=settings, most_awake=10) as host:
            for key in keys:
                await host.schedule(key, "all at once", cron="0 9 * * *")
            await clock.sleep(HOUR - 1)
            live = sum(entry[3].alive() for entry in clock._heap)
            assert live < 10  # one alarm, and what the host itself has
            fired: list[int] = []
            for _ in range(8):
                await clock.sleep(1)
                fired.append(host.timers.fired)
            assert all(done <= 20 * (n + 2) for n, done in enumerate(fired)), fired
            assert fired[-1] == 100

    virtual(main)
    assert all(said_by_users(session_path(tmp_path, key)) == ["all at once"] for key in keys)


def test_a_wrong_schedule_gets_one_clear_line(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, Play(), clock) as host:
            for wrong, told in (
                ({"cron": "61 * * * *"}, "Bad minute"),
                ({"every": "5s"}, "at least 60 s apart"),
                ({"every": "1h", "at": "2027-01-01T00:00"}, "exactly one"),
                ({"cron": "0 0 * * *", "timezone": "Mars/Phobos"}, "no time zone"),
            ):
                with pytest.raises(ConfigError, match=told):
                    await host.schedule(KEY, "x", **wrong)
            with pytest.raises(UsageError, match="session of its own"):
                await host.schedule(KEY, "x", every="1h", model="scripted/test")
            with pytest.raises(UsageError, match="no timer 'nothing'"):
                await host.unschedule(KEY, "nothing")

    virtual(main)


def test_a_turn_that_is_told_to_wait_long_ends_and_is_taken_up_by_a_timer(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        play = Play(fail("rate_limit", retry_after=1200.0))
        async with hosted(tmp_path, play, clock) as host:
            reply = await ask(host, "hello")
            assert reply.stop == "error"
            assert clock.now() < 10
        async with hosted(tmp_path, Play(say("at last")), clock) as host:
            await clock.sleep(1300)
            assert (await host.schedules(KEY)) == ()
            assert host.timers.fired == 1

    virtual(main)
    assert text_of(messages(session_path(tmp_path))[-1]["message"]) == "at last"
    assert said_by_users(session_path(tmp_path)) == ["hello"]


def test_who_writes_while_a_turn_waits_is_answered_and_the_timer_is_gone(
    tmp_path: Path,
) -> None:
    async def main(clock: VirtualClock) -> None:
        play = Play(fail("rate_limit", retry_after=1200.0), say("now"))
        async with hosted(tmp_path, play, clock) as host:
            await ask(host, "hello")
            assert len(await host.schedules(KEY)) == 1
            assert (await ask(host, "and?")).text == "now"
            assert await host.schedules(KEY) == ()
            await clock.sleep(2000)
            assert host.timers.fired == 0

    virtual(main)


@pytest.mark.parametrize("patience", [900.0, 40.0])
def test_who_writes_in_a_long_pause_of_a_provider_outlasts_it_and_asks_only_then(
    tmp_path: Path, patience: float
) -> None:
    async def main(clock: VirtualClock) -> None:
        play = Play(fail("rate_limit", retry_after=1200.0))
        settings = Settings(models=ModelSettings(queue_seconds=patience))
        async with hosted(tmp_path, play, clock, settings=settings) as host:
            await ask(host, "hello")
            began = clock.now()
            assert (await ask(host, "and?", "agent:main:cli:dm:other")).stop == "stop"
            assert min(300.0, patience / 2) <= clock.now() - began < patience

    virtual(main)


def test_the_index_knows_the_timers_of_sleeping_sessions_and_is_made_again_by_a_scan(tmp_path: Path) -> None:
    async def main() -> None:
        async with hosted(tmp_path, Play(), RealClock()) as host:
            await host.schedule(KEY, "later", every="4h")
        index = tmp_path / "state" / "index.sqlite"
        for again in range(2):
            async with hosted(tmp_path, Play(), RealClock()) as host:
                await host.upkeep.flush()
                for _ in range(200):
                    if host.timers.next is not None:
                        break
                    await host.clock.sleep(0.01)
                assert host.timers.next is not None
                assert KEY not in host.directory.awake
            if not again:
                for name in index.parent.glob("index.sqlite*"):
                    name.unlink()

    real(main)


@pytest.mark.parametrize("loop", LOOPS)
def test_by_the_machines_clock_a_sleeping_session_is_rung_from_the_index(
    tmp_path: Path, loop: Backend
) -> None:
    async def main() -> None:
        clock = RealClock()
        async with hosted(tmp_path, Play(), clock) as host:
            at = datetime.fromtimestamp(clock.wall_ms() / 1000 + 0.4, UTC)
            await host.schedule(KEY, "in a moment", at=at.isoformat())
        await clock.sleep(0.4)
        async with hosted(tmp_path, Play(), clock) as host:
            for _ in range(500):
                if host.totals.turns:
                    break
                await clock.sleep(0.01)
            assert host.timers.fired == 1
            assert await host.schedules(KEY) == ()

    real(main, loop)
    assert said_by_users(session_path(tmp_path)) == ["in a moment"]


def herd(tmp_path: Path, loop: Backend, many: int) -> list[tuple[float, str]]:
    """Who was rung when (seconds of the clock), of `many` that were due in a long stop."""
    from perdure.actors.timers import Timers
    from perdure.edges.log import open_log
    from perdure.kernel.io import IoPolicy
    from perdure.kernel.kernel import Kernel
    from perdure.kernel.run import run

    clock, rung = VirtualClock(0, START), list[tuple[float, str]]()

    async def ring(key: str, since: int) -> int:
        rung.append((clock.now(), key))
        return START + 86_400_000

    async def beat(key: str, due: int) -> None:
        raise AssertionError

    async def main(kernel: Kernel) -> None:
        log = open_log(tmp_path / f"{loop}.log", wall_ms=clock.wall_ms)
        timers = Timers(kernel, IoPolicy(True), None, log)
        timers.begin(Settings(), ring, beat, lambda: ())
        before = sum(entry[3].alive() for entry in clock._heap)
        for n in range(many):
            timers.note(f"agent:main:cli:dm:{n}", START - 3_600_000 + n % 7)
        assert sum(entry[3].alive() for entry in clock._heap) == before + 1  # the one alarm
        await clock.sleep(many / 50 + 2)
        log.close()

    run(main, backend=loop, clock=clock)
    return rung


def test_of_ten_thousand_that_are_due_after_a_long_stop_fifty_a_second_are_rung_by_one_alarm(
    tmp_path: Path,
) -> None:
    rung = herd(tmp_path, "asyncio", 10_000)
    assert len({key for _, key in rung}) == len(rung) == 10_000
    assert all(at == n // 50 for n, (at, _) in enumerate(rung))


def test_the_order_of_a_herd_is_the_same_on_both_loops(tmp_path: Path) -> None:
    assert herd(tmp_path, "asyncio", 300) == herd(tmp_path, "trio", 300)


def test_an_instant_that_only_waits_for_its_turn_in_a_herd_is_not_skipped(tmp_path: Path) -> None:
    settings = Settings(timers=TimerSettings(per_second=1))
    keys = [f"agent:main:cli:dm:{n}" for n in range(330)]

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, Play(), clock, settings=settings, most_awake=10) as host:
            for key in keys:
                await host.schedule(key, "now", cron="0 9 * * *", catch_up="skip")
            await clock.sleep(HOUR + 400)  # the last is rung more than five minutes after its instant
            assert (host.timers.fired, host.timers.skipped) == (330, 0)

    virtual(main)


def test_an_index_that_fails_while_it_is_asked_what_is_due_is_asked_again(tmp_path: Path) -> None:
    from perdure.actors.timers import Timers
    from perdure.edges.index import Row, SessionIndex
    from perdure.edges.log import open_log
    from perdure.errors import StorageFailed
    from perdure.kernel.io import IoPolicy
    from perdure.kernel.kernel import Kernel
    from perdure.kernel.run import run

    clock, rung = VirtualClock(0, START), list[str]()

    async def ring(key: str, since: int) -> None:
        rung.append(key)

    async def beat(key: str, due: int) -> None:
        raise AssertionError

    async def main(kernel: Kernel) -> None:
        log, index = (
            open_log(tmp_path / "log", wall_ms=clock.wall_ms),
            SessionIndex(tmp_path / "index.sqlite"),
        )
        index.put(Row(KEY, "a", 1, 1, next_timer=START - 1))
        works, index.due = index.due, broken  # type: ignore[method-assign]
        timers = Timers(kernel, IoPolicy(True), index, log)
        timers.begin(Settings(), ring, beat, lambda: ())
        timers.stored(START - 1)
        await clock.sleep(30)
        assert rung == []
        index.due = works  # type: ignore[method-assign]
        await clock.sleep(60)
        assert rung == [KEY]
        assert index.next_timer() is None
        index.close()
        log.close()

    def broken(now_ms: int, most: int = -1) -> list[Row]:
        raise StorageFailed("no")

    run(main, backend="asyncio", clock=clock)


def test_a_sender_that_would_pass_for_the_host_itself_is_refused(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, Play(), clock) as host:
            made = await host.schedule(KEY, "tick", every="1h")
            with pytest.raises(UsageError, match="the host's own"):
                await host.send(KEY, "x", sender="perdure.timer", mid=f"{made.id}@{made.next}")
            await clock.sleep(HOUR + 60)

    virtual(main)
    assert said_by_users(session_path(tmp_path)) == ["tick"]

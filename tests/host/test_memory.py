"""A host under a byte budget: who sleeps, who is refused, and that nothing a user sees depends on it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from helpers_host import Fn, Gate, Play, ask, hosted, session_path, virtual
from helpers_kernel import LOOPS
from perdure.actors.budgeting import Budget
from perdure.actors.memory import LOOKS
from perdure.actors.messages import Sleep
from perdure.actors.owning import owned
from perdure.edges.models.reply import ScriptedReply, call, say
from perdure.edges.settings import CompactionSettings, Settings
from perdure.errors import Busy
from perdure.host import Host
from perdure.kernel.virtual import VirtualClock
from perdure.records import ModelInfo

KB = 1024
MANY = [f"agent:main:cli:dm:{n}" for n in range(40)]
Main: TypeAlias = Callable[[Host, VirtualClock, Play], Awaitable[Any]]
Script: TypeAlias = list[tuple[str, bool, int]]
WORDS = "the pump in row seven leaks again and again "


def play(
    folder: Path,
    main: Callable[[Host, VirtualClock, Play], Awaitable[Any]],
    loop: Any = "asyncio",
    **options: Any,
) -> Any:
    cast = Play()

    async def within(clock: VirtualClock) -> Any:
        async with hosted(folder, cast, clock, **options) as host:
            return await main(host, clock, cast)

    return virtual(within, loop)


@pytest.mark.parametrize("loop", LOOPS)
def test_resting_sessions_sleep_as_soon_as_they_own_more_than_the_budget(tmp_path: Path, loop: Any) -> None:
    async def main(host: Host, clock: VirtualClock, cast: Play) -> None:
        memory, most = host.services.memory, 0
        for key in MANY:
            await ask(host, WORDS, key)
            await clock.sleep(1)
            most = max(most, memory.total)
        assert most <= 550 * KB
        assert 3 < len(host.directory.awake) < 20
        assert memory.total == sum(owned(session) for session in host.directory.awake.values())
        assert memory.shed == host.directory.sleeps > 20

    play(tmp_path, main, loop, budget=Budget(400 * KB, 150 * KB))


def test_shedding_goes_down_to_the_low_water_so_that_it_is_rare(tmp_path: Path) -> None:
    async def main(host: Host, clock: VirtualClock, cast: Play) -> None:
        seen = []
        for key in MANY:
            await ask(host, WORDS, key)
            await clock.sleep(1)
            seen.append(host.services.memory.shed)
        bursts = sum(b > a for a, b in pairwise(seen))
        assert 0 < bursts < seen[-1]

    play(tmp_path, main, budget=Budget(500 * KB, 150 * KB))


def test_a_session_at_work_is_never_put_to_sleep(tmp_path: Path) -> None:
    async def main(host: Host, clock: VirtualClock, cast: Play) -> None:
        gate = Gate(clock)
        cast.then(gate, key=MANY[0])
        sent = await host.send(MANY[0], "wait for it")
        await gate.arrived()
        for key in MANY[1:]:
            await ask(host, WORDS, key)
        assert host.directory.awake[MANY[0]].state == "running"
        gate.open()
        assert (await sent.reply(100)).text == "gated"

    play(tmp_path, main, budget=Budget(150 * KB, 100 * KB))


def test_where_all_work_a_message_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    async def main(host: Host, clock: VirtualClock, cast: Play) -> None:
        gates, sent = [], []
        for key in MANY:
            gate = Gate(clock)
            cast.then(gate, key=key)
            try:
                sent.append(await host.send(key, WORDS))
            except Busy as busy:
                refused, told = key, busy
                break
            await gate.arrived()
            gates.append(gate)
        assert 2 < len(gates) < 20
        assert told.retry_after == 5.0
        assert "memory is full" in str(told)
        assert not session_path(tmp_path, refused).exists()
        assert refused not in host.directory.awake
        assert await host.abort(MANY[0])  # control mail passes
        assert "running" in await host.command(MANY[1], "/status")
        assert host.status()["host"]["memory"]["refused"] == 1
        for gate in gates:
            gate.open()
        for each in sent[1:]:
            assert (await each.reply(1000)).text == "gated"
        assert (await ask(host, WORDS, refused)).stop == "stop"  # the same message, later

    play(tmp_path, main, budget=Budget(300 * KB, 300 * KB))


def test_a_host_that_holds_nothing_takes_a_message_whatever_the_budget_says(tmp_path: Path) -> None:
    async def main(host: Host, clock: VirtualClock, cast: Play) -> None:
        assert (await ask(host, WORDS * 200)).stop == "stop"

    play(tmp_path, main, budget=Budget(1, 1))


def test_what_is_refused_or_cancelled_on_its_way_leaves_no_bytes_on_the_books(tmp_path: Path) -> None:
    async def main(host: Host, clock: VirtualClock, cast: Play) -> None:
        memory = host.services.memory
        for key in MANY[:5]:
            await ask(host, WORDS, key)
        with pytest.raises(Exception, match="the message is about"):
            await host.send(MANY[0], WORDS * 30_000)
        assert memory.held == 0
        for key in MANY[:5]:
            done = clock.waiter("sleep")
            host.directory.ref(key).post(Sleep(done))
            assert await clock.wait(done, 10)
        assert (memory.total, memory.held, memory._going) == (0, 0, 0)

    play(tmp_path, main, budget=Budget(10_000 * KB, 100 * KB))


def test_resident_memory_beyond_the_line_sheds_more_and_is_logged_once(tmp_path: Path) -> None:
    async def main(host: Host, clock: VirtualClock, cast: Play) -> None:
        memory = host.services.memory
        rising = iter(range(2_000_000_000, 9_000_000_000, 100_000_000))
        memory._rss = lambda: next(rising)
        for _ in range(24):
            for key in MANY[:8]:
                await ask(host, "hello", key)
        assert memory.tight > 3
        assert memory.shed > 0
        assert memory.total <= 500 * KB
        tight, memory._rss = memory.tight, lambda: 1_900_000_000
        for _ in range(LOOKS):
            await ask(host, "hello", MANY[0])
        assert memory.tight == tight  # what is resident and free is used again: that is no alarm
        memory._rss = lambda: 100
        for _ in range(100 * LOOKS):
            memory._look()
        assert memory._limit == memory.budget.sessions  # all is well again
        assert (tmp_path / "state" / "runtime.log").read_text().count("memory.over") == 1

    play(tmp_path, main, budget=Budget(1_600 * KB, 100 * KB, 1_000_000_000))


def test_what_a_crash_left_awake_is_looked_at_little_by_little(tmp_path: Path) -> None:
    cast = Play()

    async def before(clock: VirtualClock) -> None:
        host = hosted(tmp_path, cast, clock)
        await host.__aenter__()
        for key in MANY:
            await ask(host, WORDS, key)
        host.kill()
        await host.__aexit__(None, None, None)

    async def after(clock: VirtualClock) -> None:
        async with hosted(tmp_path, cast, clock, budget=Budget(300 * KB, 100 * KB)) as host:
            await clock.sleep(60)
            assert host.services.memory.most < 700 * KB
            assert host.directory.wakings >= len(MANY)  # all were, in the end

    virtual(before)
    virtual(after)


def test_the_collector_is_left_alone_unless_it_is_asked_for(tmp_path: Path) -> None:
    async def main(host: Host, clock: VirtualClock, cast: Play) -> None:
        told = host.status()["host"]["gc"]
        assert told["frozen_objects"] == 0
        assert len(told["longest_ms"]) == 3

    play(tmp_path, main)


# --- the same prompts, whoever sleeps when -------------------------------------------------------------

INFO = ModelInfo("scripted", "test", window=6_000, cache_minimum=16)
KINDS = ("say", "tool", "tools", "long", "compact")
acts = st.lists(
    st.tuples(st.sampled_from(KINDS), st.booleans(), st.integers(0, 900)),
    min_size=3,
    max_size=14,
)


async def _live(
    folder: Path, clock: VirtualClock, script: list[tuple[str, bool, int]], sleeps: bool
) -> list[bytes]:
    cast, count = Play(), iter(range(10_000))

    async def pump(arguments: Any, context: Any) -> str:
        await clock.sleep(arguments["n"])  # two results at one instant would come in an order of their own
        return WORDS * arguments["n"]

    def tool(n: int) -> Any:
        return call("pump", f"toolu_{next(count):04}", n=n)

    replies = {
        "say": lambda: [say("short", latency=3.0)],
        "long": lambda: [say(WORDS * 60, latency=3.0)],
        "tool": lambda: [ScriptedReply((tool(30),), latency=3.0), say("done", latency=3.0)],
        "tools": lambda: [
            ScriptedReply((tool(90), tool(5)), latency=3.0),
            ScriptedReply((tool(20),), latency=3.0),
            say("done", latency=3.0),
        ],
    }
    tools, key = [Fn("pump", pump)], MANY[0]
    quiet = Settings(compaction=CompactionSettings(idle=False))  # nobody asleep compacts because it rests
    async with hosted(
        folder, cast, clock, info=INFO, tools=tools, truncate_after=3_000, settings=quiet
    ) as host:
        for n, (kind, sleep, pause) in enumerate(script):
            if kind == "compact":
                await host.command(key, "/compact")
            else:
                cast.then(*replies[kind](), key=key)
                await ask(host, f"{n} {WORDS}", key, mid=f"m{n}")
            await clock.sleep(pause)
            if sleep and sleeps:
                done = clock.waiter("sleep")
                host.directory.ref(key).post(Sleep(done))
                await clock.wait(done, 10)
    return cast.bodies[key]


@given(acts)
@settings(
    max_examples=12,
    deadline=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_a_session_that_sleeps_at_any_rest_sends_what_its_unslept_twin_sends(
    tmp_path_factory: pytest.TempPathFactory, script: Script
) -> None:
    bodies = []
    for sleeps in (False, True):
        folder = tmp_path_factory.mktemp("twin")
        bodies.append(virtual(lambda clock, f=folder, s=sleeps: _live(f, clock, script, s)))
    assert bodies[0] == bodies[1]

"""Reported faults of hosts with many sessions, each with the right outcome: memory, sleep, long logs."""

from __future__ import annotations

import gc
import os
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from helpers_host import (
    INFO,
    KEY,
    Play,
    ask,
    entries,
    hosted,
    real,
    said_by_users,
    session_path,
    virtual,
)
from helpers_kernel import LOOPS
from helpers_sessions import assistant, compaction, user, write
from perdure.actors.messages import Sleep
from perdure.edges.models.reply import say
from perdure.edges.session.history import History
from perdure.host import Host
from perdure.kernel.clock import RealClock
from perdure.kernel.io import IoPolicy
from perdure.kernel.virtual import VirtualClock

IDLE = 20_000
LAG = 0.25  # seconds: that a loop freezes for half a second and more is what was reported


class Slow(IoPolicy):
    """An I/O policy whose closing of files waits for a gate."""

    __slots__ = ("clock", "gates", "shut")

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock.virtual)
        self.clock, self.shut = clock, False
        self.gates: list[Any] = []

    async def run(self, fn: Callable[..., Any], *args: Any) -> Any:
        if self.shut and "owing" in getattr(fn, "keywords", {}):
            gate = self.clock.waiter("the disk")
            self.gates.append(gate)
            await self.clock.wait(gate, 86_400)
        return await super().run(fn, *args)


async def asleep(host: Host, clock: Any, key: str = KEY) -> bool:
    done = clock.waiter("sleep")
    host.directory.ref(key).post(Sleep(done))
    return bool(await clock.wait(done, 100))


@pytest.mark.parametrize("loop", LOOPS)
def test_rt20_what_comes_while_a_session_falls_asleep_is_handled_in_order_by_the_next(
    tmp_path: Path, loop: Any
) -> None:
    async def main(clock: VirtualClock) -> None:
        slow = Slow(clock)
        async with hosted(tmp_path, Play(), clock, io=slow) as host:
            await ask(host, "before")
            first, slow.shut = host.directory.awake[KEY], True
            host.directory.ref(KEY).post(Sleep())
            await clock.sleep(1)
            sent: list[Any] = []

            async def send(text: str) -> None:
                sent.append(await host.send(KEY, text, timeout=1_000))

            async with anyio.create_task_group() as group:
                for text in ("m1", "m2"):
                    host.kernel.start(text, send, text)
                    await clock.sleep(0.1)
                assert sent == []  # nothing is acknowledged behind the back of the one that leaves
                slow.shut = False
                slow.gates[0].set()
                await clock.sleep(20)
                group.cancel_scope.cancel()
            assert len(sent) == 2
            assert host.directory.awake[KEY] is not first
            assert said_by_users(session_path(tmp_path)) == ["before", "m1", "m2"]

    virtual(main, loop)


def test_rt20_a_session_that_can_not_leave_its_file_is_abandoned_and_writes_no_more(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        slow = Slow(clock)
        async with hosted(tmp_path, Play(), clock, io=slow) as host:
            await ask(host, "before")
            held, slow.shut = host.directory.awake[KEY].held, True
            host.directory.ref(KEY).post(Sleep())
            await clock.sleep(1)
            sent = await host.send(KEY, "after", timeout=100)
            assert (await sent.reply(100)).stop == "stop"
            assert clock.now() >= 30
            with pytest.raises(Exception, match="closed"):
                held.file.append((b'{"type":"custom"}\n',))
            slow.shut = False
            slow.gates[0].set()  # the job comes back from the dead, and disturbs nobody
            await ask(host, "later")
            assert session_path(tmp_path).with_suffix(".jsonl.lock").exists()
        assert said_by_users(session_path(tmp_path)) == ["before", "after", "later"]

    virtual(main)


def test_rt19_twenty_thousand_sleepers_cost_a_kilobyte_each_and_hold_nothing(tmp_path: Path) -> None:
    """Each has slept once: its reference, and what is known of its turns, is all that is left."""

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, Play(), clock) as host:
            keys = [f"agent:main:cli:dm:{n:05d}" for n in range(40)]
            for key in keys:
                await ask(host, "hello", key)
                assert await asleep(host, clock, key)
            before = host.kernel.stats(), len(os.listdir("/proc/self/fd"))
            template = host.directory._known[keys[0]]
            gc.collect()
            tracemalloc.start()
            for n in range(IDLE):
                key = f"agent:main:cli:dm:idle{n:05d}"
                host.directory.ref(key)
                host.directory._known[key] = type(template)(n, template.coordinator)
            gc.collect()
            each = tracemalloc.get_traced_memory()[0] / IDLE
            tracemalloc.stop()
            assert each <= 1_000
            after = host.kernel.stats(), len(os.listdir("/proc/self/fd"))
            assert (after[0].tasks, after[0].jobs, after[1]) == (before[0].tasks, before[0].jobs, before[1])
            assert not list((tmp_path / "state").rglob("*.lock"))[1:]  # the state folder's own at most
            assert len(host.services.memory._awake) == 0

    virtual(main)


def test_rt19_waking_takes_less_than_a_tenth_of_a_second_beside_others_that_work(tmp_path: Path) -> None:
    async def main() -> None:
        clock = RealClock()
        async with hosted(tmp_path, Play(), clock, accounting=False, most_awake=8) as host:
            keys = [f"agent:main:cli:dm:{n}" for n in range(60)]
            for key in keys:
                await ask(host, "hello", key)
            took = []
            for key in keys[:50]:
                busy = [await host.send(other, "work") for other in keys[50:54]]
                began = time.perf_counter()
                await host.send(key, "are you there?")
                took.append(time.perf_counter() - began)
                for each in busy:
                    await each.reply(10)
            took.sort()
            assert took[len(took) * 9 // 10] < 0.1  # of 50 on a loaded machine; the p99 is the bench's
            assert len(os.listdir("/proc/self/fd")) < 8 + 40

    real(main)


def test_rt08_a_large_session_is_opened_listed_searched_and_compacted_beside_a_loop_that_goes_on(
    tmp_path: Path,
) -> None:
    """Gaps of a task that ticks each few milliseconds, those of an idle loop in the same run subtracted."""
    path = session_path(tmp_path)
    path.parent.mkdir(parents=True)
    _long(path, 20_000, words=300)  # 40 MB
    for n in range(200):
        write(path.with_name(f"agent+main+cli+dm+x{n}.jsonl"), [user("00000001", None)])

    async def main() -> tuple[float, float]:
        gaps: list[float] = []

        async def tick() -> None:
            last = time.perf_counter()
            while True:
                await anyio.sleep(0.005)
                now = time.perf_counter()
                gaps.append(now - last)
                last = now

        async with (
            hosted(tmp_path, Play(), RealClock(), accounting=False) as host,
            anyio.create_task_group() as group,
        ):
            await ask(host, "warm", "agent:main:cli:dm:other")
            group.start_soon(tick)
            await anyio.sleep(0.3)
            control, began = max(gaps), len(gaps)
            await host.command(KEY, "/help")
            await ask(host, "append something")
            host.status(deep=True)
            await host.services.io.run(History(path).search, "entry 77", 5)
            await host.command(KEY, "/compact")
            await anyio.sleep(0.1)
            group.cancel_scope.cancel()
        return control, max(gaps[began:])

    tried = [real(main, seconds=60)]
    while tried[-1][1] - tried[-1][0] > LAG and len(tried) < 3:  # others use this machine, too
        tried.append(real(main, seconds=60))
    assert min(worst - control for control, worst in tried) < LAG


def test_rt21_sixty_thousand_entries_wake_like_two_thousand_with_the_same_tail(tmp_path: Path) -> None:
    """No length of the log stops a session: what waits, pins and decisions stand in its newest checkpoint."""
    sizes = {}
    for count in (2_000, 60_000):
        folder = tmp_path / str(count)
        path = session_path(folder)
        path.parent.mkdir(parents=True)
        _long(path, count)

        async def main(clock: VirtualClock, folder: Path = folder) -> tuple[list[float], int]:
            play, took = Play(), []
            play.then(*[say("a short answer")] * 20)
            async with hosted(folder, play, clock, info=INFO) as host:
                for n in range(7):
                    began = time.perf_counter()
                    await host.command(KEY, "/help")
                    took.append(time.perf_counter() - began)
                    if n == 0:
                        await host.command(KEY, "/pin never call before nine")
                    assert await asleep(host, clock)
                reply = await ask(host, "do you remember?")
                assert reply.stop == "stop"
                assert b"never call before nine" in play.bodies[KEY][-1]
                return sorted(took)[:4], len(host.directory.awake[KEY].transcript.items)

        sizes[count] = virtual(main)
    (short, few), (long, many) = sizes[2_000], sizes[60_000]
    assert few == many
    assert min(long) <= 1.5 * max(short)
    assert len(entries(session_path(tmp_path / "60000"))) > 60_000


def _long(path: Path, count: int, words: int = 20) -> None:
    """A session of so many entries whose last compaction keeps the same sixty."""
    lines: list[Any] = []
    parent: str | None = None
    for n in range(count):
        make = user if n % 2 == 0 else assistant
        lines.append(make(f"{n:08x}", parent, f"entry {n} " + "words " * words))
        parent = f"{n:08x}"
        if n == count - 60:
            lines.append(compaction("c0000000", parent, parent))
            parent = "c0000000"
    write(path, lines)

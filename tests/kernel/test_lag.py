"""The lag watch names who blocks the loop, and nobody for a pause of the whole process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import anyio
import pytest

from perdure.kernel.clock import RealClock
from perdure.kernel.kernel import Kernel
from perdure.kernel.lag import BEAT, CULPRITS, Blocked, LagWatch
from perdure.kernel.run import Backend, backend_options

LOOPS: tuple[Backend, ...] = ("asyncio", "uvloop", "trio")


def block(seconds: float = 0.35) -> None:
    time.sleep(seconds)


async def until(true: Callable[[], object]) -> None:
    """Look once a beat: the watch tells by a call, not by an event of the loop."""
    with anyio.fail_after(20):
        while not true():  # noqa: ASYNC110
            await anyio.sleep(BEAT)


async def blocking_job() -> None:
    block()


def on(loop: Backend, main: object) -> None:
    name, options = backend_options(loop)
    anyio.run(main, backend=name, backend_options=options)  # type: ignore[arg-type]


@pytest.mark.parametrize("loop", LOOPS)
def test_a_job_that_sleeps_on_the_loop_is_named_with_its_key_and_frames(loop: Backend) -> None:
    seen: list[Blocked] = []

    async def main() -> None:
        async with Kernel(RealClock()) as kernel:
            watch = LagWatch(seen.append, threshold=0.1)
            kernel.spawn("lag", watch.run)
            await anyio.sleep(2 * BEAT)
            kernel.start("agent:main:x#7", blocking_job)
            await until(lambda: seen)
            figures = watch.figures()
            assert figures.max >= 200
            assert figures.blocked >= 1

    on(loop, main)
    found = seen[0]
    assert found.kind == "python"
    assert 0.2 < found.seconds < 5
    assert found.owner == "agent:main:x#7"
    assert found.at.startswith("kernel/test_lag.py:")
    assert found.at.endswith(" block")
    assert any("blocking_job" in frame for frame in found.frames)
    assert not [t for t in threading.enumerate() if t.name == "perdure lag"]


def test_an_actor_and_a_timer_are_named_too() -> None:
    seen: list[Blocked] = []

    async def main() -> None:
        async with Kernel(RealClock()) as kernel:
            watch = LagWatch(seen.append, threshold=0.1)
            kernel.spawn("lag", watch.run)
            await anyio.sleep(2 * BEAT)
            kernel.actor("the actor", lambda _: block()).post("now")
            await until(lambda: seen)
            kernel.call_at(kernel.clock.now(), lambda: time.sleep(0.35))
            await until(lambda: len(seen) > 1)

    on("asyncio", main)
    assert [found.owner for found in seen] == ["the actor", "timer"]


CHILD = """
import sys, anyio
from perdure.kernel.lag import BEAT, LagWatch
seen = []
async def main():
    watch = LagWatch(lambda b: (seen.append(b), print(b.kind, flush=True)), threshold=0.3)
    async with anyio.create_task_group() as group:
        group.start_soon(watch.run)
        await anyio.sleep(2 * BEAT)
        print("ready", flush=True)
        with anyio.fail_after(20):
            while not watch.paused + watch.blocked:
                await anyio.sleep(BEAT)
        group.cancel_scope.cancel()
anyio.run(main)
"""


def test_a_process_that_was_stopped_blames_nobody() -> None:
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", CHILD], stdout=subprocess.PIPE, env=environ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        child.send_signal(signal.SIGSTOP)
        time.sleep(0.8)  # the stop itself is what is tested
        child.send_signal(signal.SIGCONT)
        assert child.stdout.readline() == b"paused\n"
        assert child.wait(20) == 0


def test_one_culprit_is_told_once_a_minute_and_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("perdure.kernel.lag.monotonic", lambda: now[0])
    seen: list[Blocked] = []
    watch = LagWatch(seen.append)
    for n in range(1, 8):
        now[0] = n * 10.0
        watch._tell(Blocked("python", 1.0, at="a.py:1 f"))
    assert [(found.at, found.again) for found in seen] == [("a.py:1 f", 0), ("a.py:1 f", 5)]
    for n in range(3 * CULPRITS):
        watch._tell(Blocked("python", 1.0, at=f"b.py:{n} g"))
    assert len(watch._told) <= CULPRITS + 1


def test_a_quiet_loop_has_figures_and_tells_nothing() -> None:
    seen: list[Blocked] = []

    async def main() -> None:
        watch = LagWatch(seen.append, threshold=30.0)
        assert watch.figures().p99 == 0
        async with anyio.create_task_group() as group:
            group.start_soon(watch.run)
            await anyio.sleep(6 * BEAT)
            group.cancel_scope.cancel()
        assert 0 <= watch.figures().p50 <= watch.figures().max

    on("asyncio", main)
    assert not seen

"""What a kernel does where the program around it is cancelled: every job ends, and is told."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import pytest

from perdure.kernel.clock import RealClock
from perdure.kernel.jobs import Job
from perdure.kernel.kernel import Kernel
from perdure.kernel.outcome import Cancelled, Outcome
from perdure.kernel.run import Backend, backend_options


def run(loop: Backend, main: object) -> None:
    name, options = backend_options(loop)
    anyio.run(main, backend=name, backend_options=options)  # type: ignore[arg-type]


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_a_job_given_to_a_pooled_task_as_the_program_is_cancelled_is_told_its_end(loop: Backend) -> None:
    ends: list[Outcome] = []

    def ended(_job: Job, outcome: Outcome) -> None:
        ends.append(outcome)

    async def main() -> None:
        with anyio.fail_after(5), anyio.CancelScope() as scope:
            async with Kernel(RealClock()) as kernel:
                first = kernel.start("first", anyio.lowlevel.checkpoint)
                while first.current or not kernel.stats().idle_tasks:
                    await anyio.lowlevel.checkpoint()
                scope.cancel()  # the idle task, too: it has not run yet, and is given a job
                kernel.start("second", anyio.sleep_forever, on_end=ended)
                await anyio.lowlevel.checkpoint()

    run(loop, main)
    assert ends == [Cancelled()]


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_a_task_deaf_to_its_programs_cancellation_is_named_within_the_time_of_a_stop(
    loop: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.kernel.kernel.STOP", 0.05)
    told: list[tuple[str, ...]] = []

    async def main() -> None:
        begun, release = anyio.Event(), anyio.Event()

        async def deaf() -> None:
            begun.set()
            with anyio.CancelScope(shield=True):
                await release.wait()

        def lost(jobs: tuple[str, ...]) -> None:
            told.append(jobs)
            release.set()

        with anyio.fail_after(5), anyio.CancelScope() as scope:
            async with Kernel(RealClock(), on_lost=lost) as kernel:
                kernel.start("deaf", deaf)
                await begun.wait()
                scope.cancel()
                await anyio.lowlevel.checkpoint()

    run(loop, main)
    assert told == [("deaf",)]

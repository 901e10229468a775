"""The bulkhead: whatever a job does, its end is told once and the others live."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from helpers_kernel import Events, each_loop, run_on, run_real
from perdure.kernel.errors import Closed, DeadlineExceeded, StrayCancellation
from perdure.kernel.jobs import KEEP
from perdure.kernel.kernel import Kernel
from perdure.kernel.outcome import Cancelled, Failed, Lost, Outcome, Returned
from perdure.kernel.run import Backend


async def raises(error: BaseException) -> None:
    raise error


STRAYS = [
    asyncio.CancelledError("from a library"),
    BaseExceptionGroup("g", [asyncio.CancelledError()]),
    BaseExceptionGroup("g", [ValueError(), BaseExceptionGroup("h", [asyncio.CancelledError()])]),
]


@each_loop
@pytest.mark.parametrize("error", STRAYS, ids=["bare", "in a group", "deep in a mixed group"])
def test_a_stray_cancellation_fails_its_own_job_and_the_host_lives(
    loop: Backend, error: BaseException
) -> None:
    async def main(kernel: Kernel) -> list[Outcome]:
        async def neighbour() -> str:
            await anyio.lowlevel.checkpoint()
            return "alive"

        outcomes = await kernel.gather("jobs", lambda: raises(error), neighbour)
        return [*outcomes, *await kernel.gather("later", neighbour)]

    failed, neighbour, later = run_real(loop, main)
    assert isinstance(failed, Failed)
    assert isinstance(failed.error, StrayCancellation)
    assert (neighbour, later) == (Returned("alive"), Returned("alive"))


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_task_that_a_library_cancels_natively_is_a_fault_and_its_pooled_task_stays_usable(
    loop: Backend,
) -> None:
    hit: list[asyncio.Task[object]] = []

    async def main(kernel: Kernel) -> list[Outcome]:
        async def struck() -> None:
            task = asyncio.current_task()
            assert task is not None
            hit.append(task)
            task.cancel()
            await anyio.sleep(1)

        async def after() -> tuple[bool, int]:
            await anyio.lowlevel.checkpoint()
            task = asyncio.current_task()
            assert task is not None
            return task is hit[0], task.cancelling()

        return [*await kernel.gather("a", struck), *await kernel.gather("b", after)]

    struck, after = run_real(loop, main)
    assert isinstance(struck, Failed)
    assert after == Returned((True, 0)), "the same task, with no request left over"


@each_loop
def test_a_cancelled_job_waiting_anywhere_ends_as_cancelled(loop: Backend) -> None:
    async def main(kernel: Kernel) -> Outcome:
        started, ended = anyio.Event(), kernel.waiter()

        async def foreign() -> None:
            async with anyio.create_task_group() as group:
                group.start_soon(anyio.sleep_forever)
                started.set()

        job = kernel.start("job", foreign, on_end=lambda _, outcome: ended.set(outcome))
        await started.wait()
        job.cancel()
        job.cancel()
        outcome: Outcome = await kernel.wait(ended, 5)
        return outcome

    assert run_real(loop, main) == Cancelled()


@each_loop
def test_an_error_while_stopping_is_told_as_a_failure(loop: Backend) -> None:
    async def main(kernel: Kernel) -> Outcome:
        started, ended = anyio.Event(), kernel.waiter()

        async def clumsy() -> None:
            try:
                started.set()
                await anyio.sleep_forever()
            finally:
                raise ValueError("in clean-up")

        job = kernel.start("job", clumsy, on_end=lambda _, outcome: ended.set(outcome))
        await started.wait()
        job.cancel()
        outcome: Outcome = await kernel.wait(ended, 5)
        return outcome

    outcome = run_real(loop, main)
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, ValueError)


@each_loop
def test_a_job_that_ignores_cancellation_is_declared_lost_once_and_the_kernel_goes_on(loop: Backend) -> None:
    events, ends = Events(), []

    async def main(kernel: Kernel) -> None:
        let_go, started, lost = anyio.Event(), anyio.Event(), kernel.waiter()

        async def deaf() -> None:
            started.set()
            with anyio.CancelScope(shield=True):
                await let_go.wait()

        def ended(job: Any, outcome: Outcome) -> None:
            ends.append((outcome, job.current))
            lost.set()

        job = kernel.start("deaf", deaf, on_end=ended)
        await started.wait()
        job.cancel(grace=0.01)
        await kernel.wait(lost, 5)
        assert kernel.stats().jobs_lost == 1
        echo = kernel.actor("echo", lambda waiter: waiter.set("alive"))
        assert await kernel.ask(echo, lambda waiter: waiter, 5) == "alive"
        let_go.set()

    run_real(loop, main, events)
    assert ends == [(Lost(), False)]
    assert events.names() == ["job.lost", "kernel.waits_for_lost", "job.late"]


@each_loop
def test_a_job_cancelled_before_its_turn_never_begins(loop: Backend) -> None:
    async def main(kernel: Kernel) -> list[object]:
        log: list[object] = []

        async def work() -> None:
            log.append("began")

        kernel.start("job", work, on_end=lambda _, outcome: log.append(outcome)).cancel()
        await kernel.clock.sleep(1)
        return log

    assert run_on(loop, main) == [Cancelled()]


@each_loop
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_the_end_of_the_program_goes_through_to_the_root(loop: Backend, error: type[BaseException]) -> None:
    async def main(kernel: Kernel) -> None:
        kernel.start("job", lambda: raises(error()))
        await anyio.sleep_forever()

    with pytest.raises(error):
        run_real(loop, main)


@each_loop
def test_a_report_that_breaks_costs_nobody_anything(loop: Backend) -> None:
    events = Events()

    async def main(kernel: Kernel) -> list[Outcome]:
        def broken(*_: object) -> None:
            raise ValueError

        async def work() -> int:
            return 1

        kernel.start("job", work, on_end=broken)
        return await kernel.gather("next", work)

    assert run_on(loop, main, events=events) == [Returned(1)]
    assert events.names() == ["job.on_end_failed"]


@each_loop
def test_steady_work_reuses_tasks_and_a_burst_keeps_no_more_than_the_limit(loop: Backend) -> None:
    async def main(kernel: Kernel) -> tuple[int, int]:
        async def work() -> None:
            await kernel.clock.sleep(1)

        for _ in range(5):
            await kernel.gather("few", work, work)
        steady = kernel.stats().tasks
        await kernel.gather("many", *[work] * 200)
        await kernel.clock.sleep(1)
        return steady, kernel.stats().tasks

    steady, after = run_on(loop, main)
    assert steady <= 4
    assert after <= KEEP


@each_loop
def test_a_pooled_task_does_not_inherit_the_context_of_who_started_it(loop: Backend) -> None:
    bound: ContextVar[str] = ContextVar("bound", default="nothing")

    async def main(kernel: Kernel) -> list[Outcome]:
        bound.set("the caller's")

        async def read() -> str:
            return bound.get()

        return await kernel.gather("read", read)

    assert run_on(loop, main) == [Returned("nothing")]


@each_loop
def test_nothing_starts_in_a_kernel_that_is_closed(loop: Backend) -> None:
    async def main(_: Kernel) -> None:
        async with Kernel(_.clock) as kernel:
            ref = kernel.actor("a", lambda _: None)
        with pytest.raises(Closed):
            kernel.start("late", anyio.sleep_forever)
        assert not ref.tell(1)
        with pytest.raises(Closed):
            await kernel.send(ref, 1, 1)

    run_on(loop, main)


@each_loop
def test_a_deadline_inside_a_job_is_its_own_affair(loop: Backend) -> None:
    async def main(kernel: Kernel) -> list[Outcome]:
        async def slow() -> None:
            with kernel.clock.fail_after(1):
                await kernel.clock.sleep(5)

        return await kernel.gather("slow", slow)

    (outcome,) = run_on(loop, main)
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, DeadlineExceeded)


@each_loop
def test_who_is_cancelled_takes_their_batch_along(loop: Backend) -> None:
    async def main(kernel: Kernel) -> list[str]:
        log: list[str] = []
        started, ended = anyio.Event(), kernel.waiter()

        async def part() -> None:
            try:
                started.set()
                await anyio.sleep_forever()
            finally:
                log.append("part")

        async def batch() -> None:
            try:
                await kernel.gather("batch", part, part)
            finally:
                log.append("batch")

        job = kernel.start("turn", batch, on_end=lambda *_: ended.set())
        await started.wait()
        job.cancel()
        await kernel.wait(ended, 5)
        return log

    log = run_real(loop, main)
    assert log in (["part", "part", "batch"], ["part", "batch"])
    assert log[-1] == "batch"

"""The machine's clock: one ticker, foreign awaits cut off, plain tasks of a user's own program."""

from __future__ import annotations

import asyncio
from functools import partial

import anyio
import pytest
import trio
from anyio.abc import TaskStatus

from helpers_kernel import each_loop, run_real, running_loop
from perdure.kernel.clock import RealClock
from perdure.kernel.deadlines import Deadlines
from perdure.kernel.errors import DeadlineExceeded
from perdure.kernel.kernel import Kernel
from perdure.kernel.outcome import Cancelled
from perdure.kernel.run import Backend
from perdure.kernel.waiter import Waiter


@each_loop
def test_an_ask_nobody_answers_ends_by_the_shared_ticker(loop: Backend) -> None:
    async def main(kernel: Kernel) -> None:
        mute = kernel.actor("mute", lambda _: None)
        with pytest.raises(DeadlineExceeded, match="an answer of mute"):
            await kernel.ask(mute, lambda waiter: waiter, 0.01)

    run_real(loop, main)


@each_loop
def test_a_foreign_await_is_cut_off_by_fail_after(loop: Backend) -> None:
    async def main(kernel: Kernel) -> None:
        with pytest.raises(DeadlineExceeded), kernel.clock.fail_after(0.01):
            await anyio.sleep_forever()
        with pytest.raises(DeadlineExceeded), kernel.clock.fail_after(0.01):
            await kernel.wait(kernel.waiter())

    run_real(loop, main)


@each_loop
def test_plain_tasks_of_a_users_program_can_send_ask_and_wait(loop: Backend) -> None:
    async def main(_: Kernel) -> None:
        answers: list[int] = []
        async with Kernel(RealClock()) as kernel, anyio.create_task_group() as group:
            double = kernel.actor("double", lambda message: message[0].set(message[1] * 2))

            async def user(n: int) -> None:
                answers.append(await kernel.ask(double, lambda waiter: (waiter, n), 5))

            for n in range(5):
                group.start_soon(user, n)
        assert sorted(answers) == [0, 2, 4, 6, 8]

    run_real(loop, main)


@each_loop
def test_a_wait_without_any_kernel_still_has_its_deadline(loop: Backend) -> None:
    async def main(_: Kernel) -> None:
        clock = RealClock()
        with pytest.raises(DeadlineExceeded):
            await clock.wait(clock.waiter(), 0.01)

    run_real(loop, main)


@each_loop
def test_the_ticker_moves_on_to_the_kernel_that_is_left(loop: Backend) -> None:
    async def main(_: Kernel) -> None:
        clock, leave, left = RealClock(), anyio.Event(), anyio.Event()

        async def first(*, task_status: TaskStatus[None]) -> None:
            async with Kernel(clock):
                task_status.started()
                await leave.wait()
            left.set()

        async with anyio.create_task_group() as group:
            await group.start(first)
            async with Kernel(clock) as second:
                leave.set()
                await left.wait()
                with pytest.raises(DeadlineExceeded):
                    await second.wait(second.waiter(), 0.01)
                assert clock.deadlines.running

    run_real(loop, main)


@each_loop
def test_an_error_of_the_program_comes_out_as_it_was(loop: Backend) -> None:
    async def main(_: Kernel) -> None:
        with pytest.raises(ValueError, match="mine"):
            async with Kernel(RealClock()):
                raise ValueError("mine")

    run_real(loop, main)


@each_loop
def test_leaving_stops_every_job_and_tells_each_once(loop: Backend) -> None:
    async def main(_: Kernel) -> None:
        ends: list[str] = []
        async with Kernel(RealClock()) as kernel:
            for i in range(100):
                kernel.start(str(i), anyio.sleep_forever, on_end=lambda job, _: ends.append(job.key))
        assert sorted(ends, key=int) == [str(i) for i in range(100)]

    run_real(loop, main)


def test_timers_ring_in_order_and_a_cancelled_one_does_not() -> None:
    now, rung = [0.0], []
    heap = Deadlines(lambda: now[0], lambda _: None)
    for at in (3, 1, 2):
        heap.call_at(at, partial(rung.append, at))
    heap.call_at(1.5, partial(rung.append, "no")).cancel()
    now[0] = 2.5
    heap.fire()
    assert (rung, heap.live) == ([1, 2], 1)


def test_a_failing_timer_harms_no_other() -> None:
    failed: list[BaseException] = []
    rung: list[int] = []
    heap = Deadlines(lambda: 5.0, failed.append)
    heap.call_at(1, lambda: 1 / 0)
    heap.call_at(2, lambda: rung.append(2))
    heap.fire()
    assert (rung, len(failed), heap.live) == ([2], 1, 0)


def test_answered_asks_do_not_fill_the_heap() -> None:
    heap = Deadlines(lambda: 0.0, lambda _: None)
    for _ in range(50_000):
        waiter: Waiter[object] = Waiter()
        heap.watch(30.0, waiter)
        heap.leave(waiter)
    assert len(heap) <= 1_100
    assert heap.live == 0


def test_an_old_deadline_cannot_end_a_new_wait() -> None:
    class Bell:
        rung = 0

        def wake(self) -> None:
            self.rung += 1

        def wait(self) -> object:
            raise NotImplementedError

    now = [0.0]
    heap = Deadlines(lambda: now[0], lambda _: None)
    waiter: Waiter[object] = Waiter()
    heap.watch(1.0, waiter)
    heap.leave(waiter)
    bell = Bell()
    waiter.park = bell  # type: ignore[assignment]
    heap.watch(9.0, waiter)
    now[0] = 2.0
    heap.fire()
    assert bell.rung == 0
    now[0] = 9.0
    heap.fire()
    assert bell.rung == 1


def test_wall_time_starts_where_it_was_told_to() -> None:
    assert 0 <= RealClock(5_000).wall_ms() - 5_000 < 1_000


@pytest.mark.parametrize("way", ["cancel", "timeout"])
def test_an_asyncio_program_may_cancel_the_task_that_holds_a_kernel(way: str) -> None:
    ends: list[object] = []

    async def user() -> None:
        async with Kernel(RealClock()) as kernel:
            kernel.start("job", anyio.sleep_forever, on_end=lambda _, outcome: ends.append(outcome))
            await asyncio.sleep(3600)

    async def main() -> None:
        assert running_loop() == "asyncio"
        if way == "timeout":
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(user(), 0.02)
            return
        task = asyncio.create_task(user())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert ends == [Cancelled()]


def test_a_trio_program_may_cancel_the_scope_that_holds_a_kernel() -> None:
    ends: list[object] = []

    async def main() -> None:
        assert running_loop() == "trio"
        with trio.move_on_after(0.02) as scope:
            async with Kernel(RealClock()) as kernel:
                kernel.start("job", trio.sleep_forever, on_end=lambda _, outcome: ends.append(outcome))
                await trio.sleep_forever()
        assert scope.cancelled_caught

    trio.run(main)
    assert ends == [Cancelled()]

"""Virtual time: jumps, deadlines, cancellation at the heap, and no silent hang."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers_kernel import Events, each_loop, run_on
from perdure.kernel.errors import DeadlineExceeded, ForeignTask, JobCancelled, OutsideWait, Stuck
from perdure.kernel.kernel import Kernel
from perdure.kernel.outcome import Cancelled, Failed, Lost, Outcome, Returned
from perdure.kernel.run import Backend
from perdure.kernel.virtual import VirtualClock


@each_loop
def test_a_week_passes_at_once_and_wall_time_with_it(loop: Backend) -> None:
    clock = VirtualClock(start_ms=1_000)

    async def main(kernel: Kernel) -> None:
        await kernel.clock.sleep(7 * 86_400)

    began = time.monotonic()
    run_on(loop, main, clock)
    assert time.monotonic() - began < 2
    assert (clock.now(), clock.wall_ms()) == (604_800.0, 604_801_000)


@each_loop
def test_the_nearest_of_nested_deadlines_acts_and_is_raised_at_its_own_scope(loop: Backend) -> None:
    async def main(kernel: Kernel) -> list[str]:
        clock, log = kernel.clock, []
        try:
            with clock.fail_after(2):
                try:
                    with clock.fail_after(5):
                        await clock.sleep(9)
                except DeadlineExceeded:
                    log.append("inner")
        except DeadlineExceeded:
            log.append(f"outer at {clock.now():g}")
        with clock.fail_after(50):
            try:
                with clock.fail_after(1):
                    await clock.sleep(9)
            except DeadlineExceeded:
                log.append(f"inner at {clock.now():g}")
        return log

    assert run_on(loop, main) == ["outer at 2", "inner at 3"]


def test_a_deadline_around_cannot_be_eaten_by_except_exception() -> None:
    async def main(kernel: Kernel) -> list[float]:
        times = []

        async def greedy() -> None:
            try:
                await kernel.clock.sleep(10)
            except Exception:
                times.append(kernel.clock.now())

        with pytest.raises(DeadlineExceeded), kernel.clock.fail_after(1):
            await greedy()
        return times

    assert run_on("trio", main) == []


@each_loop
def test_a_timeout_ends_the_wait_and_leaves_the_answer_to_come(loop: Backend) -> None:
    async def main(kernel: Kernel) -> tuple[float, object]:
        waiter = kernel.waiter("the post")
        kernel.clock.call_after(5, partial(waiter.set, "late"))
        with pytest.raises(DeadlineExceeded, match="the post"):
            await kernel.wait(waiter, 2)
        at = kernel.clock.now()
        return at, await kernel.wait(waiter, 60)

    assert run_on(loop, main) == (2.0, "late")


def test_an_answer_is_given_once_and_the_first_wins() -> None:
    async def main(kernel: Kernel) -> object:
        waiter = kernel.waiter()
        assert waiter.set(1)
        assert not waiter.set(2)
        assert not waiter.fail(ValueError())
        return await kernel.wait(waiter)

    assert run_on("asyncio", main) == 1


@each_loop
def test_two_tasks_cannot_wait_for_one_answer(loop: Backend) -> None:
    async def main(kernel: Kernel) -> list[Outcome]:
        waiter = kernel.waiter("it")
        kernel.clock.call_after(1, waiter.set)
        wait = partial(kernel.wait, waiter)
        return await kernel.gather("two", wait, wait)

    kinds = sorted(type(outcome).__name__ for outcome in run_on(loop, main))
    assert kinds == ["Failed", "Returned"]


@each_loop
def test_a_timer_that_fails_is_reported_and_the_next_still_rings(loop: Backend) -> None:
    events, rung = Events(), []

    async def main(kernel: Kernel) -> None:
        kernel.clock.call_at(1, lambda: 1 / 0)
        kernel.clock.call_at(2, lambda: rung.append(kernel.clock.now()))
        kernel.clock.call_at(3, lambda: rung.append("never")).cancel()
        await kernel.clock.sleep(5)

    run_on(loop, main, events=events)
    assert rung == [2.0]
    assert events.names() == ["timer.failed"]


@each_loop
def test_a_program_that_can_never_go_on_is_told_who_waits_for_what(loop: Backend) -> None:
    async def main(kernel: Kernel) -> None:
        async def other() -> None:
            await kernel.wait(kernel.waiter("a letter from nobody"))

        kernel.start("other", other)
        await kernel.wait(kernel.waiter("the other's end"))

    with pytest.raises(
        Stuck, match=r"main waits for the other's end.*other#1 waits for a letter from nobody"
    ):
        run_on(loop, main)


@each_loop
def test_a_foreign_task_cannot_wait_on_virtual_time(loop: Backend) -> None:
    async def main(kernel: Kernel) -> None:
        refused: list[BaseException] = []

        async def foreign() -> None:
            try:
                await kernel.clock.sleep(1)
            except ForeignTask as exc:
                refused.append(exc)

        async with anyio.create_task_group() as group:
            group.start_soon(foreign)
        assert "kernel.start" in str(refused[0])
        await kernel.clock.sleep(1)

    run_on(loop, main)


@each_loop
def test_a_task_that_waits_outside_the_kernel_is_named(loop: Backend) -> None:
    outside, seen = anyio.Event, []

    async def main(kernel: Kernel) -> None:
        event = outside()

        def heard(name: str, fields: dict[str, object]) -> None:
            seen.append((name, fields))
            event.set()

        kernel._on_event = heard

        async def sly() -> None:
            await event.wait()

        await kernel.gather("sly", sly)

    run_on(loop, main, VirtualClock(patience=0.01))
    assert seen[0] == ("kernel.outside_wait", {"tasks": "sly/0#1"})


@each_loop
def test_waiting_outside_for_good_becomes_an_error_rather_than_a_hang(loop: Backend) -> None:
    async def main(kernel: Kernel) -> None:
        await anyio.sleep_forever()

    with pytest.raises(OutsideWait, match="main"):
        run_on(loop, main, VirtualClock(patience=0.01))


@each_loop
def test_a_cancelled_job_sees_it_in_its_wait_and_cannot_eat_it_with_except_exception(loop: Backend) -> None:
    async def main(kernel: Kernel) -> list[object]:
        log: list[object] = []

        async def work() -> None:
            while True:
                try:
                    await kernel.clock.sleep(100)
                except Exception:
                    log.append("eaten")
                except JobCancelled:
                    log.append(kernel.clock.now())
                    raise

        job = kernel.start("work", work, on_end=lambda _, outcome: log.append(outcome))
        await kernel.clock.sleep(3)
        job.cancel()
        await kernel.clock.sleep(1)
        return log

    assert run_on(loop, main) == [3.0, Cancelled()]


@each_loop
def test_clean_up_may_wait_behind_a_shield(loop: Backend) -> None:
    async def main(kernel: Kernel) -> list[object]:
        log: list[object] = []

        async def work() -> None:
            try:
                await kernel.clock.sleep(100)
            finally:
                with kernel.clock.shield():
                    await kernel.clock.sleep(2)
                log.append(kernel.clock.now())

        job = kernel.start("work", work, on_end=lambda _, outcome: log.append(outcome))
        await kernel.clock.sleep(1)
        job.cancel()
        await kernel.clock.sleep(5)
        return log

    assert run_on(loop, main) == [3.0, Cancelled()]


@each_loop
def test_a_job_that_swallows_its_cancellation_is_lost_and_time_goes_on(loop: Backend) -> None:
    events, ends = Events(), []

    async def main(kernel: Kernel) -> None:
        refused = 0

        async def deaf() -> None:
            nonlocal refused
            while refused < 300:
                try:
                    await kernel.clock.sleep(1)
                except BaseException:
                    refused += 1

        job = kernel.start("deaf", deaf, on_end=lambda _, outcome: ends.append(outcome))
        await kernel.clock.sleep(0.5)
        job.cancel(grace=10)
        await kernel.clock.sleep(20)
        assert not job.current
        assert kernel.clock.now() == 20.5

    run_on(loop, main, events=events)
    assert ends == [Lost()]
    assert events.names() == ["job.lost", "kernel.waits_for_lost", "job.late"]


@each_loop
def test_a_batch_is_stopped_in_the_order_given_under_every_seed(loop: Backend) -> None:
    async def main(kernel: Kernel) -> list[int]:
        ended: list[int] = []

        async def part(i: int) -> None:
            try:
                await kernel.clock.sleep(50)
            finally:
                ended.append(i)

        async def batch() -> None:
            await kernel.gather("batch", *[partial(part, i) for i in range(6)])

        job = kernel.start("turn", batch)
        await kernel.clock.sleep(1)
        job.cancel()
        await kernel.clock.sleep(1)
        return ended

    assert all(run_on(loop, main, VirtualClock(seed)) == list(range(6)) for seed in range(5))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=20), st.integers(0, 99))
def test_nobody_wakes_before_their_time_or_after_somebody_later(delays: list[float], seed: int) -> None:
    async def main(kernel: Kernel) -> list[tuple[float, float]]:
        woke: list[tuple[float, float]] = []

        async def sleeper(delay: float) -> None:
            await kernel.clock.sleep(delay)
            woke.append((kernel.clock.now(), delay))

        await kernel.gather("all", *[partial(sleeper, delay) for delay in delays])
        return woke

    woke = run_on("asyncio", main, VirtualClock(seed))
    assert woke == sorted(woke)
    assert all(at == delay for at, delay in woke)


@each_loop
def test_leftover_deadlines_neither_pile_up_nor_move_time(loop: Backend) -> None:
    clock = VirtualClock()

    async def main(kernel: Kernel) -> None:
        echo = kernel.actor("echo", lambda waiter: waiter.set(None))
        for _ in range(6_000):
            await kernel.ask(echo, lambda waiter: waiter, 1_000)

    run_on(loop, main, clock)
    assert clock.now() == 0
    assert len(clock._heap) < 5_000


def test_one_clock_serves_a_kernel_after_the_other_died() -> None:
    async def main(outer: Kernel) -> list[Any]:
        clock, log = outer.clock, []
        for life in range(2):
            async with Kernel(clock) as inner:

                async def sleeper(life: int = life) -> None:
                    await clock.sleep(100)
                    log.append(life)

                inner.start("sleeper", sleeper, on_end=lambda _, outcome: log.append(outcome))
                await clock.sleep(10)
                if life == 0:
                    inner.kill()
        log.append(clock.now())
        await clock.sleep(500)
        return log

    assert run_on("trio", main) == [Cancelled(), 20.0]


def test_results_and_failures_come_back_from_a_batch_in_the_order_given() -> None:
    async def main(kernel: Kernel) -> tuple[list[Outcome], list[int]]:
        order: list[int] = []

        async def part(i: int) -> int:
            await kernel.clock.sleep(10 - i)
            if i == 1:
                raise ValueError("one")
            return i

        outcomes = await kernel.gather(
            "batch", *[partial(part, i) for i in range(3)], on_each=lambda i, _: order.append(i)
        )
        return outcomes, order

    outcomes, order = run_on("asyncio", main)
    assert [outcomes[0], outcomes[2]] == [Returned(0), Returned(2)]
    assert isinstance(outcomes[1], Failed)
    assert order == [2, 1, 0]

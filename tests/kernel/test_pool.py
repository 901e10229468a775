"""Pools: serial per key, any free worker, bounded; a crash costs one retry."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from helpers_kernel import Events, each_loop, run_on
from perdure.kernel.intensity import Intensity
from perdure.kernel.kernel import Kernel
from perdure.kernel.outcome import Cancelled, Failed, Outcome, Returned, Superseded
from perdure.kernel.pool import Permits
from perdure.kernel.run import Backend
from perdure.kernel.virtual import VirtualClock


@each_loop
def test_one_slow_key_holds_up_only_itself(loop: Backend) -> None:
    async def main(kernel: Kernel) -> list[tuple[float, str]]:
        done: list[tuple[float, str]] = []

        async def work(key: str, seconds: float) -> None:
            await kernel.clock.sleep(seconds)
            done.append((kernel.clock.now(), key))

        pool = kernel.pool("p", work, workers=2)
        for key, seconds in (("slow", 100), ("slow", 1), ("a", 1), ("b", 1), ("c", 1)):
            assert pool.submit(key, seconds)
        await kernel.clock.sleep(200)
        return done

    assert run_on(loop, main) == [(1, "a"), (2, "b"), (3, "c"), (100, "slow"), (101, "slow")]


@each_loop
def test_a_full_pool_refuses_and_an_idle_one_keeps_nothing(loop: Backend) -> None:
    async def main(kernel: Kernel) -> None:
        async def work(key: str, message: int) -> int:
            await kernel.clock.sleep(1)
            return message

        outcomes: list[Outcome] = []
        pool = kernel.pool("p", work, workers=1, queue_bound=3)
        accepted = [pool.submit("k", i, outcomes.append) for i in range(6)]
        assert accepted == [True] * 4 + [False] * 2
        await kernel.clock.sleep(10)
        assert outcomes == [Returned(i) for i in range(4)]
        assert (pool.queued, pool.busy, pool.refused, pool._waiting, len(pool._turn)) == (0, 0, 2, {}, 0)

    run_on(loop, main)


@each_loop
def test_a_crash_costs_one_retry_and_the_second_makes_a_dead_letter(loop: Backend) -> None:
    events, tries = Events(), Counter[str]()

    async def main(kernel: Kernel) -> list[Outcome]:
        async def work(key: str, message: str) -> str:
            tries[message] += 1
            if message == "poison" or tries[message] == 1:
                raise ValueError(message)
            return message

        outcomes: list[Outcome] = []
        pool = kernel.pool("p", work)
        pool.submit("k", "poison", outcomes.append)
        pool.submit("k", "behind", outcomes.append)
        await kernel.clock.sleep(1)
        assert [(letter.key, letter.message) for letter in pool.dead] == [("k", "poison")]
        return outcomes

    first, second = run_on(loop, main, events=events)
    assert isinstance(first, Failed)
    assert second == Returned("behind")
    assert tries == {"poison": 2, "behind": 2}


@each_loop
def test_permits_bound_two_pools_together_and_neither_starves(loop: Backend) -> None:
    async def main(kernel: Kernel) -> tuple[int, Counter[str]]:
        now, most, done = 0, 0, Counter[str]()

        async def work(name: str, key: str, message: int) -> None:
            nonlocal now, most
            now += 1
            most = max(most, now)
            await kernel.clock.sleep(1)
            now -= 1
            done[name] += 1

        permits = Permits(3)
        pools = [kernel.pool(n, partial(work, n), workers=5, permits=permits) for n in ("x", "y")]
        for i in range(30):
            for pool in pools:
                pool.submit(f"k{i}", i)
        await kernel.clock.sleep(10.5)
        assert permits.used == 3
        half = done.copy()
        await kernel.clock.sleep(50)
        assert done == {"x": 30, "y": 30}
        return most, half

    most, half = run_on(loop, main)
    assert most == 3
    assert abs(half["x"] - half["y"]) <= 4


@each_loop
def test_with_merging_the_newest_message_of_a_key_takes_the_place_of_the_one_before(loop: Backend) -> None:
    async def main(kernel: Kernel) -> list[tuple[int, Outcome]]:
        async def work(key: str, message: int) -> int:
            await kernel.clock.sleep(1)
            return message

        outcomes: list[tuple[int, Outcome]] = []
        pool = kernel.pool("p", work, merge="newest")
        for i in range(4):
            pool.submit("k", i, lambda outcome, i=i: outcomes.append((i, outcome)))
        await kernel.clock.sleep(10)
        return outcomes

    assert run_on(loop, main) == [(1, Superseded()), (2, Superseded()), (0, Returned(0)), (3, Returned(3))]


@each_loop
def test_cancelling_a_key_stops_its_work_and_forgets_its_queue(loop: Backend) -> None:
    async def main(kernel: Kernel) -> list[Outcome]:
        async def work(key: str, message: int) -> int:
            await kernel.clock.sleep(5)
            return message

        outcomes: list[Outcome] = []
        pool = kernel.pool("p", work, workers=1)
        for _ in range(3):
            pool.submit("gone", 0, outcomes.append)
        pool.submit("stays", 1, outcomes.append)
        await kernel.clock.sleep(1)
        pool.cancel("gone")
        await kernel.clock.sleep(10)
        return outcomes

    assert run_on(loop, main) == [Cancelled()] * 3 + [Returned(1)]


@each_loop
def test_a_pool_that_keeps_crashing_opens_its_breaker_and_tries_again_later(loop: Backend) -> None:
    events = Events()

    async def main(kernel: Kernel) -> list[float]:
        began: list[float] = []
        ill = True

        async def work(key: str, message: int) -> None:
            began.append(kernel.clock.now())
            if ill:
                raise ValueError

        pool = kernel.pool("p", work, workers=1)
        for i in range(20):
            pool.submit(f"k{i}", i)
        await kernel.clock.sleep(10)
        assert len(began) == 9
        assert pool.breaker.state(kernel.clock.now()) == "open"
        ill = False
        await kernel.clock.sleep(10)
        assert pool.done + len(pool.dead) == 20
        return began

    began = run_on(loop, main, events=events)
    assert began[9] == 15
    assert events.names().count("pool.opened") == 1


@each_loop
def test_a_key_that_keeps_crashing_rests_alone_and_the_others_are_served(loop: Backend) -> None:
    events = Events()

    async def main(kernel: Kernel) -> dict[str, list[float]]:
        began: dict[str, list[float]] = {"ill": [], "well": []}

        async def work(key: str, message: int) -> None:
            began[key].append(kernel.clock.now())
            if key == "ill" and kernel.clock.now() < 10:
                raise ValueError

        pool = kernel.pool("p", work, workers=2)
        for i in range(20):
            pool.submit("ill", i)
        for i in range(20):
            pool.submit("well", i)
            await kernel.clock.sleep(0.5)
        assert pool.breaker.state(kernel.clock.now()) == "closed"
        await kernel.clock.sleep(60)
        assert pool.done + len(pool.dead) == 40
        return began

    began = run_on(loop, main, events=events)
    assert began["well"] == [n / 2 for n in range(20)]
    assert [at for at in began["ill"] if at < 15] == [0] * 9
    assert set(began["ill"][9:]) == {15}
    assert events.names().count("pool.key_rests") == 1
    assert "pool.opened" not in events.names()


@each_loop
def test_work_that_fails_because_it_was_stopped_is_not_begun_again(loop: Backend) -> None:
    async def main(kernel: Kernel) -> tuple[int, list[Outcome]]:
        began = 0

        async def work(key: str, message: int) -> None:
            nonlocal began
            began += 1
            try:
                await kernel.clock.sleep(100)
            except BaseException:
                raise ValueError("my own way to say so") from None

        outcomes: list[Outcome] = []
        pool = kernel.pool("p", work)
        pool.submit("k", 0, outcomes.append)
        await kernel.clock.sleep(1)
        pool.cancel("k")
        await kernel.clock.sleep(20)
        return began, outcomes

    assert run_on(loop, main) == (1, [Cancelled()])


@each_loop
def test_leaving_the_kernel_tells_everyone_who_queued(loop: Backend) -> None:
    async def main(outer: Kernel) -> list[Outcome]:
        outcomes: list[Outcome] = []
        async with Kernel(outer.clock) as kernel:

            async def work(key: str, message: int) -> None:
                await kernel.clock.sleep(100)

            pool = kernel.pool("p", work, workers=1)
            for i in range(3):
                pool.submit(f"k{i}", i, outcomes.append)
            await kernel.clock.sleep(1)
        return outcomes

    assert run_on(loop, main) == [Cancelled()] * 3


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 5)), max_size=60),
    st.integers(1, 4),
    st.integers(1, 20),
    st.integers(0, 9),
)
def test_a_key_is_worked_on_by_one_at_a_time_in_order_and_every_message_is_told_once(
    plan: list[tuple[int, int, int]], workers: int, bound: int, seed: int
) -> None:
    """plan: (key, seconds of work, pause before the next); work of three seconds crashes."""

    async def main(kernel: Kernel) -> None:
        busy: set[str] = set()
        begun: list[tuple[str, int]] = []
        told: Counter[int] = Counter()

        async def work(key: str, message: tuple[int, int]) -> None:
            assert key not in busy
            busy.add(key)
            assert len(busy) <= workers
            begun.append((key, message[0]))
            try:
                await kernel.clock.sleep(message[1])
                if message[1] == 3:
                    raise ValueError
            finally:
                busy.remove(key)

        def tell(n: int, _: Any) -> None:
            told[n] += 1

        pool = kernel.pool("p", work, workers=workers, queue_bound=bound)
        pool._faults = Intensity(1_000, 1.0)
        accepted = []
        for n, (key, seconds, pause) in enumerate(plan):
            if pool.submit(str(key), (n, seconds), partial(tell, n)):
                accepted.append(n)
            assert pool.queued <= bound + workers
            await kernel.clock.sleep(pause)
        await kernel.clock.sleep(1_000)
        assert told == dict.fromkeys(accepted, 1)
        for key in {k for k, _ in begun}:
            order = [n for k, n in begun if k == key]
            assert order == sorted(order)

    run_on("asyncio", main, VirtualClock(seed))

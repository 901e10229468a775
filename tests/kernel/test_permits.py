"""Permits in virtual time, on every loop: no more than the limit, none lost to a cancellation, fair waits."""

from __future__ import annotations

from collections import defaultdict
from random import Random

import pytest

from helpers_kernel import each_loop, run_on
from perdure.kernel.errors import DeadlineExceeded, Full
from perdure.kernel.kernel import Kernel
from perdure.kernel.permits import FairPermits
from perdure.kernel.run import Backend


def jain(shares: list[float]) -> float:
    return sum(shares) ** 2 / (len(shares) * sum(share * share for share in shares))


@each_loop
@pytest.mark.parametrize("seed", range(3))
def test_cancellations_and_deadlines_lose_no_permit(loop: Backend, seed: int) -> None:
    async def main(kernel: Kernel) -> None:
        random, clock = Random(seed), kernel.clock
        permits = FairPermits("p", clock, 3, bound=1_000)
        most = 0

        async def work(n: int) -> None:
            nonlocal most
            permit = await permits.acquire(f"t{n % 4}", n, timeout=random.choice((0.5, 1.0, 5.0, 100.0)))
            try:
                most = max(most, permits.used)
                await clock.sleep(random.choice((0.0, 0.5, 1.0)))
            finally:
                permit.give()

        jobs = [kernel.start(f"w{n}", work, n) for n in range(300)]
        for _ in range(60):
            await clock.sleep(0.5)  # the very ticks in which permits are granted and deadlines end
            for job in random.sample(jobs, 5):
                job.cancel()
        await clock.sleep(1_000)
        assert not any(job.current for job in jobs)
        assert most == 3
        assert permits.used == permits.behind == len(permits.queue) == 0

    run_on(loop, main)


@each_loop
def test_who_waits_too_long_or_finds_the_queue_full_is_told_and_holds_nothing(loop: Backend) -> None:
    async def main(kernel: Kernel) -> None:
        permits = FairPermits("p", kernel.clock, 1, bound=1)
        held = await permits.acquire("t", 1, timeout=1)
        waits = kernel.start("waits", lambda: permits.acquire("t", 2, timeout=5))
        await kernel.clock.sleep(1)
        with pytest.raises(Full, match="1 of t wait"):
            await permits.acquire("t", 3, timeout=5)
        await kernel.clock.sleep(5)
        assert isinstance(getattr(waits.outcome, "error", None), DeadlineExceeded)
        held.give()
        assert permits.used == len(permits.queue) == 0

    run_on(loop, main)


@each_loop
def test_a_pause_holds_all_back_once_and_they_come_back_one_two_four(loop: Backend) -> None:
    async def main(kernel: Kernel) -> None:
        clock = kernel.clock
        permits = FairPermits("p", clock, 8)
        begun: list[float] = []

        async def call(n: int) -> None:
            async with permits.use("t", n, timeout=1_000):
                begun.append(clock.now())
                await clock.sleep(1)
                permits.throttle.worked(clock.now())

        permits.throttle.refused(clock.now(), 30.0)
        zero = clock.now()
        for n in range(15):
            kernel.start(f"c{n}", call, n)
        await clock.sleep(100)
        first = permits.throttle.until - zero
        assert [round(at - zero - first) for at in begun] == [0, 1, 1, 2, 2, 2, 2, *[3] * 8]
        permits.close()

    run_on(loop, main)


def test_background_work_never_takes_the_last_quarter() -> None:
    async def main(kernel: Kernel) -> None:
        permits = FairPermits("p", kernel.clock, 8)
        for n in range(20):
            kernel.start(f"b{n}", lambda n=n: permits.acquire("t", n, timeout=50, band="back"))
        await kernel.clock.sleep(1)
        assert permits.used == permits.behind == 6
        front = await permits.acquire("t", "front", timeout=0.1)
        assert not front.waited

    run_on("asyncio", main)


def test_five_thousand_summaries_in_eight_slots_share_time_evenly_and_wait_no_longer_than_fair() -> None:
    """200 tenants, from 1 to 49 sessions each; summaries take 5 to 60 s; the loudest asks first."""

    async def main(kernel: Kernel) -> None:
        random, clock, slots = Random(7), kernel.clock, 8
        permits = FairPermits("summaries", clock, slots, bound=5_000, behind=slots)
        sizes = [1 + n % 49 for n in range(200)]
        sizes[0] += 5_000 - sum(sizes)
        held: dict[str, float] = defaultdict(float)
        waits: dict[str, list[float]] = defaultdict(list)
        shares: list[float] = []

        async def summary(tenant: str, flow: int, seconds: float) -> None:
            asked = clock.now()
            async with permits.use(tenant, flow, timeout=1e6):
                waits[tenant].append(clock.now() - asked)
                await clock.sleep(seconds)
                held[tenant] += seconds
            if tenant == "t48" and len(waits["t48"]) == 24:  # while all that large still wait
                shares.extend(held[f"t{n}"] for n in range(200) if sizes[n] >= 49)

        total = 0.0
        for n, size in enumerate(sizes):
            for flow in range(size):
                seconds = random.uniform(5, 60)
                total += seconds
                kernel.start(f"s{n}.{flow}", summary, f"t{n}", flow, seconds)
        await clock.sleep(2 * total / slots)
        assert sum(map(len, waits.values())) == 5_000
        assert jain(shares) >= 0.95
        mean = total / 5_000
        for n, size in enumerate(sizes[1:], 1):  # fair: all tenants that still wait go in turn
            fair = mean / slots * sum(min(size, other) for other in sizes)
            assert max(waits[f"t{n}"]) <= 2 * fair

    run_on("asyncio", main)

"""Services: restarted as their spec says, with back-off, until that is no help."""

from __future__ import annotations

from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers_kernel import Events, each_loop, run_on
from perdure.kernel.errors import Escalated
from perdure.kernel.intensity import Backoff, Breaker, Intensity
from perdure.kernel.kernel import Kernel
from perdure.kernel.run import Backend
from perdure.kernel.supervisor import ChildSpec


@each_loop
def test_a_service_that_breaks_starts_again_after_growing_pauses(loop: Backend) -> None:
    async def main(kernel: Kernel) -> list[float]:
        starts: list[float] = []

        async def service() -> None:
            starts.append(round(kernel.clock.now(), 3))
            if len(starts) < 5:
                raise ValueError("again")
            await kernel.clock.sleep(1e9)

        kernel.spawn("service", service)
        await kernel.clock.sleep(50)
        log = kernel.stats().restarts
        assert [(r.name, r.reason, r.pause) for r in log[:2]] == [
            ("service", "ValueError('again')", 0.1),
            ("service", "ValueError('again')", 0.2),
        ]
        assert kernel.stats().services == (("service", "running"),)
        return starts

    assert run_on(loop, main) == [0.0, 0.1, 0.3, 0.7, 1.5]


@each_loop
@pytest.mark.parametrize(
    ("restart", "fails", "starts"),
    [
        ("permanent", False, 3),
        ("permanent", True, 3),
        ("transient", False, 1),
        ("transient", True, 3),
        ("temporary", True, 1),
    ],
)
def test_whether_it_starts_again_is_written_in_its_spec(
    loop: Backend, restart: Literal["permanent", "transient", "temporary"], fails: bool, starts: int
) -> None:
    async def main(kernel: Kernel) -> int:
        count = 0

        async def service() -> None:
            nonlocal count
            count += 1
            if fails:
                raise ValueError

        kernel.spawn(ChildSpec("service", service, restart=restart, backoff=Backoff(1, 1, 1)))
        await kernel.clock.sleep(2.5)
        return count

    assert run_on(loop, main) == starts


@each_loop
def test_a_service_beyond_its_intensity_rests_for_its_period(loop: Backend) -> None:
    async def main(kernel: Kernel) -> list[float]:
        starts: list[float] = []

        async def service() -> None:
            starts.append(kernel.clock.now())
            raise ValueError

        spec = ChildSpec("s", service, intensity=Intensity(2, 30.0), backoff=Backoff(1, 1, 1))
        kernel.spawn(spec)
        await kernel.clock.sleep(40)
        return starts

    assert run_on(loop, main) == [0, 1, 2, 32, 33, 34]


@each_loop
def test_services_that_keep_failing_end_the_program_with_the_name_of_the_last(loop: Backend) -> None:
    async def main(kernel: Kernel) -> None:
        async def service() -> None:
            raise ValueError("no database")

        kernel.spawn(ChildSpec("index", service, intensity=Intensity(1, 10.0)))
        await kernel.clock.sleep(1_000)

    with pytest.raises(Escalated, match="index: ValueError"):
        run_on(loop, main)


@each_loop
def test_a_stopped_service_stays_stopped(loop: Backend) -> None:
    events = Events()

    async def main(kernel: Kernel) -> int:
        count = 0

        async def service() -> None:
            nonlocal count
            count += 1
            await kernel.clock.sleep(5)

        child = kernel.spawn("service", service)
        with pytest.raises(ValueError, match="runs already"):
            kernel.spawn("service", service)
        await kernel.clock.sleep(1)
        child.stop()
        await kernel.clock.sleep(100)
        assert kernel.stats().services == (("service", "done"),)
        kernel.spawn("service", service).stop()
        return count

    assert run_on(loop, main, events=events) == 1
    assert events.seen == []


@given(st.lists(st.floats(0, 100), max_size=30), st.integers(0, 5), st.floats(0.5, 50))
def test_intensity_counts_exactly_those_within_the_period(
    gaps: list[float], limit: int, period: float
) -> None:
    intensity, past, now, times = Intensity(limit, period), (), 0.0, []  # type: ignore[var-annotated]
    for gap in gaps:
        now += gap
        times.append(now)
        past, within = intensity.note(past, now)
        assert within == (sum(now - at < period for at in times) <= limit)
        assert len(past) <= limit + 1


def test_an_event_exactly_one_period_old_counts_no_longer() -> None:
    past, within = Intensity(1, 60.0).note((0.0,), 60.0)
    assert (past, within) == ((60.0,), True)
    assert Intensity(1, 60.0).note((0.0,), 59.999)[1] is False


@given(st.integers(1, 10**9))
def test_back_off_grows_and_never_beyond_its_cap(attempt: int) -> None:
    backoff = Backoff()
    assert backoff.delay(attempt) <= backoff.delay(attempt + 1) <= 5.0


def test_a_breaker_opens_tries_once_and_closes_on_success() -> None:
    breaker = Breaker(Intensity(2, 60.0), rest=10.0)
    assert [breaker.broke(now) for now in (0, 1, 2)] == [False, False, True]
    assert not breaker.allow(11.9)
    assert breaker.allow(12)
    assert not breaker.allow(12), "one trial at a time"
    breaker.broke(12)
    assert breaker.state(13) == "open"
    assert breaker.allow(22)
    breaker.worked()
    assert breaker.state(22) == "closed"
    assert breaker.allow(22)
    assert breaker.allow(22)

"""Who is served next: shares by weight, nobody starves, nothing is lost where somebody gives up."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.kernel.bucket import Buckets
from perdure.kernel.fair import EVERY, FairQueue
from perdure.kernel.throttle import Throttle


def jain(shares: list[float]) -> float:
    """Jain's index: 1 where all have the same, 1/n where one has everything."""
    return sum(shares) ** 2 / (len(shares) * sum(share * share for share in shares))


def filled(counts: dict[str, int], bound: int = 10_000, **options: float) -> FairQueue[int]:
    queue: FairQueue[int] = FairQueue(bound)
    for kind, count in counts.items():
        for n in range(count):
            assert queue.push(n, kind, n, weight=options.get(kind, 1.0)) is not None
    return queue


def test_a_flood_of_one_tenant_costs_another_no_more_than_its_share() -> None:
    queue = filled({"loud": 5_000, "quiet": 10})
    served = [queue.pop().kind for _ in range(20)]  # type: ignore[union-attr]
    assert Counter(served) == {"loud": 10, "quiet": 10}


def test_shares_follow_the_weights() -> None:
    queue = filled({"a": 3_000, "b": 3_000}, a=3.0, b=1.0)
    served = Counter(queue.pop().kind for _ in range(400))  # type: ignore[union-attr]
    assert served["a"] == pytest.approx(300, abs=2)


def test_inside_a_tenant_its_sessions_share_evenly() -> None:
    queue: FairQueue[str] = FairQueue(1_000)
    for flow, count in (("busy", 100), ("rare", 2)):
        for _ in range(count):
            queue.push(flow, "t", flow)
    first = [queue.pop().item for _ in range(4)]  # type: ignore[union-attr]
    assert Counter(first) == {"busy": 2, "rare": 2}


def test_who_rested_saves_nothing_up() -> None:
    queue = filled({"steady": 1_000})
    for _ in range(500):
        queue.pop()
    for n in range(500):
        queue.push(n, "back", n)
    served = Counter(queue.pop().kind for _ in range(100))  # type: ignore[union-attr]
    assert served == {"steady": 50, "back": 50}


def test_what_is_due_earlier_goes_first_and_a_due_date_in_the_past_goes_before_any_later_one() -> None:
    queue: FairQueue[str] = FairQueue(100)
    queue.push("calm", "t", "calm", due=600.0)
    for n in range(50):
        queue.push(f"urgent {n}", "t", n, due=590.0 + n)
    order = [queue.pop().item for _ in range(51)]  # type: ignore[union-attr]
    assert order.index("calm") == 10  # those that came due before it, and none of the forty after


def test_the_band_in_front_goes_first_and_starves_nobody_behind() -> None:
    queue: FairQueue[str] = FairQueue(10_000)
    for n in range(100):
        queue.push("back", "t", n, band="back")
        queue.push("front", "t", n)
    served = [queue.pop().item for _ in range(80)]  # type: ignore[union-attr]
    assert served[: EVERY - 1] == ["front"] * (EVERY - 1)
    assert served.count("back") == 80 // EVERY


def test_a_full_class_refuses_and_others_have_room() -> None:
    queue = filled({"full": 3}, bound=3)
    assert queue.push(9, "full", 9) is None
    assert queue.refused == 1
    assert queue.push(9, "other", 9) is not None


def test_who_held_longer_is_charged_for_it() -> None:
    queue = filled({"long": 1_000, "short": 1_000})
    held = Counter[str]()
    for _ in range(440):
        ticket = queue.pop()
        assert ticket is not None
        seconds = 10.0 if ticket.kind == "long" else 1.0
        held[ticket.kind] += int(seconds)
        queue.charge(ticket, seconds - 1.0)
    assert jain([held["long"], held["short"]]) > 0.99


PUSH = st.tuples(
    st.sampled_from("abc"), st.integers(0, 3), st.floats(0, 5), st.sampled_from(["front", "back"])
)
ACT = st.one_of(PUSH, st.just("pop"), st.integers(0, 30))


@given(st.lists(ACT, max_size=200))
def test_each_that_was_let_in_leaves_exactly_once(acts: list[object]) -> None:
    queue: FairQueue[int] = FairQueue(8)
    inside, left, number = {}, [], 0
    for act in acts:
        if isinstance(act, tuple):
            kind, flow, due, band = act
            ticket = queue.push(number, kind, flow, due=due, band=band)
            if ticket is not None:
                inside[number] = ticket
            number += 1
        elif act == "pop":
            ticket = queue.pop()
            assert (ticket is None) == (not inside)
            if ticket is not None:
                left.append(inside.pop(ticket.item).item)
        elif act in inside:
            assert queue.remove(inside.pop(act))  # type: ignore[index, arg-type]
        assert len(queue) == len(inside) == sum(count for _, count in queue.classes())
        assert all(queue.waiting(kind) <= 8 for kind in "abc")
    while (ticket := queue.pop()) is not None:
        left.append(inside.pop(ticket.item).item)
    assert not inside
    assert len(left) == len(set(left))


# --- pauses and buckets ---------------------------------------------------------------------------


def test_a_burst_of_refusals_is_one_pause_and_the_return_is_careful() -> None:
    throttle = Throttle(8)
    assert throttle.refused(100.0, 30.0)
    assert not any(throttle.refused(100.0, 30.0) for _ in range(50))
    assert throttle.allowed(129.9) == 0
    assert 130.0 <= throttle.until <= 130.7
    widths = []
    for _ in range(5):
        widths.append(throttle.allowed(140.0))
        throttle.worked(140.0)
    assert widths == [1, 2, 3, 4, 5]
    assert throttle.pauses == 1


def test_a_failed_trial_pauses_again_for_longer() -> None:
    throttle, now, pauses = Throttle(8, first=1.0), 0.0, []
    throttle.refused(now, None)
    for _ in range(8):
        pauses.append(throttle.until - now)
        now = throttle.until
        assert throttle.allowed(now) == 1
        throttle.failed(now, "any")
    assert pauses[:6] == sorted(pauses[:6])
    assert 60 <= pauses[-1] <= 61.3


def test_one_asker_that_fails_over_and_over_closes_the_way_for_nobody() -> None:
    throttle = Throttle(8)
    assert not any(throttle.failed(1.0, "ill") for _ in range(100))
    assert not throttle.failed(1.0, "second")
    assert throttle.failed(1.0, "third")


@given(st.lists(st.floats(0, 30), min_size=1, max_size=100), st.integers(1, 60))
def test_a_bucket_lets_through_its_size_and_what_time_refills(pauses: list[float], rate: int) -> None:
    buckets, now, taken = Buckets(), 0.0, []
    for pause in pauses:
        now += pause
        while not buckets.short("k", rate, now):
            buckets.take("k", rate, now)
            taken.append(now)
    for at in taken:
        within = sum(at <= other <= at + 60 for other in taken)
        assert within <= 2 * rate + 1


def test_the_time_that_a_bucket_names_is_enough() -> None:
    buckets, now = Buckets(), 0.0
    for _ in range(50):
        now += buckets.short("k", 7, now)
        assert buckets.short("k", 7, now) == 0
        buckets.take("k", 7, now)

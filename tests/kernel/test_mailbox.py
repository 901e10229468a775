"""Mail: bounded from outside, never refused inside, in order, and no trace of it while idle."""

from __future__ import annotations

import gc
import sys
from collections import deque
from functools import partial

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers_kernel import each_loop, run_on
from perdure.kernel.dispatcher import SLICE, Dispatcher
from perdure.kernel.errors import Closed, DeadlineExceeded
from perdure.kernel.kernel import Kernel
from perdure.kernel.mailbox import Mailboxes, Ref
from perdure.kernel.poison import Infirmary
from perdure.kernel.run import Backend
from perdure.kernel.virtual import VirtualClock


@each_loop
def test_a_burst_is_refused_beyond_the_bound_and_nothing_refused_is_delivered(loop: Backend) -> None:
    async def main(kernel: Kernel) -> tuple[int, list[int]]:
        got: list[int] = []
        ref = kernel.actor("a", got.append)
        accepted = [i for i in range(1_000) if ref.tell(i)]
        await kernel.clock.sleep(1)
        assert got == accepted
        return len(accepted), got[:3]

    assert run_on(loop, main) == (64, [0, 1, 2])


@each_loop
def test_senders_who_wait_for_room_are_all_served_first_come_first(loop: Backend) -> None:
    async def main(kernel: Kernel) -> list[int]:
        got: list[int] = []
        ref = kernel.actor("a", got.append)
        while ref.tell(-1):
            pass
        order: list[int] = []

        async def sender(i: int) -> None:
            order.append(i)
            await kernel.send(ref, i, 60)

        await kernel.gather("senders", *[partial(sender, i) for i in range(500)])
        await kernel.clock.sleep(1)
        assert [i for i in got if i >= 0] == order
        return got

    assert len(run_on(loop, main)) == 564


def test_nobody_slips_in_ahead_of_a_sender_that_waits() -> None:
    clock, got = VirtualClock(), []
    boxes = Mailboxes(clock, bound=1)

    def handle(message: str) -> None:
        got.append((message, ref.tell("slips in")))

    ref = Ref(boxes, "a", handle, None)
    ref.tell("first")
    ref.room = deque([(clock.waiter(), "waited")])
    Dispatcher(clock, boxes, Infirmary(clock, boxes, lambda *_: None)).drain(1)
    assert got[:2] == [("first", False), ("waited", True)]


@each_loop
def test_a_sender_whose_deadline_passes_knows_that_nothing_was_accepted(loop: Backend) -> None:
    async def main(kernel: Kernel) -> list[int]:
        got: list[int] = []
        ref = kernel.actor("a", got.append)
        while ref.tell(0):
            pass
        # the dispatcher has no turn between these two, so the mailbox is still full when time runs out
        with pytest.raises(DeadlineExceeded, match="room in the mailbox of a"):
            await kernel.send(ref, 1, 0)
        await kernel.clock.sleep(1)
        return got

    assert run_on(loop, main, VirtualClock(seed=_seed_where_the_deadline_comes_first())) == [0] * 64


def _seed_where_the_deadline_comes_first() -> int:
    """Both are due at the same instant; the seed decides which comes first."""
    for seed in range(50):
        clock = VirtualClock(seed)

        async def main(kernel: Kernel) -> bool:
            ref = kernel.actor("a", lambda _: None)
            while ref.tell(0):
                pass
            try:
                await kernel.send(ref, 1, 0)
            except DeadlineExceeded:
                return True
            return False

        if run_on("asyncio", main, clock):
            return seed
    raise AssertionError("no seed lets the deadline come first")


@each_loop
def test_internal_mail_is_never_refused_and_overtakes(loop: Backend) -> None:
    async def main(kernel: Kernel) -> list[str]:
        got: list[str] = []
        ref = kernel.actor("a", got.append)
        while ref.tell("out"):
            pass
        for _ in range(1_000):
            ref.post("in")
        await kernel.clock.sleep(1)
        return got

    got = run_on(loop, main)
    assert got == ["in"] * 1_000 + ["out"] * 64


@each_loop
def test_one_busy_actor_does_not_hold_up_its_neighbour(loop: Backend) -> None:
    async def main(kernel: Kernel) -> int:
        got: list[str] = []
        busy, calm = kernel.actor("busy", got.append), kernel.actor("calm", got.append)
        for _ in range(60):
            busy.tell("busy")
        calm.tell("calm")
        await kernel.clock.sleep(1)
        return got.index("calm")

    assert run_on(loop, main) == SLICE


@each_loop
def test_an_ask_within_a_full_mailbox_has_one_deadline_for_both_waits(loop: Backend) -> None:
    async def main(kernel: Kernel) -> float:
        ref = kernel.actor("mute", lambda _: None)
        while ref.tell(0):
            pass
        with pytest.raises(DeadlineExceeded):
            await kernel.ask(ref, lambda waiter: waiter, 5)
        return kernel.clock.now()

    assert run_on(loop, main) == 5.0


def test_those_who_wait_for_room_are_told_when_the_kernel_stops() -> None:
    clock = VirtualClock()
    boxes = Mailboxes(clock, bound=1)
    ref = Ref(boxes, "a", lambda _: None, None)
    ref.tell(1)
    waiter = clock.waiter()
    ref.room = deque([(waiter, 2)])
    boxes.close()
    with pytest.raises(Closed):
        waiter.result()
    assert not ref.tell(3)


def test_an_idle_actor_owns_no_container_and_weighs_under_a_quarter_kilobyte() -> None:
    async def main(kernel: Kernel) -> Ref:
        ref = kernel.actor("a", print)
        ref.handler = lambda _: None
        ref.tell(1)
        ref.post(2)
        await kernel.clock.sleep(1)
        return ref

    ref = run_on("asyncio", main)
    assert (ref.mail, ref.inner, ref.room, ref.crashes) == (None, None, None, ())
    assert sys.getsizeof(ref) < 250
    assert not any(
        isinstance(held, list | dict | set) for held in gc.get_referents(ref) if held is not ref._boxes
    )


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3), st.booleans()), max_size=150),
    st.integers(1, 8),
    st.integers(0, 9),
)
def test_each_senders_letters_arrive_once_and_in_order_and_the_bound_holds(
    plan: list[tuple[int, int, bool]], bound: int, seed: int
) -> None:
    """plan: (sender, pause, by waiting) a letter."""
    got: list[tuple[int, int]] = []
    sent: list[tuple[int, int]] = []
    fullest = 0

    async def root() -> None:
        async with Kernel(VirtualClock(seed), mailbox_bound=bound) as kernel:

            def handle(message: tuple[int, int]) -> None:
                nonlocal fullest
                fullest = max(fullest, len(ref.mail or ()))  # without the one in hand
                got.append(message)

            ref = kernel.actor("a", handle)

            async def sender(who: int) -> None:
                for n, (_, pause, waits) in enumerate(x for x in plan if x[0] == who):
                    await kernel.clock.sleep(pause)
                    if waits:
                        await kernel.send(ref, (who, n), 100)
                        sent.append((who, n))
                    elif ref.tell((who, n)):
                        sent.append((who, n))

            await kernel.gather("senders", *[partial(sender, who) for who in range(5)])
            await kernel.clock.sleep(1)

    anyio.run(root)
    assert sorted(got) == sorted(sent)
    assert fullest <= bound
    for who in range(5):
        mine = [n for sender, n in got if sender == who]
        assert mine == sorted(mine)

"""Crashing actors: a second chance for the message, then it is parked; a crash harms its actor only."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from helpers_kernel import Events, each_loop, run_on
from perdure.kernel.errors import ActorParked
from perdure.kernel.kernel import Kernel
from perdure.kernel.outcome import Failed
from perdure.kernel.run import Backend


class Touchy:
    """Raises on what is in `bad`, as often as told."""

    def __init__(self, **bad: int) -> None:
        self.bad, self.got, self.restarts = bad, [], 0  # type: ignore[var-annotated]

    def handle(self, message: str) -> None:
        if self.bad.get(message, 0) > 0:
            self.bad[message] -= 1
            raise ValueError(message)
        self.got.append(message)

    def restart(self, _: BaseException) -> None:
        self.restarts += 1


@each_loop
def test_a_message_that_crashes_once_is_tried_again_after_a_restart(loop: Backend) -> None:
    async def main(kernel: Kernel) -> Touchy:
        actor = Touchy(b=1)
        ref = kernel.actor("a", actor.handle, restart=actor.restart)
        for message in "abc":
            ref.tell(message)
        await kernel.clock.sleep(1)
        assert kernel.parked() == ()
        return actor

    actor = run_on(loop, main)
    assert (actor.got, actor.restarts) == (["a", "b", "c"], 1)


@each_loop
def test_a_poison_message_is_parked_alone_and_the_rest_goes_on(loop: Backend) -> None:
    events = Events()

    async def main(kernel: Kernel) -> tuple[list[str], Any]:
        actor = Touchy(b=99)
        ref = kernel.actor("a", actor.handle, restart=actor.restart)
        for message in "abc":
            ref.tell(message)
        await kernel.clock.sleep(1)
        return actor.got, kernel.parked()

    got, (parked,) = run_on(loop, main, events=events)
    assert got == ["a", "c"]
    assert (parked.key, parked.message, parked.error, parked.whole) == ("a", "b", "ValueError('b')", False)
    assert events.names() == ["actor.crashed", "actor.crashed", "actor.parked"]


@each_loop
def test_an_actor_that_crashes_too_often_is_parked_whole_and_its_neighbour_lives(loop: Backend) -> None:
    async def main(kernel: Kernel) -> None:
        ill, well = Touchy(x=99), Touchy()
        ref, neighbour = kernel.actor("ill", ill.handle), kernel.actor("well", well.handle)
        for _ in range(4):
            ref.tell("x")
            ref.tell("fine")
        neighbour.tell("hello")
        await kernel.clock.sleep(1)
        assert well.got == ["hello"]
        assert ref.parked
        assert [parked.whole for parked in kernel.parked()] == [False, False, True]
        assert not ref.tell("more")
        with pytest.raises(ActorParked):
            await kernel.send(ref, "more", 5)

    run_on(loop, main)


@each_loop
@pytest.mark.parametrize("way", ["retry", "drop"])
def test_a_parked_actor_goes_on_with_what_it_had_when_told_to(loop: Backend, way: str) -> None:
    async def main(kernel: Kernel) -> list[str]:
        actor = Touchy(x=6)
        ref = kernel.actor("a", actor.handle)
        for message in ("x", "x", "x", "rest"):
            ref.tell(message)
        await kernel.clock.sleep(1)
        ref.post("report")
        await kernel.clock.sleep(1)
        assert actor.got == []
        *_, last = kernel.parked()
        assert getattr(kernel, way)(last.number)
        assert not getattr(kernel, way)(last.number)
        await kernel.clock.sleep(1)
        assert ref.tell("again")
        await kernel.clock.sleep(1)
        return actor.got

    expected = {"retry": ["x", "report", "rest", "again"], "drop": ["report", "rest", "again"]}
    assert run_on(loop, main) == expected[way]


@each_loop
def test_crashes_far_apart_never_park_an_actor(loop: Backend) -> None:
    async def main(kernel: Kernel) -> int:
        actor = Touchy(x=99)
        ref = kernel.actor("a", actor.handle)
        for _ in range(20):
            ref.tell("x")
            await kernel.clock.sleep(61)
        assert not ref.parked
        return len(kernel.parked())

    assert run_on(loop, main) == 20


@each_loop
def test_a_stray_cancellation_in_a_handler_is_a_crash_like_any_other(loop: Backend) -> None:
    async def main(kernel: Kernel) -> list[str]:
        got: list[str] = []

        def handle(message: str) -> None:
            if message == "bad":
                raise asyncio.CancelledError
            got.append(message)

        ref = kernel.actor("a", handle)
        ref.tell("bad")
        ref.tell("good")
        await kernel.clock.sleep(1)
        return got

    assert run_on(loop, main) == ["good"]


@each_loop
def test_a_restart_may_give_a_new_handler_and_one_that_fails_parks_the_actor(loop: Backend) -> None:
    async def main(kernel: Kernel) -> None:
        got: list[str] = []

        def broken(_: object) -> None:
            raise ValueError

        ref = kernel.actor("a", broken, restart=lambda _: got.append)
        ref.tell("m")
        hopeless = kernel.actor("b", broken, restart=broken)  # type: ignore[arg-type]
        hopeless.tell("m")
        await kernel.clock.sleep(1)
        assert got == ["m"]
        assert (ref.parked, hopeless.parked) == (False, True)

    run_on(loop, main)


@each_loop
def test_senders_that_wait_are_told_when_the_actor_is_parked(loop: Backend) -> None:
    async def main(kernel: Kernel) -> None:
        ref = kernel.actor("a", Touchy(x=999).handle)
        while ref.tell("x"):
            pass
        (outcome,) = await kernel.gather("sender", lambda: kernel.send(ref, "late", 60))
        assert isinstance(outcome, Failed)
        assert isinstance(outcome.error, ActorParked)

    run_on(loop, main)

"""Channels: news never blocks and never raises, and what is lost is counted and told."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers_kernel import Events, each_loop, run_on
from perdure.kernel.channel import Channel
from perdure.kernel.errors import DeadlineExceeded
from perdure.kernel.kernel import Kernel
from perdure.kernel.run import Backend
from perdure.kernel.virtual import VirtualClock


@each_loop
def test_a_reader_gets_what_is_published_until_it_is_closed(loop: Backend) -> None:
    async def main(kernel: Kernel) -> list[int]:
        channel = kernel.channel("news")
        listener = channel.listen("me")
        for at in (1, 2, 3):
            kernel.clock.call_after(at, lambda at=at: channel.publish(at))
        kernel.clock.call_after(4, listener.close)
        return [event async for event in listener]

    assert run_on(loop, main) == [1, 2, 3]


@each_loop
def test_a_reader_that_falls_behind_keeps_the_newest_and_the_loss_is_told(loop: Backend) -> None:
    events = Events()

    async def main(kernel: Kernel) -> list[int]:
        listener = kernel.channel("news").listen("slow", bound=3)
        for n in range(10):
            kernel.channel("news").publish(n)
        assert listener.dropped == 7
        return [await listener.next() for _ in range(3)]

    assert run_on(loop, main, events=events) == [7, 8, 9]
    assert [fields["lost"] for _, fields in events.seen] == [1, 2, 4]


@each_loop
def test_waiting_for_news_has_a_deadline(loop: Backend) -> None:
    async def main(kernel: Kernel) -> None:
        with pytest.raises(DeadlineExceeded):
            await kernel.channel("news").listen("me").next(5)

    run_on(loop, main)


@given(st.lists(st.sampled_from(["publish", "hook", "broken", "listen", "forget", "close"]), max_size=40))
def test_publishing_never_raises_whatever_the_subscribers_do(acts: list[str]) -> None:
    told: list[tuple[Any, ...]] = []

    def on_drop(*words: Any) -> None:
        told.append(words)
        raise RuntimeError("even the reporter is broken")

    def broken(_: object) -> None:
        raise ValueError

    channel = Channel("news", VirtualClock(), on_drop)
    heard: list[int] = []
    expected = faults = 0
    hooked = ill = False
    for n, act in enumerate(acts):
        match act:
            case "publish":
                channel.publish(n)
                expected += hooked
                faults += ill
            case "hook":
                channel.subscribe("hook", heard.append)
                hooked = True
            case "broken":
                channel.subscribe("broken", broken)
                ill = True
            case "listen":
                channel.listen("reader", bound=2)
            case "forget":
                channel.forget("hook")
                hooked = False
            case _:
                channel.close()
                hooked = ill = False
    assert len(heard) == expected
    assert sum(1 for word in told if word[3] is not None) == faults

"""Reported faults of deliveries, each with the right outcome: killed at every step, stopped in the middle.

RT12: a crash between delivery and its acknowledgement. RT25: a graceful stop while a delivery is under way.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers_host import (
    KEY,
    Play,
    ask,
    calls,
    entries,
    hosted,
    messages,
    said_by_users,
    session_path,
    tells,
    virtual,
)
from helpers_kernel import each_loop
from helpers_outbox import Receiver, gated
from perdure.actors.outbox import Outlet
from perdure.contracts import Request
from perdure.edges.models.reply import ScriptedReply, say
from perdure.edges.session.writer import LocalSessionFile
from perdure.errors import StorageFailed
from perdure.host import Host
from perdure.kernel.run import Backend
from perdure.kernel.virtual import VirtualClock

WEEK = 7 * 86_400.0


def looks_then_speaks(body: dict[str, Any], request: Request) -> ScriptedReply:
    """A tool for a question, words for a result: whatever was said before a crash."""
    last = body["messages"][-1]["content"]
    return say("done") if any(b["type"] == "tool_result" for b in last) else calls("mark")


class Death:
    """Kills the host at the n-th moment: before or after a line is written, before or after an effect."""

    def __init__(self, at: int, clock: VirtualClock) -> None:
        self.left, self.dead, self.host = at, clock.waiter("the host's death"), None

    def moment(self, _name: str = "") -> None:
        """One step; the last one is the end: what calls this goes no further."""
        self.left -= 1
        if self.left == 0 and self.host is not None:
            self.host.kill()
            self.dead.set()
        if self.left <= 0:
            raise StorageFailed("the process is gone")


@contextmanager
def watched(death: Death, patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every append is two moments."""
    append = LocalSessionFile.append

    def dying(self: LocalSessionFile, lines: Any) -> Any:
        death.moment()
        ack = append(self, lines)
        death.moment()
        return ack

    with patch.context() as patched:
        patched.setattr(LocalSessionFile, "append", dying)
        yield


async def one_life(host: Host, death: Death, clock: VirtualClock, receiver: Receiver) -> None:
    """m1 is sent, and the host dies somewhere on the way."""
    await host.__aenter__()
    death.host, receiver.on_attempt = host, death.moment  # type: ignore[assignment]
    host.kernel.start("sender", lambda: _quietly(host))
    await clock.wait(death.dead, 600)
    await host.__aexit__(None, None, None)
    receiver.on_attempt = lambda _moment: None


async def _quietly(host: Host) -> None:
    try:
        await host.send(KEY, "m1", sender="anna", mid="m1", deliver=True, timeout=5)
    except Exception:
        return


@pytest.mark.parametrize("idempotent", [True, False])
def test_rt12_killed_at_every_step_m1_is_neither_lost_nor_run_nor_told_twice(
    idempotent: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deaths, outcomes = 0, set()
    for at in range(1, 40):
        folder = tmp_path / str(at)
        folder.mkdir()
        receiver, tool = Receiver(idempotent=idempotent), tells("mark")
        play = Play(*[looks_then_speaks] * 20)
        died: list[bool] = []

        async def main(clock: VirtualClock) -> Any:
            death = Death(at, clock)  # noqa: B023
            host = hosted(folder, play, clock, tools=[tool], channels=[receiver])  # noqa: B023
            with watched(death, monkeypatch):
                try:
                    await one_life(host, death, clock, receiver)  # noqa: B023
                except Exception:
                    if death.left > 0:  # it lived to its end: there are no more steps
                        await host.__aexit__(None, None, None)
                        return ()
                died.append(True)  # noqa: B023
            for _ in range(2):
                async with hosted(folder, play, clock, tools=[tool], channels=[receiver]) as again:  # noqa: B023
                    await again.send(KEY, "m1", sender="anna", mid="m1", deliver=True)
                    await clock.sleep(3600)
                    left = await again.outbox(KEY)
            return left

        left = virtual(main)
        if not died:
            break
        deaths += 1
        assert said_by_users(session_path(folder)) == ["m1"]
        assert tool.runs <= 1
        ends = [
            m for m in messages(session_path(folder), "assistant") if m["message"]["stopReason"] == "stop"
        ]
        assert len(ends) == 1
        assert len(receiver.ids) <= 1
        arrived = len(receiver.arrived)
        outcomes.add((arrived, tuple(each.state for each in left)))
        if idempotent:
            assert arrived >= 1
            assert left == ()
        else:
            assert arrived <= 1
            assert arrived == 1 or [each.state for each in left] == ["unknown"]
    assert deaths == 14  # around each of six lines, and of the effect
    assert (1, ()) in outcomes
    assert ((2, ()) if idempotent else (1, ("unknown",))) in outcomes  # between the effect and its record


def test_rt12_an_answer_of_a_week_ago_is_not_sent_and_is_told(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        receiver = Receiver(["retry"])
        host = hosted(tmp_path, Play(), clock, channels=[receiver])
        await host.__aenter__()
        await ask(host, "m1", deliver=True)
        await clock.sleep(1)
        host.kill()
        await host.__aexit__(None, None, None)
        await clock.sleep(WEEK)
        async with hosted(tmp_path, Play(), clock, channels=[receiver]) as again:
            await clock.sleep(60)
            assert [each.state for each in await again.outbox(KEY)] == ["expired"]
        assert len(receiver.attempts) == 1

    virtual(main)


@each_loop
def test_rt25_a_graceful_stop_waits_for_the_delivery_and_nothing_is_sent_again(
    loop: Backend, tmp_path: Path
) -> None:
    async def main(clock: VirtualClock) -> None:
        word, begun, go = gated(clock)
        receiver = Receiver([word], idempotent=False)
        async with hosted(tmp_path, Play(), clock, channels=[receiver]) as host:
            await ask(host, "m1", deliver=True)
            await clock.wait(begun, 10)
            clock.call_after(8, go.set)
        assert host.left_whole
        assert len(receiver.arrived) == 1
        async with hosted(tmp_path, Play(), clock, channels=[receiver]) as again:
            await clock.sleep(60)
            assert await again.outbox(KEY) == ()
        assert len(receiver.attempts) == 1

    virtual(main, loop)


@each_loop
def test_rt25_the_answer_of_a_turn_that_ends_during_the_stop_goes_out_before_its_end(
    loop: Backend, tmp_path: Path
) -> None:
    async def main(clock: VirtualClock) -> None:
        receiver = Receiver()
        async with hosted(tmp_path, Play(say("late", latency=5)), clock, channels=[receiver]) as host:
            await host.send(KEY, "m1", deliver=True)
        assert (receiver.texts, host.left_whole) == (["late"], True)

    virtual(main, loop)


@pytest.mark.parametrize("idempotent", [True, False])
def test_rt25_a_stop_is_bounded_and_what_it_cut_off_is_known(idempotent: bool, tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        word, _, _ = gated(clock)
        receiver = Receiver([word], idempotent=idempotent)
        began = clock.now()
        outlet = Outlet(receiver, timeout=86_400)
        async with hosted(tmp_path, Play(), clock, channels=[outlet]) as host:
            await ask(host, "m1", deliver=True)
            await clock.sleep(1)
        assert clock.now() - began < 60
        assert host.left_whole
        async with hosted(tmp_path, Play(), clock, channels=[receiver]) as again:
            await again.command(KEY, "/status")  # under virtual time there is no index that tells
            await clock.sleep(3600)
            left = [each.state for each in await again.outbox(KEY)]
        assert (left, len(receiver.attempts)) == (([], 2) if idempotent else (["unknown"], 1))
        assert len({each.id for each in receiver.attempts}) == 1

    virtual(main)


WORDS = st.sampled_from(["ok", "ok", "lost", "retry", "maybe", "bug"])
STEPS = st.lists(st.sampled_from(["say", "say", "wait", "wait long", "kill", "stop", "compact"]), max_size=9)


@settings(max_examples=15)
@given(idempotent=st.booleans(), script=st.lists(WORDS, max_size=8), steps=STEPS)
def test_rt12_whatever_fails_and_dies_each_answer_arrives_in_order_or_is_known_not_to(
    idempotent: bool, script: list[str], steps: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("life")
    receiver = Receiver(script, idempotent=idempotent)

    async def main(clock: VirtualClock) -> Any:
        host = hosted(folder, Play(), clock, channels=[receiver])
        await host.__aenter__()
        for n, step in enumerate(["say", *steps, "stop"]):
            if step == "say":
                await host.send(KEY, f"m{n}", mid=f"m{n}", deliver=True)
            elif step == "compact":
                await host.command(KEY, "/status")
            elif step.startswith("wait"):
                await clock.sleep(400.0 if step == "wait long" else 0.01)
            else:
                if step == "kill":
                    host.kill()
                await host.__aexit__(None, None, None)
                host = hosted(folder, Play(), clock, channels=[receiver])
                await host.__aenter__()
        await host.command(KEY, "/status")
        await clock.sleep(86_400)
        left = await host.outbox(KEY)
        await host.__aexit__(None, None, None)
        return left

    left = {each.entry: each.state for each in virtual(main)}
    owed = [e["id"] for e in entries(session_path(folder)) if e.get("perdure", {}).get("out", {}).get("to")]
    arrived = [each.entry for each in receiver.arrived]
    assert list(dict.fromkeys(arrived)) == [entry for entry in owed if entry in arrived], json.dumps(owed)
    assert len(receiver.ids) == len(set(arrived))
    for entry in owed:
        if idempotent:
            assert arrived.count(entry) >= 1
            assert entry not in left
        else:
            assert arrived.count(entry) <= 1
            assert arrived.count(entry) == 1 or left.get(entry) == "unknown"

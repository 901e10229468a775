"""What a program does with a host: send, receipt, reply, events, refusals."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from helpers_host import (
    INFO,
    KEY,
    Gate,
    Play,
    ask,
    calls,
    entries,
    hosted,
    messages,
    real,
    said_by_users,
    session_path,
    tells,
    virtual,
)
from helpers_kernel import each_loop, running_loop
from perdure.edges.models.reply import say
from perdure.errors import Busy, Closed, Locked, MessageTooLarge, UsageError
from perdure.events import Recorded, Said, ToolEnded, ToolStarted, TurnFinished, TurnStarted
from perdure.host import Host
from perdure.kernel.run import Backend
from perdure.kernel.virtual import VirtualClock
from perdure.records import ModelInfo


@each_loop
def test_the_example_of_the_readme_works_in_a_program_of_ones_own(loop: Backend, tmp_path: Path) -> None:
    async def main() -> str:
        assert running_loop() == loop
        async with Host(tmp_path, environ={}) as host:
            sent = await host.send("agent:main:cli:dm:local", "hello there")
            return (await sent.reply()).text

    assert "hello there" in real(main, loop)


@each_loop
def test_a_receipt_says_where_the_message_stands_and_a_reply_what_was_answered(
    loop: Backend, tmp_path: Path
) -> None:
    play = Play(say("first"), say("second"))

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, play, clock) as host:
            sent = await host.send(KEY, "one", sender="ann", mid="m1")
            assert (sent.receipt.key, sent.receipt.sender, sent.receipt.mid) == (KEY, "ann", "m1")
            assert messages(session_path(tmp_path))[0]["id"] == sent.receipt.entry
            reply = await sent.reply()
            assert (reply.text, reply.stop, reply.steps, reply.errors) == ("first", "stop", 1, ())
            assert [e["id"] for e in messages(session_path(tmp_path), "assistant")] == list(reply.entries)
            assert (await ask(host, "two")).text == "second"

    virtual(main, loop)
    assert said_by_users(session_path(tmp_path)) == ["one", "two"]


def test_events_tell_a_turn_in_its_order_and_only_of_the_session_asked_for(tmp_path: Path) -> None:
    play = Play(calls("look", text="let me look"), say("two words", chunks=2))

    async def main(clock: VirtualClock) -> list[object]:
        async with hosted(tmp_path, play, clock, tools=[tells("look")]) as host:
            stream = host.events(KEY)
            await ask(host, "hi", key="agent:main:cli:dm:other")
            await ask(host, "hi")
            seen = []
            async for event in stream:
                seen.append(event)
                if isinstance(event, TurnFinished):
                    break
            await stream.aclose()
            return seen

    seen = virtual(main)
    assert [type(e) for e in seen if not isinstance(e, Recorded)] == [
        TurnStarted, Said, ToolStarted, ToolEnded, Said, Said, TurnFinished
    ]  # fmt: skip
    kept = [e.entry for e in seen if isinstance(e, Recorded)]
    assert kept == [e["id"] for e in messages(session_path(tmp_path))]
    assert {e.key for e in seen} == {KEY}
    assert seen[-1].reply.text == "two words"


def test_a_redelivered_message_is_answered_from_the_record_without_a_second_turn(tmp_path: Path) -> None:
    play = Play(say("once"))

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, play, clock) as host:
            first = await host.send(KEY, "hi", mid="m")
            assert (await first.reply()).text == "once"
            again = await host.send(KEY, "hi", mid="m")
            assert again.receipt.repeated
            assert again.receipt.entry == first.receipt.entry
            assert (await again.reply()).text == "once"
        async with hosted(tmp_path, play, clock) as host:
            after = await host.send(KEY, "hi", mid="m")
            assert after.receipt.repeated
            assert (await after.reply()).text == "once"
            other = await host.send(KEY, "hi", sender="somebody else", mid="m")
            assert not other.receipt.repeated
            await other.reply()

    virtual(main)
    assert len(play.bodies[KEY]) == 2
    assert said_by_users(session_path(tmp_path)) == ["hi", "hi"]


def test_a_message_redelivered_while_its_turn_runs_waits_for_that_turn(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        gate = Gate(clock, say("late"))
        play = Play(gate)
        async with hosted(tmp_path, play, clock) as host:
            first = await host.send(KEY, "hi", mid="m")
            await gate.arrived()
            again = await host.send(KEY, "hi", mid="m")
            assert again.receipt.repeated
            gate.open()
            assert (await again.reply()).text == (await first.reply()).text == "late"
        assert len(play.bodies[KEY]) == 1

    virtual(main)


def test_an_old_message_redelivered_during_another_turn_gets_its_own_answer(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        gate = Gate(clock, say("second"))
        play = Play(say("first"), gate)
        async with hosted(tmp_path, play, clock) as host:
            await ask(host, "one", mid="m1")
            two = await host.send(KEY, "two", mid="m2")
            await gate.arrived()
            again = await host.send(KEY, "one", mid="m1")
            gate.open()
            assert (await again.reply()).text == "first"
            assert (await two.reply()).text == "second"

    virtual(main)


def test_the_recorded_answer_is_that_of_the_whole_turn_also_after_steering(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        gate = Gate(clock)
        play = Play(calls("slow", text="working"), say("the end"))
        async with hosted(tmp_path, play, clock, tools=[gate.tool("slow")]) as host:
            first = await host.send(KEY, "one", mid="m1")
            await gate.arrived()
            await host.send(KEY, "steer", mid="m2")
            gate.open()
            assert (await first.reply()).text == "the end"
            again = await host.send(KEY, "one", mid="m1")
            reply = await again.reply()
            assert (reply.text, reply.stop) == ("the end", "stop")

    virtual(main)


def test_a_message_that_cannot_fit_the_window_is_refused_before_it_is_acknowledged(tmp_path: Path) -> None:
    info = ModelInfo("scripted", "small", window=8_000)
    play = Play()

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, play, clock, info=info) as host:
            with pytest.raises(MessageTooLarge, match=r"about \d[\d,]+ tokens.*room for \d[\d,]+") as caught:
                await host.send(KEY, "word " * 20_000)
            assert caught.value.tokens > caught.value.room > 0
            assert (await ask(host, "short")).stop == "stop"

    virtual(main)
    assert said_by_users(session_path(tmp_path)) == ["short"]


def test_an_empty_message_and_a_key_that_cannot_be_are_refused_in_one_line(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, Play(), clock) as host:
            for key, text in [(KEY, ""), ("", "x"), ("a\nb", "x"), ("k" * 600, "x")]:
                with pytest.raises(UsageError) as caught:
                    await host.send(key, text)
                assert "\n" not in str(caught.value)

    virtual(main)
    assert not session_path(tmp_path).exists()


def test_any_printable_key_is_a_session_that_stays_inside_the_state_folder(tmp_path: Path) -> None:
    keys = ["../../escape", "agent:../x:y:z:w", "/etc/passwd", "näme ☃", "a" * 512, "agent:main:cli:dm:.."]

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, Play(), clock) as host:
            for key in keys:
                assert (await ask(host, f"from {key}", key=key)).stop == "stop"
            for key in keys:
                assert host.files.path(key).resolve().is_relative_to((tmp_path / "state").resolve())
                assert said_by_users(host.files.path(key)) == [f"from {key}"]

    virtual(main)


def test_a_full_mailbox_refuses_with_busy_and_nothing_is_written(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        gate = Gate(clock)
        play = Play(gate)
        async with hosted(tmp_path, play, clock) as host:
            first = await host.send(KEY, "first")
            await gate.arrived()
            accepted = [first]

            async def flood() -> None:
                for n in range(5_000):
                    accepted.append(await host.send(KEY, f"more {n}"))  # noqa: PERF401

            with pytest.raises(Busy, match="again"):
                await flood()
            gate.open()
            await accepted[-1].reply()
            await ask(host, "after")
            said = said_by_users(session_path(tmp_path))
            assert said == ["first", *(f"more {n}" for n in range(len(accepted) - 1)), "after"]

    virtual(main)


def test_a_host_that_stops_refuses_new_messages_and_those_who_wait_are_told(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        gate = Gate(clock)
        host = hosted(tmp_path, Play(gate), clock)
        async with host:
            await ask(host, "hi", key="agent:main:cli:dm:other")
            sent = await host.send(KEY, "hi")
            await gate.arrived()
        with pytest.raises(Closed):
            await host.send(KEY, "too late")
        with pytest.raises(Closed):
            await sent.reply(1)

    virtual(main)


@each_loop
def test_a_host_that_stops_lets_a_turn_end_first(loop: Backend, tmp_path: Path) -> None:
    play = Play(say("slow but sure", latency=5))

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, play, clock) as host:
            sent = await host.send(KEY, "hi")
        assert (await sent.reply(1)).text == "slow but sure"

    virtual(main, loop)
    assert not list((tmp_path / "state").rglob("*.jsonl.lock"))


@each_loop
def test_a_turn_longer_than_the_grace_is_stopped_and_the_files_are_left_whole(
    loop: Backend, tmp_path: Path
) -> None:
    play = Play(say("never", latency=5_000))

    async def main(clock: VirtualClock) -> float:
        async with hosted(tmp_path, play, clock) as host:
            await host.send(KEY, "hi")
            await ask(host, "hi", key="agent:main:cli:dm:other")
        assert host.left_whole
        return clock.now()

    assert virtual(main, loop) < 31
    assert not list((tmp_path / "state").rglob("*.jsonl.lock"))
    assert entries(session_path(tmp_path))[-1]["message"]["role"] == "user"


def test_a_second_host_of_the_same_folder_is_refused_with_the_holder(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, Play(), clock):
            with pytest.raises(Locked, match="pid"):
                async with hosted(tmp_path, Play(), clock):
                    pass
        async with hosted(tmp_path, Play(), clock) as host:
            assert (await ask(host, "hi")).text == "ok 1"

    virtual(main)


@each_loop
def test_a_host_may_be_opened_and_closed_without_a_word_under_any_loop(loop: Backend, tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        for _ in range(3):
            async with hosted(tmp_path, Play(), clock):
                pass
        async with hosted(tmp_path, Play(), clock) as host:
            await ask(host, "hi")

    virtual(main, loop)


def test_a_session_whose_file_cannot_be_read_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        path = session_path(tmp_path)
        path.parent.mkdir(parents=True)
        path.write_bytes(b"\x00\x01 not a session\n")
        async with hosted(tmp_path, Play(), clock) as host:
            for _ in range(3):
                with pytest.raises(Exception, match=re.escape(path.name)) as caught:
                    await host.send(KEY, "hi")
                assert "\n" not in str(caught.value)
            assert (await ask(host, "hi", key="agent:main:cli:dm:other")).stop == "stop"
        assert path.read_bytes() == b"\x00\x01 not a session\n"

    virtual(main)


def test_the_model_sees_what_was_said_before(tmp_path: Path) -> None:
    play = Play(say("a"), say("b"))

    async def main(clock: VirtualClock) -> None:
        for text in ("one", "two"):
            async with hosted(tmp_path, play, clock) as host:
                await ask(host, text)

    virtual(main)
    sent = play.last()["messages"]
    assert [m["role"] for m in sent] == ["user", "assistant", "user"]
    assert INFO.id == play.last()["model"]

"""Turns: steering, follow-ups, aborts, commands, faults of tools and models, each told in its type."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

from helpers_host import (
    KEY,
    START,
    Fn,
    Gate,
    Play,
    accepted,
    ask,
    calls,
    hosted,
    messages,
    notices,
    real,
    said_by_users,
    session_path,
    tells,
    text_of,
    virtual,
)
from helpers_kernel import each_loop
from perdure.actors.services import Timing
from perdure.contracts import ToolContext, ToolOutput
from perdure.edges.models.reply import ScriptedReply, call, fail, say
from perdure.errors import Busy, ModelError, UsageError
from perdure.kernel.clock import RealClock
from perdure.kernel.run import Backend
from perdure.kernel.virtual import VirtualClock
from perdure.records import ModelInfo, Text, User

OTHER = "agent:main:cli:dm:other"


def roles(path: Path) -> list[str]:
    return [e["message"]["role"] for e in messages(path)]


# --- steering -------------------------------------------------------------------------------------


@each_loop
def test_a_message_during_a_turn_enters_after_the_complete_batch(loop: Backend, tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        gate = Gate(clock)
        play = Play(calls("fast", "slow"), say("steered"))
        async with hosted(tmp_path, play, clock, tools=[tells("fast"), gate.tool("slow")]) as host:
            first = await host.send(KEY, "go")
            await gate.arrived()
            second = await host.send(KEY, "not that way")
            gate.open()
            assert (await first.reply()).text == (await second.reply()).text == "steered"
        last = play.last()["messages"]
        assert [b["type"] for b in last[-1]["content"]] == ["tool_result", "tool_result", "text"]
        assert "not that way" in last[-1]["content"][-1]["text"]
        accepted(play.bodies[KEY])

    virtual(main, loop)
    found = roles(session_path(tmp_path))
    assert found == ["user", "assistant", "toolResult", "toolResult", "user", "assistant"]


def test_a_message_after_the_last_step_of_a_turn_begins_the_next_one(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        gate = Gate(clock, say("first"))
        play = Play(gate, say("second"))
        async with hosted(tmp_path, play, clock) as host:
            one = await host.send(KEY, "one")
            await gate.arrived()
            two = await host.send(KEY, "two")
            three = await host.send(KEY, "three")
            gate.open()
            assert (await one.reply()).text == "first"
            assert (await two.reply()).text == (await three.reply()).text == "second"

    virtual(main)
    assert roles(session_path(tmp_path)) == ["user", "assistant", "user", "user", "assistant"]


# --- abort ----------------------------------------------------------------------------------------


@each_loop
def test_an_abort_during_the_models_stream_keeps_what_was_said(loop: Backend, tmp_path: Path) -> None:
    play = Play(say("one two three four", chunks=4, pace=1.0))

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, play, clock) as host:
            sent = await host.send(KEY, "go")
            await clock.sleep(1.5)
            assert await host.abort(KEY)
            reply = await sent.reply()
            assert reply.stop == "aborted"
            assert "one two three four".startswith(reply.text)
            assert reply.text
            assert not await host.abort(KEY)
            assert (await ask(host, "again")).stop == "stop"
        accepted(play.bodies[KEY])

    virtual(main, loop)
    stored = messages(session_path(tmp_path), "assistant")[0]["message"]
    assert (stored["stopReason"], bool(text_of(stored))) == ("aborted", True)


@each_loop
def test_an_abort_during_a_tool_is_obeyed_and_the_next_request_is_whole(
    loop: Backend, tmp_path: Path
) -> None:
    async def main(clock: VirtualClock) -> None:
        gate = Gate(clock)
        play = Play(calls("fast", "slow"))
        async with hosted(tmp_path, play, clock, tools=[tells("fast"), gate.tool("slow")]) as host:
            sent = await host.send(KEY, "go")
            await gate.arrived()
            await host.send(KEY, "while it ran")
            assert await host.abort(KEY)
            assert (await sent.reply()).stop == "aborted"
            assert (await ask(host, "and now")).stop == "stop"
        assert play.refused == 0
        accepted(play.bodies[KEY])

    virtual(main, loop)
    assert said_by_users(session_path(tmp_path)) == ["go", "while it ran", "and now"]


def test_an_abort_while_the_view_is_made_smaller_ends_the_turn(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        gate = Gate(clock, say("The summary of it all is here."))
        play = Play(say("a " * 2000), fail("overflow"), summary=gate)
        async with hosted(tmp_path, play, clock) as host:
            await ask(host, "one")
            sent = await host.send(KEY, "two")
            await gate.arrived()
            assert await host.abort(KEY)
            assert (await sent.reply()).stop == "aborted"
            gate.open()
            assert (await ask(host, "three")).stop == "stop"
        assert play.refused == 0

    virtual(main)


@each_loop
def test_a_tool_that_swallows_its_cancellation_is_declared_lost_and_the_session_goes_on(
    loop: Backend, tmp_path: Path
) -> None:
    async def main(clock: VirtualClock) -> None:
        begun, released = clock.waiter("begun"), False

        async def stubborn(arguments: Mapping[str, Any], context: ToolContext) -> str:
            begun.set()
            while not released:
                try:
                    await clock.sleep(1)
                except BaseException as error:
                    if isinstance(error, GeneratorExit):
                        raise
            return "much too late"

        play = Play(calls("stubborn"))
        async with hosted(tmp_path, play, clock, tools=[Fn("stubborn", stubborn)]) as host:
            sent = await host.send(KEY, "go")
            await clock.wait(begun, 100)
            assert await host.abort(KEY)
            reply = await sent.reply(1000)
            assert reply.stop in ("aborted", "error")
            assert (await ask(host, "neighbour", key=OTHER)).stop == "stop"
            assert (await ask(host, "again")).stop == "stop"
            released = True  # no loop can leave a living task behind
        assert play.refused == 0

    virtual(main, loop)


# --- stray cancellations on asyncio ---------------------------------------------------------------


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize("grouped", [False, True])
def test_a_stray_cancellation_in_a_tool_harms_that_call_only(
    loop: Backend, grouped: bool, tmp_path: Path
) -> None:
    async def stray(arguments: Mapping[str, Any], context: ToolContext) -> str:
        await anyio.lowlevel.checkpoint()
        error = asyncio.CancelledError("a library's own")
        raise BaseExceptionGroup("several", [error]) if grouped else error

    async def main() -> None:
        clock = RealClock()
        gate = Gate(clock)
        play = Play(calls("fine", "stray"), say("went on"))
        play.then(calls("slow"), say("neighbour"), key=OTHER)
        tools = [tells("fine"), Fn("stray", stray), gate.tool("slow")]
        async with hosted(tmp_path, play, clock, tools=tools) as host:
            neighbour = await host.send(OTHER, "wait")
            await gate.arrived()
            reply = await ask(host, "go")
            assert (reply.text, reply.stop) == ("went on", "stop")
            gate.open()
            assert (await neighbour.reply()).text == "neighbour"
        results = [b for b in play.last()["messages"][-1]["content"] if b["type"] == "tool_result"]
        assert [bool(b.get("is_error")) for b in results] == [False, True]

    real(main, loop)


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_stray_cancellation_in_a_model_call_harms_that_turn_only(loop: Backend, tmp_path: Path) -> None:
    async def main() -> None:
        clock = RealClock()
        gate = Gate(clock, say("neighbour"))
        play = Play(asyncio.CancelledError("a library's own"))
        play.then(gate, key=OTHER)
        async with hosted(tmp_path, play, clock) as host:
            neighbour = await host.send(OTHER, "wait")
            await gate.arrived()
            reply = await ask(host, "go")
            assert reply.stop == "error"
            assert "nobody asked for" in reply.errors[0]
            gate.open()
            assert (await neighbour.reply()).text == "neighbour"
            assert (await ask(host, "again")).stop == "stop"

    real(main, loop)


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_library_that_cancels_the_task_it_runs_in_harms_that_turn_only(
    loop: Backend, tmp_path: Path
) -> None:
    async def main() -> None:
        def cancels(body: Any, request: Any) -> Any:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            return asyncio.sleep(10)

        play = Play(cancels)
        async with hosted(tmp_path, play, RealClock()) as host:
            assert (await ask(host, "go")).stop == "error"
            assert [(await ask(host, f"again {n}")).stop for n in range(3)] == ["stop"] * 3
            assert (await ask(host, "hi", key=OTHER)).stop == "stop"

    real(main, loop)


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_turn_that_swallows_its_cancellation_leaves_host_and_neighbours_alone(
    loop: Backend, tmp_path: Path
) -> None:
    async def main() -> None:
        clock = RealClock()
        begun = clock.waiter("begun")

        async def swallows(body: Any, request: Any) -> ScriptedReply:
            begun.set()
            try:
                await clock.sleep(1000)
            except asyncio.CancelledError:
                pass
            return say("as if nothing had been")

        play = Play(swallows)
        async with hosted(tmp_path, play, clock) as host:
            sent = await host.send(KEY, "go")
            await clock.wait(begun, 10)
            assert await host.abort(KEY)
            assert (await sent.reply()).stop == "aborted"
            assert (await ask(host, "hi", key=OTHER)).stop == "stop"
            assert (await ask(host, "again")).stop == "stop"

    real(main, loop)


# --- tools ----------------------------------------------------------------------------------------

BAD_OUTPUTS: dict[str, Any] = {
    "nothing": None,
    "number": 3,
    "text in place of a block": ToolOutput(("plain",)),  # type: ignore[arg-type]
    "a message": ToolOutput((User((Text("x"),)),)),  # type: ignore[arg-type]
    "details that are no JSON": ToolOutput((Text("fine"),), details=b"{nope"),
    "details on two lines": ToolOutput((Text("fine"),), details=b'{"a":\n1}'),
    "details that are text": ToolOutput((Text("fine"),), details='{"a":1}'),  # type: ignore[arg-type]
    "a text that is a number": ToolOutput((Text(5),)),  # type: ignore[arg-type]
    "content that is no sequence": ToolOutput(7),  # type: ignore[arg-type]
    "no content": ToolOutput(()),
    "lone surrogates and control bytes": ToolOutput((Text("a\ud800b\x00c\x1b[31m"),)),
    "full output that is text": ToolOutput((Text("fine"),), full="whole"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", BAD_OUTPUTS)
def test_whatever_a_tool_returns_becomes_a_result_and_the_turn_goes_on(name: str, tmp_path: Path) -> None:
    async def odd(arguments: Mapping[str, Any], context: ToolContext) -> Any:
        return BAD_OUTPUTS[name]

    async def main(clock: VirtualClock) -> None:
        play = Play(calls("odd", "fine"), say("went on"))
        async with hosted(tmp_path, play, clock, tools=[Fn("odd", odd), tells("fine")]) as host:
            reply = await ask(host, "go")
            assert (reply.text, reply.stop) == ("went on", "stop")
            assert host.kernel.stats().crashes == 0
        assert play.refused == 0
        async with hosted(tmp_path, play, clock, tools=[Fn("odd", odd), tells("fine")]) as host:
            assert (await ask(host, "again")).stop == "stop"
        assert play.refused == 0
        accepted(play.bodies[KEY])

    virtual(main)
    assert all(json.loads(row) for row in session_path(tmp_path).read_bytes().splitlines())


@each_loop
def test_a_tool_that_raises_or_hangs_gives_an_error_result_with_its_words(
    loop: Backend, tmp_path: Path
) -> None:
    async def main(clock: VirtualClock) -> None:
        async def breaks(arguments: Mapping[str, Any], context: ToolContext) -> str:
            raise RuntimeError("the flux is out")

        async def exits(arguments: Mapping[str, Any], context: ToolContext) -> str:
            raise TimeoutError

        async def hangs(arguments: Mapping[str, Any], context: ToolContext) -> str:
            await clock.wait(clock.waiter("nothing"), 10_000_000)
            return "never"

        play = Play(calls("breaks", "exits", "hangs"), say("went on"))
        tools = [Fn("breaks", breaks), Fn("exits", exits), Fn("hangs", hangs)]
        async with hosted(tmp_path, play, clock, tools=tools, timing=Timing(tool=30)) as host:
            assert (await ask(host, "go")).text == "went on"
        told = [text_of(e["message"]) for e in messages(session_path(tmp_path), "toolResult")]
        assert all(e["message"]["isError"] for e in messages(session_path(tmp_path), "toolResult"))
        assert any("the flux is out" in text for text in told)
        assert any("30 seconds" in text for text in told)

    virtual(main, loop)


def test_a_tool_that_ignores_its_deadline_does_not_hold_its_turn_for_ever(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        async def stubborn(arguments: Mapping[str, Any], context: ToolContext) -> str:
            for _ in range(50):
                try:
                    await clock.sleep(3)
                except BaseException as error:
                    if isinstance(error, GeneratorExit):
                        raise
            return await clock.wait(clock.waiter("nothing"))

        play = Play(calls("stubborn"), say("went on"))
        async with hosted(
            tmp_path, play, clock, tools=[Fn("stubborn", stubborn)], timing=Timing(tool=30)
        ) as host:
            assert (await ask(host, "go")).text == "went on"

    virtual(main)


def test_an_unknown_tool_and_arguments_that_cannot_be_read_are_told_to_the_model(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        tool = tells("look")
        play = Play(calls("lok"), calls("look", fault="malformed_arguments"), say("sorry"), say("still here"))
        async with hosted(tmp_path, play, clock, tools=[tool]) as host:
            assert (await ask(host, "go")).text == "sorry"
            assert tool.runs == 0
            assert (await ask(host, "go")).text == "still here"
        told = [text_of(e["message"]) for e in messages(session_path(tmp_path), "toolResult")]
        assert "Did you mean look?" in told[0]
        assert "not valid JSON" in told[1]
        assert play.refused == 0

    virtual(main)


def test_results_stand_in_call_order_for_the_model_whatever_came_first(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        async def after(seconds: float, text: str) -> str:
            await clock.sleep(seconds)
            return text

        tools = [Fn(f"t{n}", lambda a, c, n=n: after(3 - n, f"result {n}")) for n in range(3)]
        play = Play(calls("t0", "t1", "t2"), say("done"))
        async with hosted(tmp_path, play, clock, tools=tools) as host:
            await ask(host, "go")
            assert clock.now() < 5
        told = [text_of(e["message"]) for e in messages(session_path(tmp_path), "toolResult")]
        assert told == ["result 2", "result 1", "result 0"]
        shown = [b["content"] for b in play.last()["messages"][-1]["content"] if b["type"] == "tool_result"]
        assert [str(n) in json.dumps(b) for n, b in enumerate(shown)] == [True] * 3

    virtual(main)


# --- models ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["rate_limit", "overloaded", "server", "cut", "empty", "overloaded_midway"])
def test_what_may_pass_is_tried_again_and_nothing_of_it_stays(fault: Any, tmp_path: Path) -> None:
    play = Play(ScriptedReply((Text("half of it"),), fault=fault, chunks=4), say("whole"))

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, play, clock) as host:
            seen = notices(host)
            reply = await ask(host, "go")
            assert (reply.text, reply.stop, reply.steps) == ("whole", "stop", 1)
            assert len(reply.errors) == 1
            assert [n.kind for n in seen] == ["retry"]

    virtual(main)
    assert roles(session_path(tmp_path)) == ["user", "assistant"]
    assert play.bodies[KEY][0] == play.bodies[KEY][1]


def test_a_retry_waits_as_long_as_the_provider_asked(tmp_path: Path) -> None:
    play = Play(fail("rate_limit", retry_after=42.0), say("whole"))

    async def main(clock: VirtualClock) -> float:
        async with hosted(tmp_path, play, clock) as host:
            await ask(host, "go")
            return clock.now()

    assert 42 <= virtual(main) < 43


@pytest.mark.parametrize(
    ("fault", "tries"), [("auth", 1), ("billing", 1), ("refusal", 1), ("empty", 3), ("stall", 3)]
)
def test_a_model_that_keeps_failing_ends_the_turn_with_its_error_and_the_session_goes_on(
    fault: Any, tries: int, tmp_path: Path
) -> None:
    reply = ScriptedReply((Text("x"),) if fault == "refusal" else (), fault=fault)
    play = Play(*[reply] * tries, say("fine again"))

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, play, clock, timing=Timing(retries=2)) as host:
            failed = await ask(host, "go")
            assert failed.stop == "error"
            assert failed.errors
            assert "\n" not in failed.errors[-1]
            assert (await ask(host, "again")).text == "fine again"
        assert play.refused == 0
        accepted(play.bodies[KEY])

    virtual(main)
    assert messages(session_path(tmp_path), "assistant")[0]["message"]["stopReason"] == "error"


def test_a_model_that_raises_what_it_must_not_harms_its_turn_only(tmp_path: Path) -> None:
    play = Play(ZeroDivisionError("a bug"), ModelError("unknown", "strange"), say("fine"))

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, play, clock) as host:
            for expected in ("a bug", "strange"):
                reply = await ask(host, "go")
                assert reply.stop == "error"
                assert expected in reply.errors[-1]
            assert (await ask(host, "go")).text == "fine"

    virtual(main)


def test_a_turn_without_end_is_stopped_after_its_most_steps(tmp_path: Path) -> None:
    play = Play(*[ScriptedReply((call("look"),))] * 10)

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, play, clock, tools=[tells("look")], timing=Timing(max_steps=4)) as host:
            reply = await ask(host, "go")
            assert (reply.stop, reply.steps) == ("error", 4)
            assert "4 steps" in reply.errors[-1]

    virtual(main)


# --- commands -------------------------------------------------------------------------------------


def test_commands_answer_in_words_and_wrong_ones_say_what_is_right(tmp_path: Path) -> None:
    small = ModelInfo("scripted", "small", window=50_000)

    async def main(clock: VirtualClock) -> None:
        play = Play()
        async with hosted(tmp_path, play, clock, models={"scripted/small": small}) as host:
            await ask(host, "hi")
            assert KEY in await host.command(KEY, "/status")
            assert "of 200,000 tokens" in await host.command(KEY, "/status")
            assert "'a name'" in await host.command(KEY, "/name a name")
            assert "50,000" in await host.command(KEY, "/model scripted/small")
            assert "low" in await host.command(KEY, "/think low")
            assert "Nothing" in await host.command(KEY, "/abort")
            assert "Nothing was compacted" in await host.command(KEY, "/compact")
            for wrong in ("/nope", "/model nobody/nothing", "/think loud", "/name"):
                with pytest.raises(UsageError) as caught:
                    await host.command(KEY, wrong)
                assert "\n" not in str(caught.value)
        async with hosted(tmp_path, play, clock, models={"scripted/small": small}) as host:
            told = await host.command(KEY, "/status")
            assert all(part in told for part in ("a name", "scripted/small", "thinking low", "50,000"))

    virtual(main)


def test_a_note_is_recorded_between_turns_only(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        gate = Gate(clock)
        play = Play(gate, say("seen"))
        async with hosted(tmp_path, play, clock) as host:
            sent = await host.send(KEY, "go")
            await gate.arrived()
            with pytest.raises(Busy):
                await host.note(KEY, User((Text("beside"),), START))
            gate.open()
            await sent.reply()
            entry = await host.note(KEY, User((Text("beside"),), START))
            assert entry == messages(session_path(tmp_path))[-1]["id"]
            await ask(host, "more")
        assert "beside" in play.bodies[KEY][-1].decode()

    virtual(main)

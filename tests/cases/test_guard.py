"""Reported faults of tool batches under way: crashes, aborts, order, steering."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from helpers_cases import covers, made_calls, results
from helpers_host import (
    KEY,
    Fn,
    Gate,
    Play,
    accepted,
    ask,
    calls,
    entries,
    hosted,
    messages,
    said_by_users,
    session_path,
    tells,
    text_of,
    virtual,
)
from perdure.actors.messages import Append
from perdure.contracts import ToolContext
from perdure.edges.models.reply import ScriptedReply, call, fail, say
from perdure.errors import PerdureError
from perdure.events import ToolEnded, ToolStarted
from perdure.kernel.virtual import VirtualClock
from perdure.records import ModelInfo, Text, ToolResult

SMALL = ModelInfo("scripted", "test", window=16_000, cache_minimum=16)
WORDS = "The lemon tree in row seven needs water and a stake before the wind comes on Thursday. "


def long(n: int, repeat: int = 90) -> ScriptedReply:
    return say(f"Answer {n}. " + WORDS * repeat)


def compaction_at(path: Path) -> int:
    return [entry["type"] for entry in entries(path)].index("compaction")


@covers("GD01")
def test_after_a_compaction_nothing_names_the_call_that_an_abort_left_open(tmp_path: Path) -> None:
    play = Play(calls("first"), *[long(n) for n in range(4)])

    async def main(clock: VirtualClock) -> None:
        gate = Gate(clock)
        tools = [gate.tool("first"), tells("second")]
        async with hosted(tmp_path, play, clock, info=SMALL, tools=tools) as host:
            await host.send(KEY, "go")
            await gate.arrived()
            assert await host.abort(KEY)
            for n in range(4):
                await ask(host, f"question {n}")
            assert (await host.command(KEY, "/compact")).startswith("Compacted")
            play.queues[KEY].clear()
            play.then(calls("second"), say("paired"))
            assert (await ask(host, "and now")).text == "paired"
        assert play.refused == 0

    virtual(main)
    path = session_path(tmp_path)
    later = entries(path)[compaction_at(path) + 1 :]
    assert "toolu_first_0" not in json.dumps(later)
    assert all(b"first_0" not in body and b"first0" not in body for body in play.bodies[KEY][-2:])
    assert [r["tool_use_id"] for r in results(play.last())] == [c["id"] for c in made_calls(play.last())]
    accepted(play.bodies[KEY], SMALL)


@covers("GD02")
def test_a_finished_result_is_on_disk_before_the_batch_ends_and_survives_a_kill(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        gate, play = Gate(clock), Play(calls("fast", "slow"), say("taken up"))
        fast, slow = tells("fast", "the real one"), tells("slow")
        host = hosted(tmp_path, play, clock, tools=[fast, gate.tool("slow")])
        await host.__aenter__()
        await host.send(KEY, "go")
        await gate.arrived()
        await clock.sleep(1)
        (stored,) = messages(session_path(tmp_path), "toolResult")
        assert text_of(stored["message"]) == "the real one"
        host.kill()
        await host.__aexit__(None, None, None)
        async with hosted(tmp_path, play, clock, tools=[fast, slow]):
            await clock.sleep(5)
        assert (fast.runs, slow.runs) == (1, 0)
        sent = results(play.last())
        assert [r["tool_use_id"] for r in sent] == [c["id"] for c in made_calls(play.last())]
        assert ["the real one" in json.dumps(r) for r in sent] == [True, False]
        assert ["may have run" in json.dumps(r) for r in sent] == [False, True]
        accepted(play.bodies[KEY])

    virtual(main)


@covers("GD03")
def test_a_compaction_waits_for_the_batch_that_is_not_answered_yet(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        summary, slow = Gate(clock, say("The lemon tree was discussed at length.")), Gate(clock)
        play = Play(*[long(n) for n in range(12)], summary=summary)
        async with hosted(tmp_path, play, clock, info=SMALL, tools=[slow.tool("slow")]) as host:
            for n in range(12):
                await ask(host, f"question {n}")
                await clock.sleep(0.1)
                if summary.begun.done:
                    break
            play.queues[KEY].clear()
            play.then(calls("slow"), say("done"))
            sent = await host.send(KEY, "use the tool")
            await slow.arrived()
            summary.open()
            await clock.sleep(5)
            slow.open()
            assert (await sent.reply()).text == "done"
            await ask(host, "after")
        assert play.refused == 0
        path = session_path(tmp_path)
        rows = entries(path)
        answered = next(n for n, row in enumerate(rows) if row.get("message", {}).get("role") == "toolResult")
        assert compaction_at(path) > answered
        assert len(results(play.last())) == len(made_calls(play.last())) == 1

    virtual(main)


@covers("GD05")
def test_no_tool_starts_before_the_answer_that_calls_it_is_written(tmp_path: Path) -> None:
    seen: list[bool] = []

    async def looks(arguments: Mapping[str, Any], context: ToolContext) -> str:
        stored = messages(session_path(tmp_path), "assistant")[-1]["message"]
        seen.append(any(block.get("id") == context.call_id for block in stored["content"]))
        return "ok"

    async def main(clock: VirtualClock) -> None:
        play = Play(calls("looks", "looks"), say("done"))
        async with hosted(tmp_path, play, clock, tools=[Fn("looks", looks)]) as host:
            await ask(host, "go")

    virtual(main)
    assert seen == [True, True]
    kinds = [row["message"]["role"] for row in messages(session_path(tmp_path))]
    assert kinds == ["user", "assistant", "toolResult", "toolResult", "assistant"]


@covers("GD05")
def test_a_report_for_a_call_that_nobody_made_is_refused_logged_and_never_stored(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        gate, play = Gate(clock), Play(calls("slow"), say("done"))
        async with hosted(tmp_path, play, clock, tools=[gate.tool("slow")]) as host:
            sent = await host.send(KEY, "go")
            await gate.arrived()
            session = host.directory.awake[KEY]
            stray = ToolResult("toolu_nobody", "slow", (Text("from nowhere"),))
            done: Any = clock.waiter("the stray report")
            session.ref.post(Append(session.turns.number, stray, done))
            with pytest.raises(PerdureError, match="toolu_nobody"):
                await clock.wait(done, 5)
            gate.open()
            assert (await sent.reply()).text == "done"
        accepted(play.bodies[KEY])

    virtual(main)
    assert "from nowhere" not in session_path(tmp_path).read_text()
    assert "turn.stray_result" in (tmp_path / "state" / "runtime.log").read_text()


@covers("GD06")
def test_calls_of_one_name_that_end_out_of_order_keep_their_own_output(tmp_path: Path) -> None:
    order: list[tuple[str, str, float]] = []
    ids = {"one": "toolu_1", "two": "toolu_2"}
    made = [call("bash", ids[name], cmd=name) for name in ids]

    async def main(clock: VirtualClock) -> None:
        async def bash(arguments: Mapping[str, Any], context: ToolContext) -> str:
            await clock.sleep(3 if arguments["cmd"] == "one" else 1)
            return f"output of {arguments['cmd']}"

        def note(event: object) -> None:
            if isinstance(event, ToolStarted | ToolEnded):
                order.append((type(event).__name__, event.call_id, clock.now()))

        play = Play(ScriptedReply(tuple(made)), say("done"))
        async with hosted(tmp_path, play, clock, tools=[Fn("bash", bash)]) as host:
            host.services.events.subscribe("test", note)
            await ask(host, "go")
            asked = {c["input"]["cmd"]: c["id"] for c in made_calls(play.last())}
            sent = {r["tool_use_id"]: json.dumps(r["content"]) for r in results(play.last())}
            assert list(sent) == list(asked.values())
            assert all(f"output of {name}" in sent[ident] for name, ident in asked.items())

    virtual(main)
    stored = {
        e["message"]["toolCallId"]: text_of(e["message"])
        for e in messages(session_path(tmp_path), "toolResult")
    }
    assert stored == {ident: f"output of {name}" for name, ident in ids.items()}
    began = {ident: at for kind, ident, at in order if kind == "ToolStarted"}
    ended = {ident: at for kind, ident, at in order if kind == "ToolEnded"}
    assert {ident: round(ended[ident] - began[ident]) for ident in began} == {"toolu_1": 3, "toolu_2": 1}


@covers("GD09")
def test_a_model_that_fails_after_a_tool_ran_goes_on_from_the_stored_result(tmp_path: Path) -> None:
    pay = tells("pay", "paid 7")
    play = Play(calls("pay"), fail("server"), say("all paid"))

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, play, clock, tools=[pay]) as host:
            assert (await ask(host, "pay 7")).text == "all paid"

    virtual(main)
    assert pay.runs == 1
    assert play.bodies[KEY][1] == play.bodies[KEY][2]
    assert "paid 7" in json.dumps(results(play.last()))
    assert len(messages(session_path(tmp_path), "toolResult")) == 1


@covers("GD10")
@pytest.mark.parametrize("aborted", [False, True])
def test_what_is_typed_during_a_batch_enters_behind_it_once_or_begins_a_new_turn(
    aborted: bool, tmp_path: Path
) -> None:
    async def main(clock: VirtualClock) -> None:
        one, two = Gate(clock), Gate(clock)
        play = Play(calls("one", "two"), say("on port 9000"))
        async with hosted(tmp_path, play, clock, tools=[one.tool("one"), two.tool("two")]) as host:
            first = await host.send(KEY, "start the server")
            await one.arrived()
            await two.arrived()
            steer = await host.send(KEY, "use port 9000")  # the receipt: it is acknowledged while both run
            assert steer.receipt.entry
            if aborted:
                assert await host.abort(KEY)
                assert (await first.reply()).stop == "aborted"
            else:
                one.open()
                two.open()
            assert (await steer.reply()).text == "on port 9000"
        blocks = play.last()["messages"][-1]["content"]
        assert [b["type"] for b in blocks] == ["tool_result", "tool_result", "text"]
        assert "use port 9000" in blocks[-1]["text"]
        assert play.bodies[KEY][-1].count(b"use port 9000") == 1
        accepted(play.bodies[KEY])

    virtual(main)
    assert said_by_users(session_path(tmp_path)) == ["start the server", "use port 9000"]

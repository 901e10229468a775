"""Reported faults of pairing, on the entries of the reports: what is sent, and that it is accepted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from helpers_cases import case, covers, made_calls, opened, request, results, told
from helpers_host import KEY, Fn, Play, ask, hosted, messages, session_path, virtual
from helpers_messages import SONNET
from perdure.context.changed import as_decisions
from perdure.context.policy import policy_for
from perdure.context.safety.limit import limit
from perdure.context.safety.repair import DUPLICATE, SYNTHETIC, repair
from perdure.context.safety.seal import seal
from perdure.edges.models.reply import ScriptedReply, call, say
from perdure.kernel.virtual import VirtualClock
from perdure.records import Assistant, Item, Summary, Thinking, ToolCall, ToolResult

OPUS_45 = replace(SONNET, id="claude-opus-4-5")


def entries(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(json.dumps(case(name)["input"]["entries"]))
    return found


@covers("RP01")
def test_a_failed_result_whose_call_was_compacted_is_not_sent(tmp_path: Path) -> None:
    body = request(opened("RP01", tmp_path).items)
    assert results(body) == made_calls(body) == []
    assert told(body)[1:3] == ["next", "ok"]
    assert "task T-41 open" in told(body)[0]


@covers("RP02")
def test_of_an_aborted_turn_the_text_is_sent_and_the_display_still_shows_all_of_it(tmp_path: Path) -> None:
    found = opened("RP02", tmp_path)
    body = request(found.items)
    assert told(body) == ["edit it", "Now I edit", "hello?"]
    assert made_calls(body) == results(body) == []
    assert "partialJson" not in json.dumps(body)
    aborted = found.items[1].message
    assert isinstance(aborted, Assistant)
    assert [type(block) for block in aborted.content][1:] == [ToolCall]


@covers("RP03")
def test_only_the_attempt_that_worked_is_sent_and_its_results_follow_it(tmp_path: Path) -> None:
    found = opened("RP03", tmp_path)
    body = request(found.items)
    assert told(body) == ["go", "x", "y", "next"]
    assert [c["id"] for c in made_calls(body)] == [r["tool_use_id"] for r in results(body)]
    assert len(made_calls(body)) == 2
    assert [item.entry for item in found.items][1:3] == ["e2", "e3"]  # for display


@covers("RP04")
def test_an_id_given_again_keeps_each_result_with_its_call_and_its_new_id_for_good(tmp_path: Path) -> None:
    found = opened("RP04", tmp_path)
    body = request(found.items)
    assert told(body) == ["1", "first", "2", "second"]
    ids = [c["id"] for c in made_calls(body)]
    assert len(set(ids)) == 2
    assert ids == [r["tool_use_id"] for r in results(body)]
    decided = as_decisions(seal(found.items, policy_for(SONNET), SONNET).decisions)
    later = (Item("s", Summary("the first turn")), *found.items[3:])
    assert [c["id"] for c in made_calls(request(later, decided=decided))] == ids[1:]


@covers("RP05")
def test_missing_results_of_a_batch_are_made_up_beside_the_real_one_in_call_order(tmp_path: Path) -> None:
    body = request(opened("RP05", tmp_path).items)
    assert [r["tool_use_id"] for r in results(body)] == ["a", "b", "c"]
    assert [r.get("is_error", False) for r in results(body)] == [True, False, True]
    assert told(body) == ["go", SYNTHETIC, "B", SYNTHETIC, "next"]


@covers("RP06")
def test_a_question_survives_the_limit_though_an_orphan_stands_behind_it(tmp_path: Path) -> None:
    cut = limit(opened("RP06", tmp_path).items, 1)
    body = request(cut.items)
    assert told(body) == ["q2"]
    assert results(body) == []


@covers("RP07")
def test_of_two_results_of_one_call_the_real_one_is_sent_and_the_other_reported(tmp_path: Path) -> None:
    found = opened("RP07", tmp_path)
    assert told(request(found.items)) == ["go", "real", "next"]
    lines = repair(found.items).lines
    assert [(line.entry, line.rule) for line in lines] == [("e4", DUPLICATE)]


@covers("RP07")
def test_a_real_result_takes_an_unsent_placeholders_place_but_never_a_sent_ones(tmp_path: Path) -> None:
    """Here the placeholder is a stored one; what was sent with it is a decision, so it stays sent."""
    rows = entries("RP07")
    rows[3]["message"], rows[4]["message"] = rows[4]["message"], rows[3]["message"]
    found = opened("RP07", tmp_path, rows)
    assert told(request(found.items)) == ["go", "real", "next"]
    sent = repair(found.items, unseen=frozenset({"e4"}))  # a request has shown e3 before e4 came
    later = request(found.items, decided=as_decisions(sent.decisions))
    assert told(later)[:2] == ["go", "[cancelled]"]
    assert "real" in told(later)


def arguments_of(rows: list[dict[str, Any]], arguments: Any) -> list[dict[str, Any]]:
    rows[2]["message"]["content"][0]["arguments"] = arguments
    return rows


@covers("RP12")
@pytest.mark.parametrize("arguments", ['{"path":"a","text":"lorem', "", "{", [1]])
def test_arguments_that_are_no_object_go_as_an_empty_one_with_their_result(
    arguments: Any, tmp_path: Path
) -> None:
    found = opened("RP12", tmp_path, arguments_of(entries("RP12"), arguments))
    body = request(found.items)
    assert [c["input"] for c in made_calls(body)] == [{}]
    assert [r["is_error"] for r in results(body)] == [True]
    assert told(body) == ["go", "invalid arguments", "next"]


@covers("RP12")
@pytest.mark.parametrize("change", [{"arguments": None}, {"name": ""}])
def test_a_call_without_arguments_or_name_is_left_out_with_its_result(
    change: dict[str, Any], tmp_path: Path
) -> None:
    rows = entries("RP12")
    rows[2]["message"]["content"][0] |= change
    body = request(opened("RP12", tmp_path, rows).items)
    assert made_calls(body) == results(body) == []
    assert told(body) == ["go", "next"]


@covers("RP12")
def test_no_tool_runs_from_arguments_that_can_not_be_read(tmp_path: Path) -> None:
    write = Fn("write", lambda arguments, context: never())
    broken = ScriptedReply((call("write", "toolu_1"),), fault="malformed_arguments", malformed='{"path":"a')
    play = Play(broken, say("I try again"))

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, play, clock, tools=[write]) as host:
            await ask(host, "go")
        assert write.runs == 0
        assert results(play.last())[0]["is_error"]

    virtual(main)
    assert len(messages(session_path(tmp_path), "toolResult")) == 1
    assert len(play.bodies[KEY]) == 2


async def never() -> str:
    raise AssertionError("the tool ran")


@covers("RP13")
def test_no_blank_text_is_sent_and_a_message_can_not_end_in_thinking(tmp_path: Path) -> None:
    body = request(opened("RP13", tmp_path).items, level="low")
    assert [m["role"] for m in body["messages"]] == ["user", "assistant", "user"]
    assert [b["type"] for b in body["messages"][1]["content"]] == ["tool_use"]
    assert "content" not in results(body)[0]
    assert told(body) == ["make dir", "next"]


@covers("RP15")
@pytest.mark.parametrize("compacted", [True, False])
def test_signed_thinking_goes_byte_for_byte_in_its_place_or_not_at_all(
    compacted: bool, tmp_path: Path
) -> None:
    rows = entries("RP15")
    if not compacted:  # without the compaction nothing came between
        rows = [row for row in rows if row["type"] != "compaction"]
        rows[-1]["parentId"] = "e4"
    found = opened("RP15", tmp_path, rows)
    body = request(found.items, OPUS_45, "high")
    sent = [b for m in body["messages"] for b in m["content"] if b["type"] == "thinking"]
    stored = [b for i in found.items if isinstance(i.message, Assistant) for b in i.message.content]
    whole = [(b.thinking, b.signature) for b in stored if isinstance(b, Thinking)]
    assert [(b["thinking"], b["signature"]) for b in sent] == ([] if compacted else whole)
    assert [t for t in told(body) if t in "bcr"] == ["b", "r", "c"]


@covers("RP17")
def test_thinking_of_another_model_is_left_out_whole_and_its_text_stays(tmp_path: Path) -> None:
    body = request(opened("RP17", tmp_path).items, replace(SONNET, id="m-2"), "high")
    assert body["messages"][1]["content"] == [{"type": "text", "text": "b"}]
    assert "t1" not in json.dumps(body)
    assert "sig1" not in json.dumps(body)


def test_entries_of_a_case_are_read_as_the_records_they_are(tmp_path: Path) -> None:
    found = [type(item.message) for item in opened("RP01", tmp_path).items[:2]]
    assert found == [Summary, ToolResult]

"""Fault reports on pairing, told by their outcome: what the request holds, and that it is accepted."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from helpers_messages import OPUS, SONNET, call, items, result, says, user
from helpers_strict import complaints
from perdure.context.changed import NOTHING_DECIDED, Decisions, as_decisions
from perdure.context.policy import policy_for
from perdure.context.safety.repair import LATE, SYNTHETIC, repair
from perdure.context.safety.seal import seal
from perdure.context.wire import render, render_dict
from perdure.records import (
    Assistant,
    Decision,
    Item,
    Items,
    ModelInfo,
    Summary,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    ToolSpec,
    User,
)

READ = ToolSpec("read", "Reads", b'{"type":"object"}')


def request(
    view: Items, model: ModelInfo = SONNET, level: str = "off", decided: Decisions = NOTHING_DECIDED
) -> dict[str, Any]:
    """The body for a view, without marks; accepted, or the test fails here."""
    policy = policy_for(model)
    done = seal(view, policy, model, thinking=level, decided=decided)
    raw = render(
        done.items,
        system="s",
        tools=(READ,),
        model=model,
        policy=policy,
        max_tokens=9000,
        thinking_level=level if done.thinking else "off",
        retention="none",
    )
    assert complaints(raw) == []
    return render_dict(raw)


def told(found: dict[str, Any]) -> list[str]:
    """All texts of a request in order, those inside results too."""
    blocks = [block for message in found["messages"] for block in message["content"]]
    inner = [each for block in blocks for each in (block.get("content") or [block])]
    return [block["text"] for block in inner if block["type"] == "text"]


def results(found: dict[str, Any]) -> list[dict[str, Any]]:
    return [b for m in found["messages"] for b in m["content"] if b["type"] == "tool_result"]


def calls(found: dict[str, Any]) -> list[dict[str, Any]]:
    return [b for m in found["messages"] for b in m["content"] if b["type"] == "tool_use"]


def test_a_failed_result_whose_call_a_compaction_took_is_not_sent() -> None:
    view = (
        Item("e6", Summary("T-41 open")),
        *items(result("c1", "[synthetic]", is_error=True), user("next"), says("ok")),
    )
    found = request(view)
    assert results(found) == []
    assert told(found)[1:3] == ["next", "ok"]


def test_a_result_whose_call_a_compaction_took_is_sent_as_a_note() -> None:
    view = (Item("e6", Summary("s")), *items(result("c1", "42 rows"), user("next")))
    assert results(request(view)) == []
    assert "42 rows" in told(request(view))


def test_ids_known_to_be_covered_are_noted_wherever_they_stand_and_others_dropped() -> None:
    view = (
        Item("e9", Summary("s")),
        *items(user("q"), says("a"), result("c1", "late"), result("x", "stray")),
    )
    done = repair(view, covered={"c1"})
    assert [type(item.message) for item in done.items] == [Summary, User, Assistant, User]
    assert done.lines[-1].entry == "e4"


def test_of_an_aborted_turn_the_text_is_kept_and_the_unfinished_call_is_not() -> None:
    cut = says("Now I edit", call("c1", "edit", "{}"), stop="aborted")
    found = request(items(user("edit it"), cut, result("c1"), user("hello?")))
    assert told(found) == ["edit it", "Now I edit", "hello?"]
    assert calls(found) == results(found) == []


def test_only_the_attempt_that_worked_is_sent_when_the_failed_one_has_the_same_ids() -> None:
    both = (call("f:32"), call("f:33"))
    failed, good = says(*both, stop="error", error="overloaded"), says(*both, stop="toolUse")
    found = request(items(user("go"), failed, good, result("f:32", "x"), result("f:33", "y"), user("next")))
    assert told(found) == ["go", "x", "y", "next"]
    assert [c["id"] for c in calls(found)] == [r["tool_use_id"] for r in results(found)] == ["f32", "f33"]


def test_an_id_that_restarts_every_turn_keeps_each_result_with_its_own_call() -> None:
    view = items(
        user("1"), says(call("exec_0")), result("exec_0", "first"),
        user("2"), says(call("exec_0")), result("exec_0", "second"),
    )  # fmt: skip
    found = request(view)
    assert told(found) == ["1", "first", "2", "second"]
    ids = [c["id"] for c in calls(found)]
    assert len(set(ids)) == 2
    assert ids == [r["tool_use_id"] for r in results(found)]


def test_a_new_id_stays_when_the_call_it_made_way_for_has_left_the_view() -> None:
    view = items(
        user("1"), says(call("exec_0")), result("exec_0", "first"),
        user("2"), says(call("exec_0")), result("exec_0", "second"),
    )  # fmt: skip
    done = seal(view, policy_for(SONNET), SONNET)
    decided = as_decisions(done.decisions)
    before = calls(request(view, decided=decided))[1]["id"]
    after = (Item("s", Summary("first turn")), *view[3:])
    assert [c["id"] for c in calls(request(after, decided=decided))] == [before]
    assert calls(request(after))[0]["id"] != before  # without the decision it would flip


def test_missing_results_of_a_parallel_batch_are_made_up_in_call_order() -> None:
    view = items(user("go"), says(call("a"), call("b"), call("c")), result("b", "B"), user("next"))
    found = request(view)
    assert [r["tool_use_id"] for r in results(found)] == ["a", "b", "c"]
    assert told(found) == ["go", SYNTHETIC, "B", SYNTHETIC, "next"]
    assert [r.get("is_error", False) for r in results(found)] == [True, False, True]


def test_a_second_result_for_an_answered_call_is_left_out_and_reported() -> None:
    cancelled = result("c1", "[cancelled]", is_error=True)
    view = items(user("go"), says(call("c1")), result("c1", "real"), cancelled, user("next"))
    assert told(request(view)) == ["go", "real", "next"]
    assert [line.entry for line in repair(view).lines] == ["e4"]


def test_a_real_result_takes_the_place_of_an_unsent_placeholder() -> None:
    cancelled = result("c1", "[cancelled]", is_error=True)
    view = items(user("go"), says(call("c1")), cancelled, result("c1", "real"), user("next"))
    assert told(request(view)) == ["go", "real", "next"]


def test_two_calls_of_one_id_do_not_keep_a_third_calls_real_result_from_its_place() -> None:
    failed = result("c2", "[cancelled]", is_error=True)
    calls_ = says(call("c1"), call("c1"), call("c2"))
    view = items(user("go"), calls_, result("c1", "a"), result("c1", "b"), failed, result("c2", "real"))
    assert told(request(view)) == ["go", "a", "b", "real"]


def test_a_real_result_never_replaces_a_sent_one_but_is_appended_as_a_note() -> None:
    sent = items(user("go"), says(call("c1")), user("hello?"))
    done = repair(sent)
    decided = as_decisions(done.decisions)
    assert decided == {"call:e2:0": Decision("call:e2:0", "synthesised")}
    late = (*sent, Item("e4", result("c1", "real at last")))
    found, before = request(late, decided=decided), request(sent, decided=decided)
    assert found["messages"][2]["content"][:2] == before["messages"][2]["content"]
    assert told(found)[-1] == "real at last"
    assert LATE in [line.rule for line in repair(late, decided=decided).lines]


def test_a_late_result_behind_the_next_answer_is_a_note_at_its_own_place() -> None:
    view = items(user("go"), says(call("c1")), says("moving on"), result("c1", "late"), user("ok"))
    found = request(view)
    assert told(found)[1:3] == [SYNTHETIC, "moving on"]
    assert told(found)[4:] == ["late", "ok"]


CUT = '{"path":"a","text":"lorem'


@pytest.mark.parametrize(
    "arguments", [json.dumps(CUT), '""', '"{"', "[1]", CUT, "{", "3", "true", "[" * 9000]
)
def test_arguments_that_are_no_object_are_sent_as_an_empty_one_with_their_result(arguments: str) -> None:
    view = items(
        user("go"),
        says(call("c1", "write", arguments), stop="length"),
        result("c1", "invalid arguments", is_error=True),
        user("next"),
    )
    found = request(view)
    assert [c["input"] for c in calls(found)] == [{}]
    assert told(found) == ["go", "invalid arguments", "next"]


@pytest.mark.parametrize("made", [call("c1", "write", "null"), call("c1", ""), call("c1", "no such name!")])
def test_a_call_that_was_never_made_is_left_out_with_its_result(made: ToolCall) -> None:
    found = request(items(user("go"), says(made), result("c1", "invalid"), user("next")))
    assert calls(found) == results(found) == []
    assert told(found) == ["go", "next"]


def test_text_that_holds_the_object_is_that_object() -> None:
    view = items(user("go"), says(call("c1", "read", json.dumps('{"path":"a"}'))), result("c1"))
    assert calls(request(view))[0]["input"] == {"path": "a"}


def test_no_blank_text_is_sent_and_a_message_of_thinking_alone_is_left_out() -> None:
    view = items(
        user("make dir"),
        says("", call("c1", "bash", '{"cmd":"mkdir -p x"}')),
        result("c1", ""),
        says(Thinking("hm", "sigA"), ""),
        user("next"),
    )
    found = request(view, level="low")
    assert [b["type"] for b in found["messages"][1]["content"]] == ["tool_use"]
    assert "content" not in results(found)[0]
    assert told(found) == ["make dir", "next"]


def test_signed_thinking_is_sent_byte_for_byte_or_not_at_all() -> None:
    own = {"model": OPUS.id, "provider": OPUS.provider}
    made = says(Thinking("long \x1b reasoning ", "sigA"), "b", call("c1"), **own)
    view = items(user("a"), made, result("c1", "r"))
    block = request(view, OPUS, "high")["messages"][1]["content"][0]
    assert block == {"type": "thinking", "thinking": "long \x1b reasoning ", "signature": "sigA"}
    compacted = (
        Item("s", Summary("x", timestamp=9)),
        *items(made, result("c1", "r"), says("c", **own), user("n")),
    )
    assert "thinking" not in json.dumps(request(compacted, OPUS, "high")["messages"])


@pytest.mark.parametrize("owner", [{"model": "claude-opus-4-1"}, {"provider": "openai"}, {"model": ""}])
def test_thinking_of_another_model_is_left_out_whole_and_its_text_stays(owner: dict[str, str]) -> None:
    view = items(user("a"), says(Thinking("t1", "sig1"), "b", **owner), user("c"))
    found = request(view, level="high")
    assert found["messages"][1]["content"] == [{"type": "text", "text": "b"}]
    assert found["thinking"]["type"] == "enabled"


def test_a_dated_id_names_the_same_model() -> None:
    view = items(user("a"), says(Thinking("t1", "sig1"), "b", model=f"{SONNET.id}-20250929"), user("c"))
    assert request(view, level="high")["messages"][1]["content"][0]["type"] == "thinking"


@pytest.mark.parametrize("model", [SONNET, OPUS])
def test_foreign_thinking_in_an_open_tool_loop_turns_thinking_off_for_that_request(model: ModelInfo) -> None:
    foreign = says(Thinking("t", "sig"), call("c1"), provider="openai", model="gpt")
    loop = items(user("a"), foreign, result("c1"))
    assert "thinking" not in request(loop, model, "high")
    closed = (*loop, Item("e4", says("done")), Item("e5", user("b")))
    assert request(closed, model, "high")["thinking"]


def test_thinking_older_than_the_compaction_is_kept_in_the_open_tool_loop_only() -> None:
    thought = says(Thinking("t", "sig"), call("c1"), timestamp=5)
    loop = (Item("s", Summary("x", timestamp=7)), *items(user("a", timestamp=4), thought, result("c1")))
    assert request(loop, level="high")["messages"][1]["content"][0]["type"] == "thinking"
    closed = (*loop, Item("e4", says("done", timestamp=8)), Item("e5", user("b")))
    assert request(closed, level="high")["messages"][1]["content"][0]["type"] == "tool_use"


def test_an_adaptive_model_may_skip_thinking_in_a_loop() -> None:
    view = items(user("a"), says(call("c1"), model=OPUS.id), result("c1"))
    assert request(view, OPUS, "high")["thinking"] == {"type": "adaptive"}
    assert "thinking" not in request(items(user("a"), says(call("c1")), result("c1")), SONNET, "high")


def test_a_neighbouring_message_that_would_put_thinking_behind_text_loses_it() -> None:
    view = items(user("a"), says("one"), says(Thinking("t", "s"), "two"), user("b"))
    assert told(request(view, level="high")) == ["a", "one", "two", "b"]


def test_a_request_begins_and_ends_with_the_user() -> None:
    found = request(items(says("hello"), user("hi"), says("bye")))
    assert [m["role"] for m in found["messages"]] == ["user", "assistant"] * 2 + ["user"]
    assert request(())["messages"][0]["role"] == "user"


def test_calls_of_the_history_are_named_as_tools_when_the_request_offers_none() -> None:
    view = seal(items(user("a"), says(call("c1")), result("c1")), policy_for(SONNET), SONNET).items
    raw = render(view, system="", tools=(), model=SONNET, policy=policy_for(SONNET), max_tokens=5)
    assert complaints(raw) == []
    assert render_dict(raw)["tool_choice"] == {"type": "none"}


def test_details_of_a_result_never_reach_the_wire() -> None:
    secret = ToolResult("c1", "read", (Text("ok"),), details=b'{"token":"hush"}')
    done = seal(items(user("a"), says(call("c1")), secret), policy_for(SONNET), SONNET)
    assert all(getattr(item.message, "details", None) is None for item in done.items)


def test_merged_users_of_other_sessions_are_not_marked_twice() -> None:
    from perdure.context.safety.provenance import INTER_SESSION
    from perdure.context.safety.validate import validate
    from perdure.records import Provenance

    other = user("from afar", provenance=Provenance("inter_session", "agent:x"))
    policy = policy_for(SONNET)
    once = seal(items(user("mine"), other), policy, SONNET).items
    text = json.dumps(told(request(validate(once, policy).items)))
    assert text.count(INTER_SESSION) == 1


def test_tools_with_one_name_or_a_broken_schema_are_sent_once_and_whole() -> None:
    odd = (
        READ,
        replace(READ, description="again"),
        ToolSpec("bad name", "", b"{}"),
        ToolSpec("raw", "", b"nope"),
    )
    view = seal(items(user("a")), policy_for(SONNET), SONNET).items
    raw = render(view, system="s", tools=odd, model=SONNET, policy=policy_for(SONNET), max_tokens=5)
    assert [t["name"] for t in render_dict(raw)["tools"]] == ["read", "raw"]
    assert render_dict(raw)["tools"][1]["input_schema"] == {"type": "object"}

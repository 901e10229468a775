"""What the many servers of one API stream comes to one answer, in whatever pieces it arrives."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.contracts import Answer, CallStarted, TextDelta, ThinkingDelta
from perdure.edges.models.chat_reader import ChatReader
from perdure.edges.models.events import Lines
from perdure.edges.models.responses_reader import ResponsesReader
from perdure.errors import ModelError
from perdure.records import ModelInfo, Text, Thinking, ToolCall, Usage

CHAT = ModelInfo("vllm", "qwen3", "openai-completions", price_input=1.0, price_output=2.0)
RESPONSES = ModelInfo("openai", "gpt-5", "openai-responses", thinking="adaptive")
Json = dict[str, Any]


def delta(finish: str | None = None, **delta: Any) -> Json:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def piece(arguments: Any = "", name: str | None = None, **more: Any) -> Json:
    return {"function": {"name": name, "arguments": arguments}, **more}


def chat(*chunks: Json) -> Answer:
    reader = ChatReader(CHAT)
    for chunk in chunks:
        reader.feed(chunk)
    return reader.answer(7)


CALLS: dict[str, list[Json]] = {
    "as OpenAI": [
        piece("", "read", index=0, id="a", type="function"),
        piece('{"p"', index=0),
        piece(":1}", index=0),
        piece("{}", "find", index=1, id="b"),
    ],
    "whole calls without an index": [piece('{"p":1}', "read", id="a"), piece("{}", "find", id="b")],
    "one index for all": [piece('{"p":1}', "read", index=0, id="a"), piece("{}", "find", index=0, id="b")],
    "arguments as an object": [piece({"p": 1}, "read", index=0, id="a"), piece({}, "find", index=1, id="b")],
    "the id repeated": [
        piece('{"p"', "read", index=0, id="a"),
        piece(":1}", index=0, id="a"),
        piece("{}", "find", index=1, id="b"),
    ],
}


@pytest.mark.parametrize("name", CALLS)
def test_calls_come_together_as_each_server_sends_them(name: str) -> None:
    chunks = [delta(tool_calls=[each]) for each in CALLS[name]]
    answer = chat(*chunks, delta("tool_calls"))
    assert answer.message.content == (ToolCall("a", "read", b'{"p":1}'), ToolCall("b", "find", b"{}"))
    assert (answer.message.stop, answer.errors) == ("toolUse", ())


def test_a_call_without_an_id_gets_one_and_stop_is_what_the_content_says() -> None:
    answer = chat(delta(tool_calls=[piece("{}", "read")]), delta("stop"))
    assert (answer.message.content, answer.message.stop) == ((ToolCall("call_0", "read"),), "toolUse")
    assert chat(delta(content="x"), delta("tool_calls")).message.stop == "stop"


def test_broken_arguments_are_told_and_what_stood_before_the_break_is_kept() -> None:
    answer = chat(delta(tool_calls=[piece('{"path":"a","x', "read", index=0, id="a")]), delta("length"))
    assert answer.errors[0][0] == "a"
    assert json.loads(answer.message.content[0].arguments)["path"] == "a"  # type: ignore[union-attr]
    assert answer.message.stop == "length"


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning", "reasoning_text"])
def test_reasoning_is_kept_with_the_field_it_came_in(field: str) -> None:
    reader = ChatReader(CHAT)
    told = [*reader.feed(delta(**{field: "so "})), *reader.feed(delta(**{field: "then", "content": "x"}))]
    assert told == [ThinkingDelta("so "), ThinkingDelta("then"), TextDelta("x")]
    reader.feed(delta("stop"))
    assert reader.answer(0).message.content == (Thinking("so then", field), Text("x"))


@pytest.mark.parametrize(
    ("told", "wanted"),
    [
        ({"prompt_tokens": 100, "completion_tokens": 9}, Usage(100, 9, cost_usd=0.000118)),
        (
            {"prompt_tokens": 100, "completion_tokens": 9, "prompt_tokens_details": {"cached_tokens": 60}},
            Usage(40, 9, 60, cost_usd=0.000064),
        ),
        (
            {"prompt_tokens": 100, "completion_tokens": 0, "prompt_cache_hit_tokens": 100},
            Usage(0, 0, 100, cost_usd=0.00001),
        ),
        (
            {
                "prompt_tokens": 100,
                "completion_tokens": 0,
                "prompt_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 40},
            },
            Usage(0, 0, 60, 40, cost_usd=0.000056),
        ),
        ({"prompt_tokens": 10, "prompt_tokens_details": None}, Usage(10, cost_usd=0.00001)),
        ({"prompt_tokens": 10**400, "completion_tokens": 2.5, "cached_tokens": "x"}, Usage()),
        ({"prompt_tokens": -7, "completion_tokens": True, "prompt_tokens_details": [3]}, Usage()),
        (None, None),
    ],
)
def test_usage_takes_the_cached_part_out_of_the_prompt(told: Any, wanted: Usage | None) -> None:
    for chunks in ([delta("stop"), {"choices": [], "usage": told}], [delta("stop") | {"usage": told}]):
        assert chat(delta(content="x"), *chunks).message.usage == wanted


@pytest.mark.parametrize(
    ("chunks", "kind"),
    [
        ([], "cut"),
        ([delta(content="half")], "cut"),
        ([delta("stop")], "empty"),
        ([delta(content="  "), delta("stop")], "empty"),
        ([delta(content="x"), {"error": {"message": "overloaded", "code": 503}}], "overloaded"),
        ([{"error": "rate limit"}], "rate_limit"),
        ([{"error": {"message": "Provider returned error", "code": 502}}], "server"),
        ([delta(content="x"), delta("error")], "server"),
    ],
)
def test_what_is_no_answer_is_a_typed_error(chunks: list[Json], kind: str) -> None:
    with pytest.raises(ModelError) as caught:
        chat(*chunks)
    assert caught.value.kind == kind


@pytest.mark.parametrize("chunks", [[delta("content_filter")], [delta(refusal="I can't"), delta("stop")]])
def test_a_filter_and_a_refusal_end_the_answer_with_an_error_that_says_so(chunks: list[Json]) -> None:
    message = chat(*chunks).message
    assert message.stop == "error"
    assert "filter" in (message.error or "") or "refus" in (message.error or "")


# --- Responses ------------------------------------------------------------------------------------------

ITEM = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "so"}]}
CALL = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "read", "arguments": '{"a":1}'}
SAID = {
    "type": "message",
    "id": "msg_1",
    "phase": "commentary",
    "content": [{"type": "output_text", "text": "x"}],
}


def done(item: Json) -> Json:
    return {"type": "response.output_item.done", "item": item}


def ended(kind: str = "completed", **more: Any) -> Json:
    return {"type": f"response.{kind}", "response": {"status": kind, "usage": None, **more}}


def responses(*found: Json) -> Answer:
    reader = ResponsesReader(RESPONSES)
    for event in found:
        reader.feed(event)
    return reader.answer(7)


def test_items_become_blocks_that_keep_what_the_api_wants_back() -> None:
    reader = ResponsesReader(RESPONSES)
    assert reader.feed({"type": "response.output_item.added", "item": CALL}) == [
        CallStarted("call_1|fc_1", "read")
    ]
    secret = ITEM | {"encrypted_content": "enc"}
    message = responses(done(secret), done(SAID), done(CALL), ended()).message
    thinking, text, call = message.content
    assert isinstance(thinking, Thinking)
    assert (thinking.thinking, json.loads(thinking.signature or "")) == ("so", secret)
    assert isinstance(text, Text)
    assert json.loads(text.signature or "") == {"v": 1, "id": "msg_1", "phase": "commentary"}
    assert (call, message.stop) == (ToolCall("call_1|fc_1", "read", b'{"a":1}'), "toolUse")


@pytest.mark.parametrize(
    ("found", "kind"),
    [
        ([], "cut"),
        ([done(SAID)], "cut"),
        ([ended()], "empty"),
        ([done(ITEM), ended()], "empty"),
        ([ended("failed", error={"code": "server_error", "message": "sorry"})], "server"),
        ([ended("failed", error={"code": "rate_limit_exceeded", "message": "slow"})], "rate_limit"),
        ([ended("failed", error=None)], "server"),
        ([{"type": "error", "code": "context_length_exceeded", "message": "x"}], "overflow"),
    ],
)
def test_a_response_that_failed_is_a_typed_error(found: list[Json], kind: str) -> None:
    with pytest.raises(ModelError) as caught:
        responses(*found)
    assert caught.value.kind == kind


def test_an_incomplete_response_ends_by_its_reason() -> None:
    cut = ended("incomplete", incomplete_details={"reason": "max_output_tokens"})
    assert responses(done(SAID), cut).message.stop == "length"
    assert responses(done(ITEM), cut).message.stop == "length"
    filtered = responses(ended("incomplete", incomplete_details={"reason": "content_filter"})).message
    assert (filtered.stop, "filter" in (filtered.error or "")) == ("error", True)


# --- events ---------------------------------------------------------------------------------------------


@given(st.lists(st.text(max_size=9), max_size=5), st.integers(1, 9), st.sampled_from(["\n", "\r\n"]))
def test_events_are_whole_wherever_the_bytes_are_cut(texts: list[str], size: int, end: str) -> None:
    data = [json.dumps(text).encode() for text in texts]
    ending = end.encode()
    raw = b": a comment" + ending + ending.join(b"event: x" + ending + b"data: " + d + ending for d in data)
    lines = Lines()
    found = [each for n in range(0, len(raw), size) for each in lines.feed(raw[n : n + size])]
    assert found + lines.end() == data

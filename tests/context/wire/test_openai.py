"""No request of the OpenAI families is refused for structure, from any history, for any provider."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming
from openai.types.responses.response_create_params import ResponseCreateParamsStreaming
from pydantic import TypeAdapter

from helpers_histories import HISTORIES, NAMES, TEXTS, png
from helpers_messages import call, items, result, says, user
from perdure.context.changed import Changed, Decisions, as_decisions
from perdure.context.policy import policy_for
from perdure.context.safety.heartbeat import drop_silent_heartbeats
from perdure.context.safety.limit import limit
from perdure.context.safety.repair import repair
from perdure.context.safety.sanitize import Before, sanitize
from perdure.context.safety.seal import seal
from perdure.context.safety.strip import strip
from perdure.context.safety.validate import validate
from perdure.context.settled import Settled
from perdure.context.wire import Memo, answer_room, render
from perdure.context.wire.openai_chat import BRIDGE, PICTURED
from perdure.edges.models import strict
from perdure.records import (
    Assistant,
    Image,
    Item,
    Items,
    ModelInfo,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    ToolSpec,
)

CHAT, RESPONSES = "openai-completions", "openai-responses"
GPT = ModelInfo("openai", "gpt-4.1", RESPONSES)
GPT5 = ModelInfo("openai", "gpt-5", RESPONSES, thinking="adaptive")
CHAT_GPT = ModelInfo("openai", "gpt-4o", CHAT)
CHAT_O3 = ModelInfo("openai", "o3", CHAT, thinking="adaptive")
MISTRAL = ModelInfo("mistral", "mistral-large-latest", CHAT)
DEEPSEEK = ModelInfo("deepseek", "deepseek-v4-pro", CHAT, thinking="adaptive", images=False)
ROUTED = ModelInfo("openrouter", "anthropic/claude-sonnet-4-5", CHAT)
FAMILY = [
    GPT,
    GPT5,
    CHAT_GPT,
    CHAT_O3,
    MISTRAL,
    DEEPSEEK,
    ROUTED,
    ModelInfo("openrouter", "mistralai/devstral-2512", CHAT),
    ModelInfo("ollama", "qwen3:8b", CHAT),
    ModelInfo("vllm", "mistralai/Ministral-8B", CHAT),
    ModelInfo("my-server", "anything", CHAT, images=False),
    ModelInfo("xai", "grok-4", CHAT, thinking="adaptive"),
    ModelInfo("xai", "grok-4", RESPONSES),
    ModelInfo("github-copilot", "claude-sonnet-4", CHAT),
    ModelInfo("openai-codex", "gpt-5", "openai-codex-responses", thinking="adaptive"),
]
MODELS = st.sampled_from(FAMILY)
LEVELS = st.sampled_from(["off", "low", "xhigh"])
SLOW = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
BRIEF = settings(SLOW, max_examples=40)  # each example goes through many requests
SCHEMA = b'{"type":"object","anyOf":[{"required":["a"]}],"properties":{"a":{"type":"array"}}}'
TOOLS = (ToolSpec("read", "Reads a file", b'{"type":"object"}'), ToolSpec("find", "Finds", SCHEMA))


def reasoning(ident: str, secret: object = "enc", **more: object) -> str:
    return json.dumps({"type": "reasoning", "id": ident, "summary": [], "encrypted_content": secret, **more})


SIGNATURES = st.sampled_from(
    [
        reasoning("rs_1"),
        reasoning("rs_1"),
        reasoning("rs_2"),
        reasoning("rs_3", None),
        reasoning("rs_" + "x" * 90),
        reasoning("rs_4", summary=[{"type": "other"}]),
        reasoning("rs_5", summary=[{"type": "summary_text", "text": "so"}]),
        reasoning("rs_\ud83d"),
        "reasoning_content",
        '{"id":"rs_6","type":"reasoning.text"}',
        "{broken",
        "sig",
    ]
)
THOUGHTS = st.builds(Thinking, TEXTS, SIGNATURES)
OPENAI_IDS = st.sampled_from(
    ["call_1", "call_1|fc_1", "call_1|fc_2", "call_2|fc_1", "call_2|xx", "call|fc_" + "y" * 90, "a" * 60]
)
OPENAI_CALLS = st.builds(ToolCall, OPENAI_IDS, NAMES, st.just(b'{"a":1}'))
OWNERS = st.sampled_from(FAMILY[:7])
ANSWERS = st.builds(
    lambda blocks, owner, at: Assistant(
        tuple(blocks), "toolUse", owner.provider, owner.api, owner.id, timestamp=at
    ),
    st.lists(st.one_of(st.builds(Text, TEXTS), THOUGHTS, OPENAI_CALLS), max_size=5),
    OWNERS,
    st.integers(0, 9),
)
PICTURES = st.sampled_from([(Text("seen"),), (Image(png(9, 9), "image/png"),), ()])
ANSWERED = st.builds(ToolResult, OPENAI_IDS, NAMES, PICTURES, st.booleans())
THEIRS = st.lists(st.one_of(ANSWERS, ANSWERS, ANSWERED, ANSWERED, st.just(user("go on"))), max_size=12).map(
    lambda found: items(*found)
)


def prepared(
    history: Items, model: ModelInfo, level: str, decided: Decisions | None = None, turns: int = 0
) -> Changed:
    """All safety steps in their order, then the seal; as the pipeline runs them."""
    policy, known = policy_for(model), decided or {}
    done = strip(history).then(lambda now: sanitize(now, policy, model, thinking=level, decided=known))
    done = done.then(lambda now: validate(now, policy)).then(drop_silent_heartbeats)
    done = done.then(lambda now: limit(now, turns, known)).then(lambda now: repair(now, decided=known))
    on = level if done.thinking else "off"
    return done.then(lambda now: seal(now, policy, model, thinking=on, decided=known))


def body_of(
    done: Changed,
    model: ModelInfo,
    level: str = "off",
    *,
    memo: Memo | None = None,
    tools: tuple[ToolSpec, ...] = TOOLS,
    **more: Any,
) -> bytes:
    return render(
        done.items,
        system="You are perdure.\n<!-- PERDURE_CACHE_BOUNDARY -->\nRuntime: test",
        tools=tools,
        model=model,
        policy=policy_for(model),
        max_tokens=8000,
        thinking_level=level if done.thinking else "off",
        memo=memo,
        **{"session": "agent:main:cli:dm:local", **more},
    )


def taken(done: Changed, model: ModelInfo, level: str = "off", **more: Any) -> dict[str, Any]:
    """The body, once its API's strict rules have taken it."""
    body: dict[str, Any] = json.loads(body_of(done, model, level, **more))
    strict.validate(body, model=model)
    return body


@SLOW
@given(st.one_of(HISTORIES, THEIRS), MODELS, LEVELS, st.sampled_from([0, 1, 3]))
def test_no_request_is_refused_for_its_structure_whatever_the_history(history, model, level, turns):
    taken(prepared(history, model, level, turns=turns), model, level)


CHAT_TYPE = TypeAdapter(CompletionCreateParamsStreaming)
RESPONSES_TYPE = TypeAdapter(ResponseCreateParamsStreaming)


def walked(value: Any) -> None:
    """Everything in it: the SDK's types check what is listed only when it is looked at."""
    if isinstance(value, dict):
        value = value.values()
    if not isinstance(value, str | bytes | int | float | None):
        for each in value:
            walked(each)


@SLOW
@given(st.one_of(HISTORIES, THEIRS), MODELS, LEVELS)
def test_every_body_is_of_the_types_that_the_official_sdk_declares(history, model, level):
    body = json.loads(body_of(prepared(history, model, level), model, level))
    for name in ("reasoning",) if model.api == CHAT else ():
        body.pop(name, None)  # OpenRouter's own
    walked((CHAT_TYPE if model.api == CHAT else RESPONSES_TYPE).validate_python(body))


@SLOW
@given(st.one_of(HISTORIES, THEIRS), MODELS, LEVELS)
def test_the_seal_alone_makes_any_history_acceptable_and_sealing_again_changes_nothing(history, model, level):
    policy = policy_for(model)
    once = seal(history, policy, model, thinking=level)
    taken(once, model, level, tools=())
    again = seal(once.items, policy, model, thinking=level if once.thinking else "off")
    assert (again.items, again.lines) == (once.items, ())


KIMI = ModelInfo("kimi-coding", "k2", "anthropic-messages")


@BRIEF
@given(THEIRS)
def test_calls_of_responses_have_ids_that_the_messages_api_takes_too(history):
    taken(prepared(history, KIMI, "off"), KIMI)


@BRIEF
@given(THEIRS, THEIRS, st.lists(MODELS, min_size=2, max_size=4), LEVELS)
def test_a_session_that_goes_from_model_to_model_is_taken_by_each(history, more, models, level):
    decided: Decisions = {}
    for model in models:
        for grown in (history, history + tuple(Item(f"more{n}", i.message) for n, i in enumerate(more))):
            done = prepared(grown, model, level, decided)
            taken(done, model, level)
            decided = as_decisions((*decided.values(), *done.decisions))


@BRIEF
@given(THEIRS, THEIRS, st.lists(MODELS, min_size=1, max_size=3))
def test_a_memo_never_changes_the_bytes_not_even_through_a_change_of_models(history, more, models):
    memo = Memo()
    for model in models:
        for grown in (history, history + more, history[:3] + more):
            done = prepared(grown, model, "low")
            assert body_of(done, model, "low", memo=memo) == body_of(done, model, "low")


QUIET = st.sampled_from([GPT5, CHAT_GPT, MISTRAL, DEEPSEEK])
STEPS = st.lists(st.one_of(THEIRS, st.just(items(user("q"), says("a")))), min_size=2, max_size=5)


@BRIEF
@given(STEPS, QUIET)
def test_what_was_settled_before_gives_the_same_as_everything_anew(growths, model):
    policy, settled = policy_for(model), Settled(jump=1)
    history: Items = ()
    decided: Decisions = {}
    for growth in growths:
        history += tuple(Item(f"e{len(history) + n}", item.message) for n, item in enumerate(growth))

        def steps(now: Items, before: Before | None) -> Changed:
            done = sanitize(now, policy, model, thinking="low", decided=decided, before=before)  # noqa: B023
            return done.then(lambda clean: validate(clean, policy))

        anew = steps(history, None)
        done = settled.run(history, steps, key=model, policy=policy, decided=decided)
        assert done.items == anew.items
        decided = as_decisions((*decided.values(), *done.decisions))


@BRIEF
@given(THEIRS, MODELS)
def test_no_entry_vanishes_without_a_named_rule(history, model):
    done = prepared(history, model, "low")
    told = {line.entry for line in done.lines}
    assert {item.entry for item in history} <= {item.entry for item in done.items} | told


# --- what the bodies say ------------------------------------------------------------------------------

PICTURE = Image(png(9, 9), "image/png")
LOOP = items(
    user("look"),
    says("looking", call("call_a"), call("call_b"), provider="openai", model="gpt-4o"),
    result("call_a", "text of a"),
    ToolResult("call_b", "read", (PICTURE,)),
    user("and now?"),
)


def test_pictures_of_results_follow_the_results_in_chat_completions() -> None:
    messages = taken(prepared(LOOP, CHAT_GPT, "off"), CHAT_GPT)["messages"]
    assert [m["role"] for m in messages] == ["system", "user", "assistant", "tool", "tool", "user", "user"]
    assert messages[4]["content"] == PICTURED
    assert [part["type"] for part in messages[5]["content"]] == ["text", "image_url"]
    assert messages[5]["content"][1]["image_url"]["url"] == f"data:image/png;base64,{PICTURE.data}"


def test_pictures_of_results_stay_in_the_results_of_responses() -> None:
    found = taken(prepared(LOOP, GPT, "off"), GPT)["input"]
    assert found[-2]["output"] == [
        {"type": "input_image", "image_url": f"data:image/png;base64,{PICTURE.data}", "detail": "auto"}
    ]
    assert [each.get("role", each["type"]) for each in found] == [
        "user", "assistant", "function_call", "function_call",
        "function_call_output", "function_call_output", "user",
    ]  # fmt: skip


def test_mistral_gets_ids_of_nine_characters_and_an_answer_between_results_and_the_user() -> None:
    messages = taken(prepared(LOOP, MISTRAL, "off"), MISTRAL)["messages"]
    assert [m["role"] for m in messages][-4:] == ["tool", "assistant", "user", "user"]
    assert messages[-3]["content"] == BRIDGE
    assert all(len(c["id"]) == 9 and c["id"].isalnum() for c in messages[2]["tool_calls"])


def test_a_server_of_any_model_gets_turns_that_alternate() -> None:
    model = ModelInfo("ollama", "qwen3:8b", CHAT)
    done = prepared(items(user("a"), user("b"), says("c"), says("d"), user("e")), model, "off")
    spoken = taken(done, model)["messages"][1:]
    assert [(m["role"], m["content"]) for m in spoken] == [
        ("user", "a\nb"), ("assistant", "c\nd"), ("user", "e"),
    ]  # fmt: skip


def test_that_a_tool_failed_is_told_in_words() -> None:
    history = items(user("x"), says(call("c1"), model="m"), result("c1", "no such file", is_error=True))
    for model in (CHAT_GPT, GPT):
        assert "[the tool failed]\\nno such file" in json.dumps(taken(prepared(history, model, "off"), model))


@pytest.mark.parametrize(
    ("model", "level", "wanted"),
    [
        (CHAT_GPT, "high", {"max_completion_tokens": 8000}),
        (CHAT_O3, "high", {"max_completion_tokens": 8000, "reasoning_effort": "high"}),
        (CHAT_O3, "off", {"reasoning_effort": "low"}),
        (MISTRAL, "high", {"max_tokens": 8000, "stream_options": None}),
        (DEEPSEEK, "high", {"max_tokens": 8000, "reasoning_effort": None, "prompt_cache_key": None}),
        (GPT, "high", {"max_output_tokens": 8000, "reasoning": None, "include": None, "store": False}),
        (GPT5, "off", {"reasoning": {"effort": "minimal", "summary": "auto"}}),
        (replace(GPT5, id="gpt-5.6-sol"), "off", {"reasoning": {"effort": "none", "summary": "auto"}}),
        (replace(GPT5, id="gpt-5.6-sol"), "xhigh", {"reasoning": {"effort": "xhigh", "summary": "auto"}}),
        (replace(ROUTED, id="qwen/qwen3", thinking="adaptive"), "low", {"reasoning": {"effort": "low"}}),
    ],
)
def test_settings_are_those_that_the_model_takes(
    model: ModelInfo, level: str, wanted: dict[str, Any]
) -> None:
    body = taken(prepared(LOOP, model, level), model, level)
    assert {key: body.get(key) for key in wanted} == wanted
    assert body["stream"] is True


def test_the_system_prompt_has_the_role_that_the_model_listens_to_and_no_marker() -> None:
    roles = {}
    for model in (CHAT_GPT, CHAT_O3, MISTRAL):
        first = taken(prepared(LOOP, model, "off"), model)["messages"][0]
        roles[model.id] = first["role"]
        assert first["content"] == "You are perdure.\nRuntime: test"
    assert roles == {"gpt-4o": "system", "o3": "developer", "mistral-large-latest": "system"}
    assert taken(prepared(LOOP, GPT, "off"), GPT)["instructions"] == "You are perdure.\nRuntime: test"


def test_requests_of_one_session_share_a_cache_key_that_does_not_name_it() -> None:
    done = prepared(LOOP, GPT, "off")
    one, other = taken(done, GPT), taken(done, GPT, session="agent:main:telegram:dm:+4912345")
    assert one["prompt_cache_key"] == taken(done, GPT)["prompt_cache_key"] != other["prompt_cache_key"]
    assert "4912345" not in json.dumps(other)
    assert "prompt_cache_key" not in taken(done, GPT, retention="none")
    assert taken(done, GPT, retention="long")["prompt_cache_retention"] == "24h"
    assert "prompt_cache_retention" not in taken(done, CHAT_GPT, retention="long")


def test_an_answer_leaves_the_estimates_error_where_prompt_and_answer_share_the_window() -> None:
    assert answer_room(CHAT_GPT, 10_000, 3_200) == 10_000 - 3_200 - 64 - 200
    assert answer_room(GPT, 10_000, 3_200) == 6_800
    strict.family_of(CHAT).room(
        3_200 + 264, answer_room(CHAT_GPT, 10_000, 3_200), replace(CHAT_GPT, window=10_000)
    )


def test_schemas_are_what_the_api_takes() -> None:
    tools = taken(prepared(LOOP, CHAT_GPT, "off"), CHAT_GPT)["tools"]
    assert tools[0]["function"]["parameters"] == {"type": "object", "properties": {}}
    assert tools[1]["function"]["parameters"]["properties"] == {"a": {"type": "array", "items": {}}}
    assert "anyOf" not in tools[1]["function"]["parameters"]


# --- reasoning ----------------------------------------------------------------------------------------


def thought(ident: str = "rs_1") -> Thinking:
    return Thinking("hm", reasoning(ident, summary=[{"type": "summary_text", "text": "hm"}]))


def by(model: ModelInfo, *content: Any, **more: Any) -> Assistant:
    return says(*content, provider=model.provider, api=model.api, model=model.id, **more)


def test_reasoning_goes_back_encrypted_to_the_model_that_made_it_and_to_no_other() -> None:
    history = items(user("x"), by(GPT5, thought(), call("call_1|fc_1")), result("call_1|fc_1"))
    found = taken(prepared(history, GPT5, "off"), GPT5)["input"]
    assert found[1] == {
        "type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}],
        "encrypted_content": "enc",
    }  # fmt: skip
    assert (found[2]["call_id"], found[2]["id"], found[3]["call_id"]) == ("call_1", "fc_1", "call_1")
    mini = replace(GPT5, id="gpt-5-mini")
    found = taken(prepared(history, mini, "low"), mini, "low")["input"]
    assert [each["type"] for each in found] == ["message", "function_call", "function_call_output"]
    assert (found[1]["call_id"], "id" in found[1]) == ("call_1", False)


def test_reasoning_that_leads_to_nothing_or_was_sent_before_stays_out() -> None:
    again = by(GPT5, thought("rs_1"), "b")
    history = items(
        user("x"), by(GPT5, "a", thought("rs_9")), user("y"), by(GPT5, thought("rs_1"), "a"), again
    )
    done = prepared(history, GPT5, "low")
    found = taken(done, GPT5, "low")["input"]
    assert [each["id"] for each in found if each["type"] == "reasoning"] == ["rs_1"]
    assert {line.rule for line in done.lines if line.entry in ("e2", "e5")} == {
        "reasoning: nothing that it led to follows it",
        "reasoning: sent before under the same id",
    }


def test_deepseek_gets_the_reasoning_of_the_open_loop_only_and_a_field_on_every_call() -> None:
    said = Thinking("because", "reasoning_content")
    history = items(
        user("x"), by(DEEPSEEK, said, "a"), user("y"),
        by(DEEPSEEK, said, call("c1")), result("c1"), by(CHAT_GPT, call("c2")), result("c2"),
    )  # fmt: skip
    messages = taken(prepared(history, DEEPSEEK, "low"), DEEPSEEK, "low")["messages"]
    assert [m.get("reasoning_content") for m in messages if m["role"] == "assistant"] == [None, "because", ""]

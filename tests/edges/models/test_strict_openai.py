"""What the strict doors of the OpenAI families refuse, each rule by one body that breaks it."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from msgspec.structs import replace

from perdure.edges.models.strict import Refused, family_of, validate
from perdure.errors import ConfigError
from perdure.records import ModelInfo

CHAT, RESPONSES = "openai-completions", "openai-responses"
GPT = ModelInfo("openai", "gpt-4o", CHAT, window=128_000, max_output=16_384)
O3 = ModelInfo("openai", "o3", CHAT, thinking="adaptive")
MISTRAL = ModelInfo("mistral", "mistral-large", CHAT)
OLLAMA = ModelInfo("ollama", "qwen3", CHAT)
R4 = ModelInfo("openai", "gpt-4.1", RESPONSES)
R5 = ModelInfo("openai", "gpt-5", RESPONSES, thinking="adaptive")
Json = dict[str, Any]


def system() -> Json:
    return {"role": "system", "content": "be brief"}


def user(content: Any = "hi") -> Json:
    return {"role": "user", "content": content}


def called(*idents: str, **more: Any) -> Json:
    calls = [
        {"id": ident, "type": "function", "function": {"name": "read", "arguments": "{}"}} for ident in idents
    ]
    return {"role": "assistant", "content": None, "tool_calls": calls, **more}


def tool(ident: str, content: Any = "ok") -> Json:
    return {"role": "tool", "tool_call_id": ident, "content": content}


def chat(*messages: Json, **more: Any) -> Json:
    return {"model": "gpt-4o", "messages": list(messages) or [user()], **more}


def function(name: str = "read", **more: Any) -> Json:
    schema = {"type": "object", "properties": {}}
    return {"type": "function", "function": {"name": name, "parameters": schema, **more}}


PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}


def renamed(name: str) -> Json:
    message = called("a")
    message["tool_calls"][0]["function"]["name"] = name
    return message


def given(arguments: Any) -> Json:
    message = called("a")
    message["tool_calls"][0]["function"]["arguments"] = arguments
    return message


GOOD_CHAT = [
    (GPT, chat()),
    (GPT, chat(system(), user(), user([{"type": "text", "text": "x"}, PICTURE]))),
    (GPT, chat(user(), called("a", "b", content="so"), tool("b"), tool("a"), user())),
    (GPT, chat(tools=[function()], tool_choice="auto", max_completion_tokens=100, stream=True)),
    (O3, chat({"role": "developer", "content": "x"}, user(), model="o3", reasoning_effort="low")),
    (MISTRAL, chat(user(), called("abcdefgh1"), tool("abcdefgh1"), model="mistral-large", max_tokens=9)),
    (OLLAMA, chat(system(), user(), called("a"), tool("a"), user(), model="qwen3")),
]
BAD_CHAT: dict[str, tuple[ModelInfo, Json, str]] = {
    "no messages": (GPT, {"model": "gpt-4o", "messages": []}, "empty array"),
    "no model": (GPT, {"messages": [user()]}, "Invalid type for 'model'"),
    "another model": (GPT, chat(model="gpt-9"), "does not exist"),
    "an unknown field": (GPT, chat(thinking={}), "Unknown parameter: 'thinking'"),
    "an unknown field of a message": (GPT, chat(user() | {"is_error": True}), "messages[0].is_error"),
    "an unknown role": (GPT, chat({"role": "model", "content": "x"}), "Invalid value: 'model'"),
    "nothing said": (GPT, chat(user(), {"role": "assistant", "content": None}, user()), "got null"),
    "no content": (GPT, chat({"role": "user"}), "messages[0].content"),
    "empty parts": (GPT, chat(user([])), "empty array"),
    "a part of another API": (GPT, chat(user([{"type": "input_text", "text": "x"}])), "'input_text'"),
    "a picture in a result": (GPT, chat(user(), called("a"), tool("a", [PICTURE])), "'image_url'"),
    "a picture that is no data": (
        GPT,
        chat(user([{"type": "image_url", "image_url": {"url": "data:image/png;base64,!!"}}])),
        "Invalid base64",
    ),
    "a picture of another kind": (
        GPT,
        chat(user([{"type": "image_url", "image_url": {"url": "data:image/tiff;base64,aGk="}}])),
        "Expected a valid URL",
    ),
    "an id too long": (GPT, chat(user(), called("x" * 41), tool("x" * 41)), "maximum length 40"),
    "an empty id": (GPT, chat(user(), called(""), tool("")), "empty string"),
    "no calls in tool_calls": (GPT, chat(user(), called(content="x"), user()), "tool_calls': empty array"),
    "a name of other letters": (GPT, chat(user(), renamed("a.b"), tool("a")), "does not match pattern"),
    "a name too long": (GPT, chat(user(), renamed("n" * 65), tool("a")), "maximum length 64"),
    "arguments as an object": (GPT, chat(user(), given({}), tool("a")), "expected a string"),
    "arguments that are no JSON": (GPT, chat(user(), given('{"a":'), tool("a")), "JSON of an object"),
    "an unanswered call": (GPT, chat(user(), called("a", "b"), tool("a"), user()), "response messages: b"),
    "an unanswered call at the end": (GPT, chat(user(), called("a")), "response messages: a"),
    "a result that is not next": (GPT, chat(user(), called("a"), user(), tool("a")), "response messages: a"),
    "a result without a call": (GPT, chat(user(), tool("a")), "must be a response to a preceeding"),
    "a result twice": (GPT, chat(user(), called("a"), tool("a"), tool("a")), "must be a response"),
    "an id twice": (GPT, chat(user(), called("a", "a"), tool("a")), "Duplicate value"),
    "no tools in tools": (GPT, chat(tools=[]), "empty array"),
    "a choice without tools": (GPT, chat(tool_choice="auto"), "only allowed when 'tools'"),
    "parallel calls without tools": (GPT, chat(parallel_tool_calls=True), "only allowed when 'tools'"),
    "two tools of a name": (GPT, chat(tools=[function(), function()]), "used twice"),
    "too many tools": (GPT, chat(tools=[function(f"t{n}") for n in range(129)]), "maximum length 128"),
    "a tool of another API": (GPT, chat(tools=[{"name": "read", "input_schema": {}}]), "tools[0].type"),
    "a schema without properties": (
        GPT, chat(tools=[function(parameters={"type": "object"})]), "missing properties",
    ),
    "a choice at the top of a schema": (
        GPT,
        chat(tools=[function(parameters={"type": "object", "properties": {}, "anyOf": []})]),
        "at the top level",
    ),
    "an array of nothing": (
        GPT,
        chat(tools=[function(parameters={"type": "object", "properties": {"a": {"type": "array"}}})]),
        "missing items",
    ),
    "too long an answer": (GPT, chat(max_tokens=20_000), "supports at most 16384"),
    "no room for an answer": (GPT, chat(max_tokens=0), "below minimum"),
    "two limits": (GPT, chat(max_tokens=9, max_completion_tokens=9), "at the same time"),
    "the old limit": (O3, chat(model="o3", max_tokens=9), "Use 'max_completion_tokens'"),
    "effort of a model that doesn't reason": (GPT, chat(reasoning_effort="low"), "Unrecognized"),
    "an effort there is none of": (O3, chat(model="o3", reasoning_effort="much"), "Invalid value: 'much'"),
    "stream options without a stream": (GPT, chat(stream_options={}), "only allowed when 'stream'"),
    "a long cache key": (GPT, chat(prompt_cache_key="k" * 65), "maximum length 64"),
    "Mistral: a long id": (
        MISTRAL, chat(user(), called("call_1"), tool("call_1"), model="mistral-large"), "length of 9",
    ),
    "Mistral: a user behind results": (
        MISTRAL,
        chat(user(), called("abcdefgh1"), tool("abcdefgh1"), user(), model="mistral-large"),
        "Unexpected role 'user' after role 'tool'",
    ),
    "Mistral: the model's last word": (
        MISTRAL, chat(user(), {"role": "assistant", "content": "x"}, model="mistral-large"), "last role",
    ),
    "Mistral: a field of OpenAI's": (
        MISTRAL, chat(model="mistral-large", max_completion_tokens=9), "Extra inputs are not permitted",
    ),
    "Mistral: the developer": (
        MISTRAL, chat({"role": "developer", "content": "x"}, user(), model="mistral-large"), "developer",
    ),
    "Mistral elsewhere": (
        replace(OLLAMA, id="mistral:7b"), chat(user(), called("a"), tool("a"), model="mistral:7b"), "of 9",
    ),
    "a template: two users": (OLLAMA, chat(user(), user(), model="qwen3"), "must alternate"),
    "a template: the model first": (
        OLLAMA, chat({"role": "assistant", "content": "x"}, user(), model="qwen3"), "first is not user",
    ),
    "a template: a late system prompt": (OLLAMA, chat(user(), system(), model="qwen3"), "at the beginning"),
}  # fmt: skip


@pytest.mark.parametrize(("model", "body"), GOOD_CHAT)
def test_a_sound_chat_request_passes(model: ModelInfo, body: Json) -> None:
    validate(copy.deepcopy(body), model=model)


@pytest.mark.parametrize("name", BAD_CHAT)
def test_chat_completions_refuses(name: str) -> None:
    model, body, words = BAD_CHAT[name]
    with pytest.raises(Refused) as caught:
        validate(body, model=model)
    assert words in caught.value.message
    assert caught.value.status in (400, 404, 422)


def test_openai_itself_lets_a_user_speak_behind_results_and_twice() -> None:
    validate(chat(user(), user(), called("a"), tool("a"), user()), model=GPT)


# --- Responses ------------------------------------------------------------------------------------------


def said(content: Any, role: str = "user") -> Json:
    return {"type": "message", "role": role, "content": content}


def asks(ident: str = "call_1", **more: Any) -> Json:
    return {"type": "function_call", "call_id": ident, "name": "read", "arguments": "{}", **more}


def output(ident: str = "call_1", value: Any = "ok") -> Json:
    return {"type": "function_call_output", "call_id": ident, "output": value}


def thought(ident: str = "rs_1", **more: Any) -> Json:
    return {"type": "reasoning", "id": ident, "summary": [], "encrypted_content": "enc", **more}


def items(*found: Json, model: str = "gpt-5", **more: Any) -> Json:
    return {"model": model, "input": list(found) or [said("hi")], "store": False, **more}


IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,aGk=", "detail": "auto"}
GOOD_RESPONSES = [
    (R5, items()),
    (R5, items(said("x"), thought(), asks(id="fc_1"), output(), said("y"))),
    (R5, items(said("x"), thought(), said("z", "assistant"), said([IMAGE]), include=[])),
    (R5, items(said("x"), asks(), output(value=[IMAGE]), reasoning={"effort": "minimal"})),
    (R4, items(said("x"), said("y"), model="gpt-4.1", max_output_tokens=16)),
]
BAD_RESPONSES: dict[str, tuple[ModelInfo, Json, str]] = {
    "nothing": (R5, {"model": "gpt-5", "input": []}, "must be given"),
    "another model": (R5, items(model="gpt-9"), "does not exist"),
    "messages": (R5, items(messages=[]), "Unknown parameter: 'messages'"),
    "a limit too small": (R5, items(max_output_tokens=15), ">= 16"),
    "another kind": (R5, items({"type": "tool_result"}), "'tool_result'"),
    "a user's part in an answer": (
        R5, items(said("x"), said([{"type": "input_text", "text": "x"}], "assistant")), "'output_text'",
    ),
    "an answer's part of a user": (R5, items(said([{"type": "output_text", "text": "x"}])), "'input_text'"),
    "an unknown field": (R5, items(said("x") | {"name": "n"}), "Unknown parameter: 'input[0].name'"),
    "a long call id": (R5, items(asks("c" * 65), output("c" * 65)), "maximum length 64"),
    "an empty call id": (R5, items(asks(""), output("")), "empty string"),
    "an item id of another kind": (R5, items(thought(), asks(id="call_1"), output()), "begins with 'fc'"),
    "a reasoning id of another kind": (R5, items(thought("x1"), said("y", "assistant")), "with 'rs'"),
    "an output without its call": (R5, items(output()), "No tool call found"),
    "a call without its output": (R5, items(said("x"), asks(), said("y")), "No tool output found"),
    "an output before its call": (R5, items(output(), asks()), "No tool call found"),
    "an output twice": (R5, items(asks(), output(), output()), "Duplicate function call output"),
    "a call twice": (R5, items(asks(), output(), asks()), "Duplicate function call with"),
    "an item twice": (
        R5, items(thought(), said("x", "assistant"), thought(), said("y", "assistant")), "Duplicate item",
    ),
    "reasoning that leads nowhere": (R5, items(said("x"), thought(), said("y")), "required following item"),
    "reasoning at the end": (R5, items(said("x"), thought()), "required following item"),
    "reasoning without its secret": (
        R5, items(thought(encrypted_content=None), said("x", "assistant")), "not found. Items are not",
    ),
    "reasoning without a summary": (
        R5, items({"type": "reasoning", "id": "rs_1"}, said("x", "assistant")), "summary",
    ),
    "reasoning in the open": (
        R5, items(thought(content=[{"type": "reasoning_text"}]), said("x", "assistant")), "length 0",
    ),
    "a call without the reasoning it names": (R5, items(asks(id="fc_1"), output()), "required 'reasoning'"),
    "reasoning for a model that has none": (
        R4, items(thought(), said("x", "assistant"), model="gpt-4.1"), "only be provided to a reasoning",
    ),
    "effort of a model that has none": (
        R4, items(model="gpt-4.1", reasoning={"effort": "low"}), "Unsupported parameter",
    ),
    "secrets of a model that has none": (
        R4, items(model="gpt-4.1", include=["reasoning.encrypted_content"]), "Encrypted content",
    ),
    "a tool of Chat's": (R5, items(tools=[function()]), "tools[0].name"),
}  # fmt: skip


@pytest.mark.parametrize(("model", "body"), GOOD_RESPONSES)
def test_a_sound_responses_request_passes(model: ModelInfo, body: Json) -> None:
    validate(copy.deepcopy(body), model=model)


@pytest.mark.parametrize("name", BAD_RESPONSES)
def test_responses_refuses(name: str) -> None:
    model, body, words = BAD_RESPONSES[name]
    with pytest.raises(Refused) as caught:
        validate(body, model=model)
    assert words in caught.value.message


def test_an_api_without_rules_is_a_mistake_of_the_configuration() -> None:
    with pytest.raises(ConfigError, match="smoke-signals"):
        family_of("smoke-signals")


@pytest.mark.parametrize("model", [GPT, R5])
def test_a_prompt_over_the_window_is_refused_in_words_that_mean_an_overflow(model: ModelInfo) -> None:
    family = family_of(model.api)
    family.room(model.window - 100, 100, model)
    with pytest.raises(Refused) as caught:
        family.room(model.window + 1, 100, model)
    assert family.error_body(caught.value)["error"]["code"] == "context_length_exceeded"


def test_bodies_of_every_api_are_read_as_one_shape() -> None:
    body = chat(
        system(), user("x"), called("a", content="so"), tool("a", "out"), user([PICTURE]), tools=[function()]
    )
    one = family_of(CHAT).read(body)
    two = family_of(RESPONSES).read(
        items(
            said("x"), said("so", "assistant"), asks("a"), output("a", "out"), said([IMAGE]),
            instructions="be brief", tools=[{"type": "function", **function()["function"]}],
        )
    )  # fmt: skip
    assert one["system"] == two["system"] == "be brief"
    assert one["messages"] == two["messages"]
    assert one["tools"] == two["tools"]
    assert [[b["type"] for b in m["content"]] for m in one["messages"]] == [
        ["text"], ["text", "tool_use"], ["tool_result", "image"],
    ]  # fmt: skip

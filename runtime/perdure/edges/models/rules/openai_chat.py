"""Chat Completions: what OpenAI refuses, and what compatible servers refuse beyond it.

The model's provider chooses: OpenAI's own rules for `openai`; Mistral's request checks for its service
and its models anywhere; strictly alternating turns, as many chat templates raise, for servers of
whatever model (vLLM, llama.cpp, LM Studio, Ollama).
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

from perdure.edges.models.rules.family import Family
from perdure.edges.models.rules.openai_shared import (
    EFFORTS,
    as_messages,
    called,
    check_arguments,
    check_choice,
    check_image,
    check_model,
    check_name,
    check_offered,
    check_text,
    error_body,
    join,
    known_fields,
    pictured,
    refusal,
    refuse,
    typed,
    whole,
)
from perdure.edges.models.rules.refusal import Json, Refused
from perdure.records import ModelInfo

LONGEST_ID, LONGEST = 40, 10_485_760
MISTRAL = re.compile(r"mistral|ministral|mixtral|codestral|devstral|pixtral|magistral|voxtral")
MISTRAL_ID = re.compile(r"[a-zA-Z0-9]{9}\Z")
# Services that put turns in order themselves; every other server may run any chat template.
FREE_TURNS = frozenset(
    {
        "openai",
        "azure-openai",
        "mistral",
        "openrouter",
        "github-copilot",
        "kilocode",
        "opencode",
        "opencode-go",
    }
)
FIELDS = frozenset(
    {
        "model", "messages", "tools", "tool_choice", "parallel_tool_calls", "max_tokens",
        "max_completion_tokens", "stream", "stream_options", "temperature", "top_p", "n", "stop", "seed",
        "frequency_penalty", "presence_penalty", "logit_bias", "logprobs", "top_logprobs", "response_format",
        "reasoning_effort", "user", "metadata", "store", "service_tier", "prompt_cache_key",
        "prompt_cache_retention", "prompt_cache_options", "safety_identifier", "verbosity", "modalities",
        "audio", "prediction", "web_search_options", "moderation",
    }
)  # fmt: skip
MISTRAL_FIELDS = frozenset(
    {
        "model", "messages", "tools", "tool_choice", "parallel_tool_calls", "max_tokens", "stream",
        "temperature", "top_p", "n", "stop", "random_seed", "response_format", "presence_penalty",
        "frequency_penalty", "prediction", "safe_prompt", "prompt_mode", "reasoning_effort", "metadata",
    }
)  # fmt: skip
MESSAGE_FIELDS = {
    "system": {"role", "content", "name"},
    "developer": {"role", "content", "name"},
    "user": {"role", "content", "name"},
    "assistant": {"role", "content", "name", "refusal", "audio", "tool_calls", "function_call"},
    "tool": {"role", "content", "tool_call_id"},
}
REASONING_FIELDS = {"reasoning_content", "reasoning"}
PARTS = {
    "user": ("text", "image_url", "input_audio", "file"),
    "assistant": ("text", "refusal"),
}


def validate(
    body: Json, *, known: bool = True, model: ModelInfo | None = None, counting: bool = False
) -> None:
    """Order: shape → model (404) → turns → the server's own rules."""
    provider = model.provider.lower() if model is not None else "openai"
    _check_top(body, provider)
    _check_tools(body)
    for n, message in enumerate(body["messages"]):
        _check_message(message, f"messages[{n}]", provider, known)
    check_model(body, model)
    check_choice(body)
    _check_limits(body, model, provider, known)
    _check_pairing(body["messages"])
    if "mistral" in provider or (model is not None and MISTRAL.search(model.id.lower())):
        _check_mistral(body, own=provider == "mistral")
    if known and provider not in FREE_TURNS:
        _check_turns(body["messages"])


def _check_top(body: Json, provider: str) -> None:
    typed(body.get("model"), str, "model", "a string")
    typed(body.get("messages"), list, "messages", "an array of objects")
    if not body["messages"]:
        refuse("Invalid 'messages': empty array. Expected an array with minimum length 1.", "empty_array")
    if provider in ("openai", "azure-openai"):
        known_fields(body, FIELDS, "")
    for name in ("max_tokens", "max_completion_tokens"):
        if body.get(name) is not None:
            whole(body[name], name, 1)
    if body.get("max_tokens") and body.get("max_completion_tokens"):
        refuse("Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.")
    if body.get("stream_options") is not None and not body.get("stream"):
        refuse("The 'stream_options' parameter is only allowed when 'stream' is enabled.")
    if body.get("prompt_cache_key") is not None:
        check_text(body["prompt_cache_key"], "prompt_cache_key", 64)
    if body.get("reasoning_effort") not in (None, *EFFORTS):
        refuse(f"Invalid value: '{body['reasoning_effort']}'. Supported values are: {EFFORTS}.")


def _check_tools(body: Json) -> None:
    tools = body.get("tools")
    if tools is None:
        return
    typed(tools, list, "tools", "an array of objects")
    if not tools:
        refuse("Invalid 'tools': empty array. Expected an array with minimum length 1.", "empty_array")
    for n, tool in enumerate(tools):
        typed(tool, dict, f"tools[{n}]", "an object")
        if tool.get("type") != "function":
            refuse(
                f"Missing required parameter: 'tools[{n}].type'."
                if "type" not in tool
                else f"Invalid value: '{tool['type']}'. Supported values are: 'function' and 'custom'."
            )
        known_fields(tool, {"type", "function", "cache_control"}, f"tools[{n}].")
    check_offered([(f"tools[{n}].function", tool.get("function")) for n, tool in enumerate(tools)])


def _check_limits(body: Json, model: ModelInfo | None, provider: str, known: bool) -> None:
    if model is None:
        return
    reasons = model.thinking != "none"
    if provider == "openai" and reasons and body.get("max_tokens") is not None:
        refuse(
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use "
            "'max_completion_tokens' instead.",
            "unsupported_parameter",
        )
    if provider == "openai" and not reasons and body.get("reasoning_effort") is not None:
        refuse("Unrecognized request argument supplied: reasoning_effort")
    wanted = _wanted(body)
    if known and wanted > model.max_output:
        refuse(
            f"max_tokens is too large: {wanted}. This model supports at most {model.max_output} completion "
            f"tokens, whereas you provided {wanted}.",
            "invalid_value",
        )


def _wanted(body: Json) -> int:
    return int(body.get("max_completion_tokens") or body.get("max_tokens") or 0)


# --- messages ---------------------------------------------------------------------------------------


def _check_message(message: Any, path: str, provider: str, known: bool) -> None:
    typed(message, dict, path, "an object")
    role = message.get("role")
    if role not in MESSAGE_FIELDS:
        refuse(
            f"Invalid value: '{role}'. Supported values are: {', '.join(MESSAGE_FIELDS)}.", "invalid_value"
        )
    own = provider in ("openai", "azure-openai")
    known_fields(
        message, MESSAGE_FIELDS[role] if own else MESSAGE_FIELDS[role] | REASONING_FIELDS, f"{path}."
    )
    content = message.get("content")
    if role == "assistant":
        _check_calls(message, path, known)
        if content is None:
            if not message.get("tool_calls"):
                refuse(f"Invalid value for 'content': expected a string, got null. ({path})")
            return
    if role == "tool":
        check_text(message.get("tool_call_id"), f"{path}.tool_call_id", LONGEST_ID)
    if type(content) is str:
        check_text(content, f"{path}.content", LONGEST, empty=True)
        return
    typed(content, list, f"{path}.content", "one of a string or array of objects")
    _check_parts(content, role, f"{path}.content")


def _check_parts(content: list[Any], role: str, path: str) -> None:
    if not content:
        refuse(f"Invalid '{path}': empty array. Expected an array with minimum length 1.", "empty_array")
    for n, part in enumerate(content):
        typed(part, dict, f"{path}[{n}]", "an object")
        allowed = PARTS.get(role, ("text",))
        if part.get("type") not in allowed:
            refuse(
                f"Invalid value: '{part.get('type')}'. Supported values are: {', '.join(allowed)}. "
                f"({path}[{n}].type)",
                "invalid_value",
            )
        if part["type"] == "text":
            typed(part.get("text"), str, f"{path}[{n}].text", "a string")
        elif part["type"] == "image_url":
            typed(part.get("image_url"), dict, f"{path}[{n}].image_url", "an object")
            check_image(part["image_url"].get("url"), f"{path}[{n}].image_url.url")


def _check_calls(message: Json, path: str, known: bool) -> None:
    if "tool_calls" not in message:
        return
    calls = message["tool_calls"]
    typed(calls, list, f"{path}.tool_calls", "an array of objects")
    if not calls:
        refuse(
            f"Invalid '{path}.tool_calls': empty array. Expected an array with minimum length 1.",
            "empty_array",
        )
    for n, call in enumerate(calls):
        at = f"{path}.tool_calls[{n}]"
        typed(call, dict, at, "an object")
        known_fields(call, {"id", "type", "function", "index"}, f"{at}.")
        check_text(call.get("id"), f"{at}.id", LONGEST_ID)
        if call.get("type") != "function":
            refuse(f"Missing required parameter: '{at}.type'.", "missing_required_parameter")
        typed(call.get("function"), dict, f"{at}.function", "an object")
        check_name(call["function"].get("name"), f"{at}.function.name")
        check_arguments(call["function"].get("arguments"), f"{at}.function.arguments", known=known)


def _check_pairing(messages: list[Json]) -> None:
    """Each call is answered once, by tool messages directly behind the message that made it."""
    waiting: dict[str, bool] = {}
    for n, message in enumerate(messages):
        if message["role"] == "tool":
            ident = message["tool_call_id"]
            if not waiting.get(ident):
                refuse(
                    "Invalid parameter: messages with role 'tool' must be a response to a preceeding message "
                    f"with 'tool_calls'. (messages.[{n}].role)"
                )
            waiting[ident] = False
            continue
        _unanswered(waiting)
        ids = [call["id"] for call in message.get("tool_calls") or ()]
        if len(set(ids)) != len(ids):
            refuse(f"Duplicate value for 'tool_call_id' in messages[{n}].")
        waiting = dict.fromkeys(ids, True)
    _unanswered(waiting)


def _unanswered(waiting: dict[str, bool]) -> None:
    missing = [ident for ident, open_ in waiting.items() if open_]
    if missing:
        refuse(
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
            "'tool_call_id'. The following tool_call_ids did not have response messages: "
            + ", ".join(missing)
        )


# --- servers' own rules -----------------------------------------------------------------------------


def _check_mistral(body: Json, *, own: bool) -> None:
    """mistral-common's checks of a request; `own`: its service also refuses unknown fields."""
    if own:
        for name in body:
            if name not in MISTRAL_FIELDS:
                raise Refused(422, "invalid_request_error", f"body.{name}: Extra inputs are not permitted")
    before = ""
    for message in body["messages"]:
        role = message["role"]
        if role == "developer":
            raise Refused(422, "invalid_request_error", "Input tag 'developer' does not match any role")
        if before == "tool" and role not in ("assistant", "tool"):
            refuse(f"Unexpected role '{role}' after role 'tool'", "3230")
        for ident in (message.get("tool_call_id"), *(c["id"] for c in message.get("tool_calls") or ())):
            if ident is not None and not MISTRAL_ID.match(ident):
                raise Refused(
                    400,
                    "invalid_function_call",
                    f"Tool call id was {ident} but must be a-z, A-Z, 0-9, with a length of 9.",
                    "3280",
                )
        if role == "assistant" and not message.get("content") and not message.get("tool_calls"):
            refuse("Assistant message must have either content or tool_calls, but not none.", "3240")
        before = role
    if before not in ("user", "tool"):
        refuse(
            f"Expected last role User or Tool (or Assistant with prefix True) for serving but got {before}",
            "3230",
        )


def _check_turns(messages: list[Json]) -> None:
    """The rule most chat templates raise: behind the system prompt, user and assistant take turns."""
    roles = [message["role"] for message in messages]
    if any(role in ("system", "developer") for role in roles[1:]):
        refuse("System message must be at the beginning.")
    spoken = roles[1:] if roles[0] in ("system", "developer") else roles
    if spoken and spoken[0] != "user":
        refuse("Conversation roles must alternate user/assistant/user/assistant/... (first is not user)")
    for one, two in pairwise(spoken):
        if one == two and one != "tool":
            refuse(f"Conversation roles must alternate user/assistant/user/assistant/... ({one} twice)")


# --- size, faults, reading --------------------------------------------------------------------------


def _room(tokens: int, wanted: int, model: ModelInfo) -> None:
    """Prompt and answer share the window of every server that tells one."""
    if tokens + wanted > model.window:
        refuse(_too_long(tokens, wanted, model), "context_length_exceeded")


def _too_long(tokens: int, wanted: int, model: ModelInfo) -> str:
    return (
        f"This model's maximum context length is {model.window} tokens. However, you requested "
        f"{tokens + wanted} tokens ({tokens} in the messages, {wanted} in the completion). Please reduce the "
        "length of the messages or completion."
    )


def _refusal(fault: str, tokens: int, model: ModelInfo) -> Refused | None:
    if fault == "overflow":
        text = f"This model's maximum context length is {model.window} tokens. Please reduce the length."
        return Refused(400, "invalid_request_error", text, "context_length_exceeded")
    return refusal(fault)


def read(body: Json) -> Json:
    """The body as the Messages API would have it."""
    system: list[str] = []
    messages: list[Json] = []
    for message in body["messages"]:
        role, content = message["role"], message.get("content")
        if role in ("system", "developer"):
            system += [block["text"] for block in _blocks(content)]
        elif role == "tool":
            result = {"type": "tool_result", "tool_use_id": message["tool_call_id"]}
            join(messages, "user", [result | {"content": _blocks(content)}])
        elif role == "assistant":
            join(messages, "assistant", _said(message))
        else:
            join(messages, "user", _blocks(content))
    tools = [tool["function"] for tool in body.get("tools") or ()]
    return as_messages(body["model"], tools, "\n".join(system), messages, _wanted(body))


def _said(message: Json) -> list[Json]:
    thought = message.get("reasoning_content") or message.get("reasoning")
    blocks = [{"type": "thinking", "thinking": thought, "signature": "reasoning_content"}] if thought else []
    blocks += _blocks(message.get("content"))
    calls = message.get("tool_calls") or ()
    return blocks + [called(c["id"], c["function"]["name"], c["function"]["arguments"]) for c in calls]


def _blocks(content: Any) -> list[Json]:
    if isinstance(content, str) or not content:
        return [{"type": "text", "text": content}] if content else []
    return [
        pictured(part["image_url"]["url"])
        if part["type"] == "image_url"
        else {"type": "text", "text": part.get("text") or part.get("refusal") or ""}
        for part in content
    ]


FAMILY = Family(
    validate=validate,
    read=read,
    room=_room,
    refusal=_refusal,
    error_body=error_body,
    call_id=lambda mark: f"call_{mark}",
    signature=lambda _, __: "reasoning_content",
)

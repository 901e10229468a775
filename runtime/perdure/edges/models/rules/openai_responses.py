"""The Responses API: what it refuses of a request that is whole in itself (nothing stored there)."""

from __future__ import annotations

from typing import Any

import msgspec

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
from perdure.records import ModelInfo, Thinking

LONGEST_ID, LONGEST, LEAST_TOKENS = 64, 10_485_760, 16
FIELDS = frozenset(
    {
        "model", "input", "instructions", "tools", "tool_choice", "parallel_tool_calls", "max_output_tokens",
        "max_tool_calls", "stream", "stream_options", "store", "include", "reasoning", "text", "temperature",
        "top_p", "top_logprobs", "truncation", "metadata", "previous_response_id", "conversation", "prompt",
        "prompt_cache_key", "prompt_cache_retention", "prompt_cache_options", "safety_identifier",
        "service_tier", "background", "user", "context_management", "moderation",
    }
)  # fmt: skip
ITEMS: dict[str, set[str]] = {
    "message": {"type", "role", "content", "id", "status", "phase"},
    "function_call": {"type", "call_id", "name", "arguments", "id", "status", "namespace", "caller"},
    "function_call_output": {"type", "call_id", "output", "id", "status", "name", "namespace", "caller"},
    "reasoning": {"type", "id", "summary", "encrypted_content", "content", "status"},
}
PREFIXES = {"message": "msg", "function_call": "fc", "reasoning": "rs", "function_call_output": "fc"}
TOOL_FIELDS = {"type", "name", "description", "parameters", "strict", "defer_loading", "allowed_callers"}
USER_PARTS = ("input_text", "input_image", "input_file")


def validate(
    body: Json, *, known: bool = True, model: ModelInfo | None = None, counting: bool = False
) -> None:
    """Order: shape → model (404) → what the model takes → items among each other."""
    _check_top(body)
    _check_tools(body.get("tools"))
    items = body["input"] if type(body["input"]) is list else []
    for n, item in enumerate(items):
        _check_item(item, f"input[{n}]", known)
    check_model(body, model)
    check_choice(body)
    if model is not None:
        _check_model_takes(body, items, model, known)
    _check_ids(items)
    _check_pairing(items)
    _check_reasoning(items, stored=body.get("store", True), model=model)


def _check_top(body: Json) -> None:
    typed(body.get("model"), str, "model", "a string")
    given = body.get("input")
    if type(given) is not str:
        typed(given, list, "input", "one of a string or array of input items")
    if not given:
        refuse("One of 'input' or 'previous_response_id' must be given and not be empty.")
    known_fields(body, FIELDS, "")
    if body.get("instructions") is not None:
        typed(body["instructions"], str, "instructions", "a string")
    if body.get("max_output_tokens") is not None:
        whole(body["max_output_tokens"], "max_output_tokens", LEAST_TOKENS)
    if body.get("prompt_cache_key") is not None:
        check_text(body["prompt_cache_key"], "prompt_cache_key", 64)
    effort = (body.get("reasoning") or {}).get("effort")
    if effort not in (None, *EFFORTS):
        refuse(f"Invalid value: '{effort}'. Supported values are: {', '.join(EFFORTS)}.", "invalid_value")


def _check_tools(tools: Any) -> None:
    if tools is None:
        return
    typed(tools, list, "tools", "an array of objects")
    for n, tool in enumerate(tools):
        typed(tool, dict, f"tools[{n}]", "an object")
        if tool.get("type") != "function":
            refuse(f"Invalid value for 'tools[{n}].type': {tool.get('type')!r}.", "invalid_value")
        if "name" not in tool:
            refuse(f"Missing required parameter: 'tools[{n}].name'.", "missing_required_parameter")
        known_fields(tool, TOOL_FIELDS, f"tools[{n}].")
    check_offered([(f"tools[{n}]", tool) for n, tool in enumerate(tools)])


def _check_model_takes(body: Json, items: list[Json], model: ModelInfo, known: bool) -> None:
    wanted = body.get("max_output_tokens") or 0
    if known and wanted > max(model.max_output, LEAST_TOKENS):
        refuse(f"Invalid 'max_output_tokens': {wanted} is above the {model.max_output} of this model.")
    if model.thinking != "none":
        return
    if body.get("reasoning") is not None:
        refuse(
            "Unsupported parameter: 'reasoning.effort' is not supported with this model.",
            "unsupported_parameter",
        )
    if "reasoning.encrypted_content" in (body.get("include") or ()):
        refuse("Encrypted content is not supported with this model.")
    if any(_kind(item) == "reasoning" for item in items):
        refuse("Reasoning input items can only be provided to a reasoning or computer use model.")


# --- items by themselves ----------------------------------------------------------------------------


def _kind(item: Json) -> Any:
    return item.get("type", "message" if "role" in item else None)


def _check_item(item: Any, path: str, known: bool) -> None:
    typed(item, dict, path, "an object")
    kind = _kind(item)
    if kind not in ITEMS:
        refuse(f"Invalid value: '{kind}'. Supported values are: {', '.join(ITEMS)}.", "invalid_value")
    known_fields(item, ITEMS[kind], f"{path}.")
    if item.get("id") is not None:
        check_text(item["id"], f"{path}.id", LONGEST_ID)
        if not item["id"].startswith(PREFIXES[kind]):
            refuse(
                f"Invalid '{path}.id': '{item['id']}'. Expected an ID that begins with '{PREFIXES[kind]}'.",
                "invalid_value",
            )
    if kind == "message":
        _check_message(item, path)
    elif kind == "reasoning":
        _check_thought(item, path)
    else:
        check_text(item.get("call_id"), f"{path}.call_id", LONGEST_ID)
    if kind == "function_call":
        check_name(item.get("name"), f"{path}.name")
        check_arguments(item.get("arguments"), f"{path}.arguments", known=known)
    elif kind == "function_call_output":
        _check_content(item.get("output"), USER_PARTS, f"{path}.output")


def _check_message(item: Json, path: str) -> None:
    role = item.get("role")
    if role not in ("user", "assistant", "system", "developer"):
        refuse(f"Invalid value: '{role}' ({path}.role).", "invalid_value")
    parts = ("output_text", "refusal") if role == "assistant" else USER_PARTS
    _check_content(item.get("content"), parts, f"{path}.content")


def _check_content(content: Any, parts: tuple[str, ...], path: str) -> None:
    if type(content) is str:
        check_text(content, path, LONGEST, empty=True)
        return
    typed(content, list, path, "one of a string or array of objects")
    for n, part in enumerate(content):
        typed(part, dict, f"{path}[{n}]", "an object")
        if part.get("type") not in parts:
            named = " and ".join(f"'{each}'" for each in parts)
            refuse(f"Invalid value: '{part.get('type')}'. Supported values are: {named}.", "invalid_value")
        if part["type"] == "input_image":
            check_image(part.get("image_url"), f"{path}[{n}].image_url")
        elif part["type"] in ("input_text", "output_text"):
            check_text(part.get("text"), f"{path}[{n}].text", LONGEST, empty=True)


def _check_thought(item: Json, path: str) -> None:
    if "summary" not in item:
        refuse(f"Missing required parameter: '{path}.summary'.", "missing_required_parameter")
    typed(item["summary"], list, f"{path}.summary", "an array of objects")
    for part in item["summary"]:
        if type(part) is not dict or part.get("type") != "summary_text" or type(part.get("text")) is not str:
            refuse(f"Invalid value in '{path}.summary': 'summary_text' parts are expected.", "invalid_value")
    check_text(item.get("id"), f"{path}.id", LONGEST_ID)
    if item.get("content"):
        refuse(f"Invalid '{path}.content': array too long. Expected an array with maximum length 0.")


# --- items among each other -------------------------------------------------------------------------


def _check_ids(items: list[Json]) -> None:
    seen: set[str] = set()
    for item in items:
        ident = item.get("id")
        if ident is not None and ident in seen:
            refuse(
                f"Duplicate item found with id {ident}. Remove duplicate items from your input and try again."
            )
        seen.add(ident or "")


def _check_pairing(items: list[Json]) -> None:
    """Every output behind its call, every call with its output, each once."""
    calls: dict[str, bool] = {}
    for item in items:
        if _kind(item) == "function_call":
            if item["call_id"] in calls:
                refuse(f"Duplicate function call with call_id {item['call_id']}.")
            calls[item["call_id"]] = False
        elif _kind(item) == "function_call_output":
            if item["call_id"] not in calls:
                refuse(f"No tool call found for function call output with call_id {item['call_id']}.")
            if calls[item["call_id"]]:
                refuse(f"Duplicate function call output with call_id {item['call_id']}.")
            calls[item["call_id"]] = True
    missing = next((ident for ident, answered in calls.items() if not answered), None)
    if missing is not None:
        refuse(f"No tool output found for function call {missing}.")


def _check_reasoning(items: list[Json], *, stored: bool, model: ModelInfo | None) -> None:
    """Reasoning is followed by what it led to; a call that names its item stands behind its reasoning."""
    reasoned = False
    for n, item in enumerate(items):
        kind = _kind(item)
        if kind == "reasoning":
            reasoned = True
            if not stored and not item.get("encrypted_content"):
                raise Refused(
                    404,
                    "invalid_request_error",
                    f"Item with id '{item['id']}' not found. Items are not persisted when `store` is set to "
                    "false. Try again with `store` set to true, or remove this item from your input.",
                )
            if not _leads_on(items[n + 1 :]):
                refuse(
                    f"Item '{item['id']}' of type 'reasoning' was provided without its required following "
                    "item."
                )
        elif kind == "function_call" and item.get("id") and not reasoned and _reasons(model):
            refuse(
                f"Item '{item['id']}' of type 'function_call' was provided without its required 'reasoning' "
                "item."
            )
        elif kind == "function_call_output" or item.get("role") not in (None, "assistant"):
            reasoned = False


def _reasons(model: ModelInfo | None) -> bool:
    return model is not None and model.thinking != "none"


def _leads_on(rest: list[Json]) -> bool:
    for item in rest:
        if _kind(item) != "reasoning":
            return _kind(item) == "function_call" or item.get("role") == "assistant"
    return False


# --- size, faults, reading --------------------------------------------------------------------------

TOO_LONG = "Your input exceeds the context window of this model. Please adjust your input and try again."


def _room(tokens: int, wanted: int, model: ModelInfo) -> None:
    if tokens > model.window:
        refuse(TOO_LONG, "context_length_exceeded")


def _refusal(fault: str, tokens: int, model: ModelInfo) -> Refused | None:
    if fault == "overflow":
        return Refused(400, "invalid_request_error", TOO_LONG, "context_length_exceeded")
    return refusal(fault)


def read(body: Json) -> Json:
    """The body as the Messages API would have it."""
    given = body["input"]
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    system = [body.get("instructions") or ""]
    messages: list[Json] = []
    for item in items:
        kind = _kind(item)
        if kind == "message" and item["role"] in ("system", "developer"):
            system += [block["text"] for block in _blocks(item["content"])]
        elif kind == "message":
            join(messages, item["role"], _blocks(item["content"]))
        elif kind == "function_call":
            join(messages, "assistant", [called(item["call_id"], item["name"], item["arguments"])])
        elif kind == "reasoning":
            join(messages, "assistant", [_thought(item)])
        else:
            result = {"type": "tool_result", "tool_use_id": item["call_id"]}
            join(messages, "user", [result | {"content": _blocks(item["output"])}])
    text = "\n".join(part for part in system if part)
    return as_messages(body["model"], body.get("tools") or [], text, messages, body.get("max_output_tokens"))


def _thought(item: Json) -> Json:
    text = "\n\n".join(part["text"] for part in item["summary"])
    return {"type": "thinking", "thinking": text, "signature": item.get("encrypted_content") or ""}


def _blocks(content: Any) -> list[Json]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return [
        pictured(part["image_url"])
        if part["type"] == "input_image"
        else {"type": "text", "text": part.get("text") or part.get("refusal") or ""}
        for part in content
    ]


def _signature(mark: str, block: Thinking) -> str:
    """The reasoning item that a scripted thought came as."""
    summary = [{"type": "summary_text", "text": block.thinking}] if block.thinking else []
    item = {"id": f"rs_{mark}", "type": "reasoning", "summary": summary}
    return msgspec.json.encode(item | {"encrypted_content": f"enc_{mark}"}).decode()


FAMILY = Family(
    validate=validate,
    read=read,
    room=_room,
    refusal=_refusal,
    error_body=error_body,
    call_id=lambda mark: f"call_{mark}|fc_{mark}",
    signature=_signature,
)

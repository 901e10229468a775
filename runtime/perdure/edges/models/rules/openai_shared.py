"""What Chat Completions and Responses refuse alike, and how OpenAI's APIs word it.

Sources: the official SDK's types, the API reference, and refusals quoted in public issue threads.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Container
from typing import Any, NoReturn

import msgspec

from perdure.edges.models.rules.refusal import Json, Refused
from perdure.records import ModelInfo

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")
DATA_URL = re.compile(r"data:image/(png|jpeg|gif|webp);base64,(.+)\Z", re.DOTALL)
MOST_TOOLS = 128
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
TOP_WORDS = ("oneOf", "anyOf", "allOf", "enum", "not")

REFUSALS: dict[str, tuple[int, str, str, str]] = {
    "rate_limit": (
        429, "requests", "Rate limit reached for requests. Please try again later.", "rate_limit_exceeded",
    ),
    "overloaded": (503, "service_unavailable_error", "The server is overloaded. Please try again.", ""),
    "server": (500, "server_error", "The server had an error while processing your request.", ""),
    "auth": (401, "invalid_request_error", "Incorrect API key provided.", "invalid_api_key"),
    "billing": (
        429, "insufficient_quota",
        "You exceeded your current quota, please check your plan and billing details.",
        "insufficient_quota",
    ),
}  # fmt: skip


def refuse(message: str, code: str = "") -> NoReturn:
    """Refuse with 400 `invalid_request_error`, as every structural rule does."""
    raise Refused(400, "invalid_request_error", message, code)


def refusal(fault: str) -> Refused | None:
    """The reply to a scripted fault other than an overflow."""
    return Refused(*REFUSALS[fault]) if fault in REFUSALS else None


def error_body(refused: Refused) -> Json:
    """The JSON of a refusal."""
    error = {"message": refused.message, "type": refused.error_type, "param": None}
    return {"error": error | {"code": refused.code or None}}


def check_model(body: Json, model: ModelInfo | None) -> None:
    """A model there is no such of is 404, after the request's shape."""
    name = body["model"]
    if model is not None and name != model.id:
        raise Refused(
            404,
            "invalid_request_error",
            f"The model `{name}` does not exist or you do not have access to it.",
            "model_not_found",
        )


def typed(value: Any, kind: type, path: str, word: str) -> None:
    """Refuse a value of another JSON type."""
    if type(value) is not kind:
        given = "null" if value is None else type(value).__name__
        refuse(f"Invalid type for '{path}': expected {word}, but got {given} instead.", "invalid_type")


def whole(value: Any, path: str, least: int) -> None:
    """Refuse what is no whole number from `least` on."""
    typed(value, int, path, "an integer")
    if value < least:
        refuse(
            f"Invalid '{path}': integer below minimum value. Expected a value >= {least}, but got {value} "
            "instead.",
            "integer_below_min_value",
        )


def known_fields(value: Json, allowed: Container[str], path: str) -> None:
    """Refuse a field that the API doesn't know."""
    for name in value:
        if name not in allowed:
            refuse(f"Unknown parameter: '{path}{name}'.", "unknown_parameter")


def check_text(value: Any, path: str, longest: int, *, empty: bool = False) -> None:
    """A string of at most `longest` characters."""
    typed(value, str, path, "a string")
    if not value and not empty:
        refuse(f"Invalid '{path}': empty string. Expected a string with minimum length 1.", "empty_string")
    if len(value) > longest:
        refuse(
            f"Invalid '{path}': string too long. Expected a string with maximum length {longest}, but got a "
            f"string with length {len(value)} instead.",
            "string_above_max_length",
        )


def check_name(value: Any, path: str) -> None:
    """The name of a function, offered or called."""
    check_text(value, path, 64)
    if not NAME.match(value):
        refuse(
            f"Invalid '{path}': string does not match pattern. Expected a string that matches the pattern "
            "'^[a-zA-Z0-9_-]+$'.",
            "invalid_value",
        )


def check_arguments(value: Any, path: str, *, known: bool) -> None:
    """A string; several compatible servers read it as the JSON of an object."""
    typed(value, str, path, "a string")
    if not known:
        return
    try:
        good = type(msgspec.json.decode(value.encode())) is dict
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        good = False
    if not good:
        refuse(f"Invalid '{path}': the arguments are not the JSON of an object.", "invalid_value")


def check_image(url: Any, path: str) -> None:
    """The URL of a picture: of the web, or its data."""
    typed(url, str, path, "a string")
    if url.startswith(("https://", "http://")):
        return
    found = DATA_URL.match(url)
    if found is None:
        refuse(
            f"Invalid '{path}'. Expected a valid URL or the base64 data of an image (png, jpeg, gif, webp).",
            "invalid_value",
        )
    try:
        base64.b64decode(found[2], validate=True)
    except (binascii.Error, ValueError):
        refuse(f"Invalid base64 image_url in '{path}'.", "invalid_base64")


def check_offered(functions: list[tuple[str, Any]]) -> None:
    """The functions offered, each with its path: names, uniqueness, schemas."""
    if len(functions) > MOST_TOOLS:
        refuse(
            f"Invalid 'tools': array too long. Expected an array with maximum length {MOST_TOOLS}, but got "
            f"an array with length {len(functions)} instead.",
            "array_above_max_length",
        )
    seen: set[str] = set()
    for path, function in functions:
        typed(function, dict, path, "an object")
        check_name(function.get("name"), f"{path}.name")
        if function["name"] in seen:
            refuse(f"Invalid 'tools': the name '{function['name']}' is used twice.", "invalid_value")
        seen.add(function["name"])
        typed(function.get("description", ""), str, f"{path}.description", "a string")
        _check_schema(function.get("parameters"), function["name"])


def _check_schema(schema: Any, name: str) -> None:
    if schema is None:
        return
    wrong = f"Invalid schema for function '{name}': "
    if type(schema) is not dict or schema.get("type") != "object":
        refuse(f"{wrong}schema must be a JSON Schema of 'type: \"object\"'.", "invalid_function_parameters")
    if type(schema.get("properties")) is not dict:
        refuse(f"{wrong}In context=(), object schema missing properties.", "invalid_function_parameters")
    if any(word in schema for word in TOP_WORDS):
        refuse(
            f"{wrong}schema must have type 'object' and not have 'oneOf'/'anyOf'/'allOf'/'enum'/'not' at "
            "the top level.",
            "invalid_function_parameters",
        )
    _check_arrays(schema, wrong)


def _check_arrays(node: Any, wrong: str) -> None:
    if type(node) is dict:
        if node.get("type") == "array" and "items" not in node:
            refuse(f"{wrong}array schema missing items.", "invalid_function_parameters")
        for each in node.values():
            _check_arrays(each, wrong)
    elif type(node) is list:
        for each in node:
            _check_arrays(each, wrong)


def check_choice(body: Json) -> None:
    """Settings about tools without tools."""
    if body.get("tools"):
        return
    for name in ("tool_choice", "parallel_tool_calls"):
        if body.get(name) is not None:
            refuse(f"Invalid value for '{name}': '{name}' is only allowed when 'tools' are specified.")


# --- the body as the Messages API would have it -----------------------------------------------------


def join(messages: list[Json], role: str, blocks: list[Json]) -> None:
    """Add blocks to the last message of that role, or begin one."""
    if messages and messages[-1]["role"] == role:
        messages[-1]["content"] += blocks
    else:
        messages.append({"role": role, "content": blocks})


def called(ident: str, name: str, arguments: str) -> Json:
    """A call, its arguments decoded."""
    try:
        given = msgspec.json.decode(arguments.encode())
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        given = {}
    return {"type": "tool_use", "id": ident, "name": name, "input": given if type(given) is dict else {}}


def pictured(url: str) -> Json:
    """A picture."""
    found = DATA_URL.match(url)
    if found is None:
        return {"type": "image", "source": {"type": "url", "url": url}}
    source = {"type": "base64", "media_type": f"image/{found[1]}", "data": found[2]}
    return {"type": "image", "source": source}


def as_messages(model: str, tools: list[Any], system: str, messages: list[Json], limit: Any) -> Json:
    """The whole; a prefix is cached by itself, up to the end of the prompt."""
    read: Json = {"model": model, "messages": messages, "max_tokens": limit or 0}
    read["cache_control"] = {"type": "ephemeral"}
    if system:
        read["system"] = system
    if tools:
        read["tools"] = [
            {
                "name": tool.get("name"),
                "description": tool.get("description", ""),
                "input_schema": tool.get("parameters") or {},
            }
            for tool in tools
        ]
    return read

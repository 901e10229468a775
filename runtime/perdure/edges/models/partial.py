"""Reads the arguments of a tool call even when the model's JSON broke off or is malformed."""

from __future__ import annotations

from typing import Any

import msgspec

MAX_REPAIR = 64  # places tried, from the end backwards, before nothing is kept


def read_arguments(raw: str) -> tuple[bytes, str | None]:
    """(JSON text of an object, what was wrong or None). An empty text is an object without fields.

    Of a text that is no JSON, what stands before the break is kept where it closes to an object.
    """
    text = raw.strip()
    if not text:
        return b"{}", None
    try:
        value = msgspec.json.decode(text.encode("utf-8", "surrogatepass"))
    except (msgspec.DecodeError, RecursionError) as error:
        return _salvage(text), f"the arguments are not valid JSON ({error})"
    if not isinstance(value, dict):
        return b"{}", f"the arguments must be a JSON object, not {type(value).__name__}"
    return text.encode("utf-8", "surrogatepass"), None


def _salvage(text: str) -> bytes:
    ends = [len(text), *(n for n in range(len(text) - 1, 0, -1) if text[n] in ',{["}]:')]
    for end in ends[:MAX_REPAIR]:
        value = _decode(text[:end].rstrip().rstrip(",").rstrip())
        if isinstance(value, dict):
            return msgspec.json.encode(value)
    return b"{}"


def _decode(text: str) -> Any:
    try:
        return msgspec.json.decode(_closed(text).encode("utf-8", "replace"))
    except (msgspec.DecodeError, RecursionError):
        return None


def _closed(text: str) -> str:
    """The text with the strings and brackets closed that are still open at its end."""
    stack: list[str] = []
    quoted = escaped = False
    for char in text:
        if quoted:
            quoted = escaped or char != '"'
            escaped = char == "\\" and not escaped
        elif char == '"':
            quoted = True
        elif char in "{[":
            stack.append("}" if char == "{" else "]")
        elif char in "}]" and stack:
            stack.pop()
    if escaped:
        text = text[:-1]
    return text + ('"' if quoted else "") + "".join(reversed(stack))

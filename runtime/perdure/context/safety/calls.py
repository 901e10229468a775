"""Tool calls as the wire takes them: a valid name, an id, and arguments that are an object.

The model said what it said: arguments that aren't an object become `{}` and the pair stays, so that
the model reads the error of its own call. Calls that can't be named at all are left out.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from perdure.context.text.characters import NUL_SIGN, encodable
from perdure.records import ToolCall

MAX_NAME = 64
_NAME = re.compile(r"[A-Za-z0-9_:.-]{1,64}")
_NOT_WIRE = re.compile(r"[^A-Za-z0-9_-]")


def wire_call(call: ToolCall, *, wire_names: bool) -> ToolCall | None:
    """The call as it may be sent, the same object if nothing changed; None if it can't be.

    `b"null"` or no bytes stand for arguments that were never there: no call was really made.
    """
    name = call.name.strip()
    if not call.id.strip() or not _NAME.fullmatch(name) or call.arguments in (b"null", b""):
        return None
    if wire_names:
        name = _NOT_WIRE.sub("_", name)
    arguments = object_json(call.arguments)
    if name == call.name and arguments == call.arguments:
        return call
    return replace(call, name=name, arguments=arguments)


def object_json(raw: bytes) -> bytes:
    """JSON of an object that any strict parser takes, byte for byte as given where it is one already.

    Text that holds the JSON of an object counts as that object; everything else is `{}`.
    """
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return _tolerant(raw)
    if type(value) is dict:
        return _tolerant(raw) if b"\\u" in raw and not _is_clean(value) else raw
    return _tolerant(raw)


def _tolerant(raw: bytes) -> bytes:
    """What strict JSON refuses but JavaScript writes: lone surrogates, numbers without end."""
    try:
        value = json.loads(raw.decode("utf-8", "replace"))
        if type(value) is str:
            value = json.loads(value)
        return msgspec.json.encode(_cleaned(value)) if type(value) is dict else b"{}"
    except (ValueError, RecursionError, OverflowError, TypeError):
        return b"{}"


def _cleaned(value: Any) -> Any:
    if type(value) is str:
        return encodable(value).replace("\x00", NUL_SIGN)
    if type(value) is dict:
        return {_cleaned(key): _cleaned(each) for key, each in value.items()}
    if type(value) is list:
        return [_cleaned(each) for each in value]
    if type(value) is float and not math.isfinite(value):
        return None
    return value


def _is_clean(value: Any) -> bool:
    if type(value) is str:
        return "\x00" not in value and encodable(value) is value
    if type(value) is dict:
        return all(_is_clean(key) and _is_clean(each) for key, each in value.items())
    return all(map(_is_clean, value)) if type(value) is list else True


def spelled(call: ToolCall) -> list[str]:
    """The arguments as texts in which nothing is escaped, so that names can be found in them as they are."""
    raw = call.arguments.decode("utf-8", "replace")
    if "\\" not in raw:
        return [raw]
    try:
        value = msgspec.json.decode(call.arguments)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return [raw]
    return [f"{key}: {_quoted(leaf)}" for key, leaf in _leaves("", value)]


def _quoted(text: str) -> str:
    """A short text with blanks between quotes: only they tell where a name in it ends."""
    return f'"{text}"' if " " in text and len(text) <= 200 and not {'"', "\n"} & set(text) else text


def _leaves(key: str, value: Any) -> Iterator[tuple[str, str]]:
    if type(value) is dict:
        for name, each in value.items():
            yield from _leaves(name, each)
    elif type(value) is list:
        for each in value:
            yield from _leaves(key, each)
    elif value is not None:
        yield key, str(value)

"""Edits one value inside the bytes of a JSON object and leaves every other byte as it is.

Entries of others are never re-encoded: what we don't know in them must survive, order and spelling too.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

_STRING: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_NESTED: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[{}\[\]]', re.DOTALL)
_SCALAR: Final = re.compile(rb"[^\s,\]}]++")
_GAP: Final = re.compile(rb"[\s:,]*")


def put(raw: bytes, key: str, value: Any) -> bytes:
    """The object with `key` set to `value`: in place, or as its first field where it was not there."""
    return put_raw(raw, key, json.dumps(value).encode())


def put_raw(raw: bytes, key: str, encoded: bytes) -> bytes:
    """The same with a value that is JSON already."""
    span = value_span(raw, key)
    if span is not None:
        return raw[: span[0]] + encoded + raw[span[1] :]
    inside = raw.index(b"{") + 1
    comma = b"" if raw[inside:].lstrip().startswith(b"}") else b","
    return raw[:inside] + json.dumps(key).encode() + b":" + encoded + comma + raw[inside:]


def value_span(raw: bytes, key: str) -> tuple[int, int] | None:
    """Where the value of a field stands (begin, end), `None` if the object has none. The last one counts.

    `ValueError` for what is not an object.
    """
    found = None
    at = raw.find(b"{") + 1
    if at == 0:
        raise ValueError("not a JSON object")
    while name := _STRING.match(raw, at := _skip(raw, at)):
        start = _skip(raw, name.end())
        end = _end_of_value(raw, start)
        if json.loads(name.group()) == key:
            found = start, end
        at = end
    return found


def _skip(raw: bytes, at: int) -> int:
    gap = _GAP.match(raw, at)
    return at if gap is None else gap.end()


def _end_of_value(raw: bytes, start: int) -> int:
    if raw[start : start + 1] in (b"{", b"["):
        return _end_of_nested(raw, start)
    value = _STRING.match(raw, start) or _SCALAR.match(raw, start)
    if value is None:
        raise ValueError("not a JSON object")
    return value.end()


def _end_of_nested(raw: bytes, start: int) -> int:
    depth = 0
    for token in _NESTED.finditer(raw, start):
        mark = token.group()
        if mark in (b"{", b"["):
            depth += 1
        elif mark in (b"}", b"]"):
            depth -= 1
            if depth == 0:
                return token.end()
    raise ValueError("not a JSON object")

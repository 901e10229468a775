"""Recorded texts as a scenario can hold them: lone surrogates can't be UTF-8, arguments must be objects."""

from __future__ import annotations

import json

import msgspec


def clean(text: str) -> str:
    """The text with each lone surrogate replaced by U+FFFD; pairs become the character they mean."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def clean_json(raw: bytes) -> bytes:
    """Arguments as one line of JSON, an object; what is none becomes `{"input": …}` with its text."""
    try:
        if isinstance(msgspec.json.decode(raw), dict):
            return msgspec.json.format(raw, indent=-1)
    except msgspec.DecodeError:
        pass
    try:
        value = json.loads(raw)
    except ValueError:
        value = raw.decode(errors="replace")
    if not isinstance(value, dict):
        value = {"input": value}
    return clean(json.dumps(value, ensure_ascii=False, separators=(",", ":"))).encode()

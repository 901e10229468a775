"""Careful looks into JSON that other programs wrote: a value of the wrong type is as good as none."""

from __future__ import annotations

import json
from typing import Any

from perdure.records import Block, Image, Text
from perdure.replay.times import epoch_ms


def text(row: Any, key: str) -> str:
    """A string field, "" if it is none."""
    value = row.get(key) if isinstance(row, dict) else None
    return value if isinstance(value, str) else ""


def mapping(row: Any, key: str) -> dict[str, Any]:
    """An object field, {} if it is none."""
    value = row.get(key) if isinstance(row, dict) else None
    return value if isinstance(value, dict) else {}


def objects(row: Any, key: str) -> list[dict[str, Any]]:
    """The objects of a list field, [] if it is none."""
    value = row.get(key) if isinstance(row, dict) else None
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def when(row: Any, key: str = "timestamp") -> int:
    """Epoch ms of an ISO field, 0 if it is none."""
    try:
        return epoch_ms(text(row, key))
    except ValueError:
        return 0


def as_json(value: Any) -> bytes:
    """JSON of a value; surrogates stay escaped."""
    return json.dumps(value, separators=(",", ":")).encode()


def blocks(content: Any) -> tuple[Block, ...]:
    """Text and base64 images of a Messages-API content: a string, or a list of blocks."""
    if isinstance(content, str):
        return (Text(content),)
    made: list[Block] = []
    for block in objects({"content": content}, "content"):
        if block.get("type") in ("text", "input_text", "output_text"):
            made.append(Text(text(block, "text")))
        source = mapping(block, "source")
        if block.get("type") == "image" and text(source, "data"):
            made.append(Image(text(source, "data"), text(source, "media_type")))
    return tuple(made)

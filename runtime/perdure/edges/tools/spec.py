"""How a tool's schema is written down: as JSON whose bytes never change between runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from perdure.records import ToolSpec


def make_spec(
    name: str,
    description: str,
    summary: str,
    properties: Mapping[str, Mapping[str, Any]],
    required: tuple[str, ...] = (),
) -> ToolSpec:
    """A spec whose schema keeps the order given here: it is part of the cached prefix of every request."""
    schema = {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }
    return ToolSpec(name, description, msgspec.json.encode(schema), summary)


def text(description: str, **more: Any) -> dict[str, Any]:
    """A string parameter."""
    return {"type": "string", "description": description, **more}


def number(description: str, minimum: int, maximum: int | None = None) -> dict[str, Any]:
    """A whole-number parameter."""
    limits = {"minimum": minimum} | ({} if maximum is None else {"maximum": maximum})
    return {"type": "integer", "description": description, **limits}


def flag(description: str) -> dict[str, Any]:
    """A boolean parameter."""
    return {"type": "boolean", "description": description}

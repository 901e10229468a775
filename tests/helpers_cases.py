"""Reported faults of long-running agents as inputs: one JSON object a line, each with what is right."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).parent / "data" / "cases.jsonl"


@cache
def _all() -> dict[str, dict[str, Any]]:
    with FILE.open(encoding="utf-8") as lines:
        return {case["id"]: case for case in map(json.loads, lines)}


def case(name: str) -> dict[str, Any]:
    """One case by its id: `symptom`, `input`, `right` (prose: the test asserts what it says)."""
    return _all()[name]


def names(area: str) -> list[str]:
    """The ids of an area, in the file's order."""
    return [name for name, found in _all().items() if found["area"] == area]


def blown_up(value: Any) -> Any:
    """A case's input with its generated texts spelled out: `{"$repeat": ["x", n]}` is n copies of x."""
    if isinstance(value, list):
        return [blown_up(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "$repeat" in value:
        text, count = value["$repeat"]
        return text * count
    return {key: blown_up(item) for key, item in value.items()}

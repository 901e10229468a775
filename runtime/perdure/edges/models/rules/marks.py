"""Cache marks: at most four, and none that lives an hour behind one that lives five minutes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from perdure.edges.models.rules.refusal import Json, invalid

MAX_MARKS = 4


def marks(body: Json) -> Iterator[tuple[str, Json]]:
    """(path, mark) of every `cache_control`, in the order in which the provider reads blocks."""
    for n, tool in enumerate(body.get("tools") or ()):
        if tool.get("cache_control"):
            yield f"tools.{n}", tool["cache_control"]
    system = body.get("system")
    if isinstance(system, list):
        yield from _of_blocks(system, "system")
    for n, message in enumerate(body["messages"]):
        if type(message["content"]) is list:
            yield from _of_blocks(message["content"], f"messages.{n}.content")


def _of_blocks(blocks: list[Any], path: str) -> Iterator[tuple[str, Json]]:
    for m, block in enumerate(blocks):
        if block.get("cache_control"):
            yield f"{path}.{m}", block["cache_control"]
        if block["type"] == "tool_result" and type(block.get("content")) is list:
            yield from _of_blocks(block["content"], f"{path}.{m}.content")


def check_marks(body: Json) -> None:
    """Number and order. The automatic mark of the top level takes a place too."""
    found = list(marks(body))
    count = len(found) + bool(body.get("cache_control"))
    if count > MAX_MARKS:
        invalid(f"A maximum of {MAX_MARKS} blocks with cache_control may be provided. Found {count}.")
    short = False
    for path, mark in found:
        if mark.get("ttl", "5m") == "5m":
            short = True
        elif short:
            invalid(
                f"{path}.cache_control.ttl: a ttl='1h' cache_control block must not come after a ttl='5m' "
                "cache_control block. Note that blocks are processed in the following order: "
                "`tools`, `system`, `messages`."
            )

"""nanobot's session files: Chat Completions messages, one a line, below a line of metadata."""

from __future__ import annotations

from collections import Counter
from typing import Any

from perdure.records import Assistant, Block, Text, Thinking, ToolCall, ToolResult, User
from perdure.replay.formats.fields import as_json, blocks, mapping, objects, text, when
from perdure.replay.recording import UNREADABLE, Event, Recording, counted

Rows = list[dict[str, Any]]


def recognised(rows: Rows) -> bool:
    """Whether these rows are of such a file."""
    return any(row.get("_type") == "metadata" for row in rows) or (
        bool(rows) and all("role" in row and "content" in row for row in rows)
    )


def read(rows: Rows, unreadable: int) -> Recording:
    """`unreadable` lines were no JSON objects."""
    lost = Counter({UNREADABLE: unreadable})
    events = []
    for row in rows:
        event = _event(row)
        if event is None:
            lost[f"{text(row, '_type') or text(row, 'role') or 'untyped'} records"] += 1
        else:
            events.append(event)
    start = next((event.time for event in events if event.time), 0)
    return Recording("nanobot", tuple(events), len(rows), counted(lost), start=start)


def _event(row: dict[str, Any]) -> Event | None:
    time, said = when(row), blocks(row.get("content"))
    match row.get("role"):
        case "user":
            return Event(time, User(said, time))
        case "assistant":
            return Event(time, _answer(row, said))
        case "tool":
            return Event(time, ToolResult(text(row, "tool_call_id"), text(row, "name"), said))
        case _:
            return None


def _answer(row: dict[str, Any], said: tuple[Block, ...]) -> Assistant:
    thought = text(row, "reasoning_content")
    thinking: tuple[Block, ...] = (Thinking(thought),) if thought else ()
    words = tuple(block for block in said if isinstance(block, Text) and block.text)
    calls = tuple(map(_call, objects(row, "tool_calls")))
    return Assistant((*thinking, *words, *calls), "toolUse" if calls else "stop")


def _call(row: dict[str, Any]) -> ToolCall:
    function = mapping(row, "function")
    written = function.get("arguments")
    arguments = written.encode() if isinstance(written, str) else as_json(written or {})
    return ToolCall(text(row, "id"), text(function, "name"), arguments)

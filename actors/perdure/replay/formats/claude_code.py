"""Claude Code's session files: one line per content block, answers joined by `message.id`.

Read in file order without sidechains: the tree branches at every parallel call, the file doesn't.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from perdure.records import Assistant, Block, Stop, Text, Thinking, ToolCall, ToolResult, User
from perdure.replay.formats.fields import as_json, blocks, mapping, objects, text, when
from perdure.replay.recording import UNREADABLE, Event, Recording, counted

Row = dict[str, Any]
Rows = list[Row]


def recognised(rows: Rows) -> bool:
    """Whether these rows are of such a file."""
    return any("sessionId" in row and ("uuid" in row or "parentUuid" in row) for row in rows)


def read(rows: Rows, unreadable: int) -> Recording:
    """`unreadable` lines were no JSON objects."""
    lost = Counter({UNREADABLE: unreadable})
    events: list[Event] = []
    names: dict[str, str] = {}
    parts: dict[str, int] = {}  # where the answer of that id stands in `events`
    for row in rows:
        kind = _skipped(row)
        if kind:
            lost[kind] += 1
        elif row.get("type") == "user":
            events += _user(row, names)
        else:
            _assistant(row, events, parts, names)
    cwd = next((text(row, "cwd") for row in rows if row.get("cwd")), "")
    start = next((when(row) for row in rows if when(row)), 0)
    joined = len(rows) + unreadable - lost.total() - len(events)
    return Recording("claude-code", tuple(events), len(rows), counted(lost), cwd, start, joined=joined)


def _skipped(row: Row) -> str:
    if row.get("isSidechain") is True:
        return "entries of subagents"
    if row.get("isCompactSummary") is True or row.get("subtype") == "compact_boundary":
        return "compactions (the replay makes its own)"
    if row.get("isMeta") is True:
        return "notes of the program"
    if row.get("type") not in ("user", "assistant"):
        return f"{text(row, 'type') or 'untyped'} records"
    return ""


def _user(row: Row, names: dict[str, str]) -> list[Event]:
    message, time = mapping(row, "message"), when(row)
    results = [block for block in objects(message, "content") if block.get("type") == "tool_result"]
    made = [Event(time, _result(block, names)) for block in results]
    said = blocks(message.get("content"))
    return made + ([Event(time, User(said, time))] if said or not results else [])


def _result(block: Row, names: dict[str, str]) -> ToolResult:
    call = text(block, "tool_use_id")
    failed = block.get("is_error") is True
    return ToolResult(call, names.get(call, ""), blocks(block.get("content")), is_error=failed)


def _assistant(row: Row, events: list[Event], parts: dict[str, int], names: dict[str, str]) -> None:
    message = mapping(row, "message")
    made = map(_block, objects(message, "content"))
    content: tuple[Block, ...] = tuple(block for block in made if block is not None)
    names.update({block.id: block.name for block in content if isinstance(block, ToolCall)})
    key = text(message, "id")
    place = parts.get(key) if key else None
    if place is None:
        parts[key] = len(events)
        events.append(Event(when(row), _answer(row, message, content)))
        return
    event = events[place]
    if isinstance(event.what, Assistant):
        events[place] = Event(event.time, _answer(row, message, event.what.content + content))


def _answer(row: Row, message: Row, content: tuple[Block, ...]) -> Assistant:
    if row.get("isApiErrorMessage") is True:
        error = " ".join(block.text for block in content if isinstance(block, Text))
        return Assistant((), "error", error=error)
    calls = any(isinstance(block, ToolCall) for block in content)
    cut = text(message, "stop_reason") == "max_tokens"
    stop: Stop = "toolUse" if calls else "length" if cut else "stop"
    return Assistant(content, stop, "anthropic", "anthropic-messages", text(message, "model"))


def _block(block: Row) -> Block | None:
    match block.get("type"):
        case "text":
            return Text(text(block, "text"))
        case "thinking":
            return Thinking(text(block, "thinking"), text(block, "signature") or None)
        case "redacted_thinking":
            return Thinking("", text(block, "data"), redacted=True)
        case "tool_use":
            return ToolCall(text(block, "id"), text(block, "name"), as_json(block.get("input") or {}))
        case _:
            return None

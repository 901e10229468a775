"""Codex rollout files: `response_item` rows are the conversation, all else is telling about it.

The items of one model call stand one after the other (reasoning, message, calls); outputs or a user
message end them.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from perdure.records import Assistant, Block, Stop, Text, Thinking, ToolCall, ToolResult, User
from perdure.replay.formats.fields import as_json, blocks, mapping, objects, text, when
from perdure.replay.recording import UNREADABLE, Event, Recording, counted

Rows = list[dict[str, Any]]
_CALLS = ("function_call", "custom_tool_call", "local_shell_call")
_OUTPUTS = ("function_call_output", "custom_tool_call_output")
_ENVIRONMENT = ("<environment_context>", "<user_instructions>")


def recognised(rows: Rows) -> bool:
    """Whether these rows are of such a file."""
    return any(row.get("type") in ("session_meta", "response_item") and "payload" in row for row in rows)


class _Reader:
    def __init__(self) -> None:
        self.events: list[Event] = []
        self.lost: Counter[str] = Counter()
        self.model, self.window = "", 0
        self._answer: list[Block] = []
        self._time = 0
        self._names: dict[str, str] = {}

    def take(self, row: dict[str, Any]) -> None:
        payload, time = mapping(row, "payload"), when(row)
        kind = text(payload, "type")
        if row.get("type") == "turn_context":
            self.model = text(payload, "model") or self.model
        if row.get("type") != "response_item":
            self._beside(row, payload, kind)
        elif kind in _OUTPUTS:
            self.flush()
            self.events.append(Event(time, self._result(payload)))
        elif kind == "message" and payload.get("role") != "assistant":
            self._user(payload, time)
        else:
            self._item(payload, kind, time)

    def _beside(self, row: dict[str, Any], payload: dict[str, Any], kind: str) -> None:
        window = mapping(payload, "info").get("model_context_window")
        self.window = window if isinstance(window, int) else self.window
        if row.get("type") == "compacted":
            self.lost["compactions (the replay makes its own)"] += 1
        elif kind == "turn_aborted":
            self._abort(when(row))
        else:
            self.lost[f"{kind or text(row, 'type')} records"] += 1

    def _abort(self, time: int) -> None:
        self.flush()
        self.events.append(Event(time, Assistant((), "aborted", "openai", "", self.model, error="aborted")))

    def _user(self, payload: dict[str, Any], time: int) -> None:
        """Codex sends what stands together as one turn: the environment goes with the first message."""
        self.flush()
        said = blocks(payload.get("content"))
        last = self.events[-1].what if self.events else None
        if isinstance(last, User) and _is_environment(last):
            self.events[-1] = Event(time, User(last.content + said, time))
        else:
            self.events.append(Event(time, User(said, time)))

    def _item(self, payload: dict[str, Any], kind: str, time: int) -> None:
        if kind == "message":
            self._answer += blocks(payload.get("content"))
        elif kind == "reasoning":
            summary = "\n\n".join(text(part, "text") for part in objects(payload, "summary"))
            self._answer += [Thinking(summary)] if summary else []
        elif kind in _CALLS:
            self._answer.append(self._call(payload, kind))
        else:
            self.lost[f"{kind or 'untyped'} items"] += 1
            return
        self._time = time

    def _call(self, payload: dict[str, Any], kind: str) -> ToolCall:
        call = text(payload, "call_id") or text(payload, "id")
        name = text(payload, "name") or kind
        written = text(payload, "arguments")
        other = payload.get("action") or {"input": payload.get("input")}
        self._names[call] = name
        return ToolCall(call, name, written.encode() if written else as_json(other))

    def _result(self, payload: dict[str, Any]) -> ToolResult:
        call, output = text(payload, "call_id"), payload.get("output")
        words = output if isinstance(output, str) else as_json(output).decode()
        return ToolResult(call, self._names.get(call, ""), (Text(words),))

    def flush(self) -> None:
        """The model call is over."""
        if self._answer:
            calls = any(isinstance(block, ToolCall) for block in self._answer)
            stop: Stop = "toolUse" if calls else "stop"
            answer = Assistant(tuple(self._answer), stop, "openai", "openai-responses", self.model)
            self.events.append(Event(self._time, answer))
            self._answer = []


def _is_environment(message: User) -> bool:
    return all(isinstance(block, Text) and block.text.startswith(_ENVIRONMENT) for block in message.content)


def read(rows: Rows, unreadable: int) -> Recording:
    """`unreadable` lines were no JSON objects."""
    reader = _Reader()
    reader.lost[UNREADABLE] = unreadable
    for row in rows:
        reader.take(row)
    reader.flush()
    meta = next((mapping(row, "payload") for row in rows if row.get("type") == "session_meta"), {})
    start = when(rows[0]) if rows else 0
    events, lost = tuple(reader.events), counted(reader.lost)
    joined = len(rows) + unreadable - reader.lost.total() - len(events)
    return Recording("codex", events, len(rows), lost, text(meta, "cwd"), start, reader.window, joined)

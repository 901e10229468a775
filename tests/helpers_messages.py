"""Messages for tests: short makers, and records from the JSON of the session format, odd ones too."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from perdure.records import (
    Assistant,
    Bash,
    Block,
    BranchSummary,
    Custom,
    Image,
    Item,
    Items,
    Message,
    ModelInfo,
    Opaque,
    Provenance,
    Summary,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
    User,
)

SONNET = ModelInfo("anthropic", "claude-sonnet-4-5", thinking="enabled")
OPUS = ModelInfo("anthropic", "claude-opus-4-6", thinking="adaptive")
CALLS = ("toolCall", "toolUse", "functionCall")


def user(text: str, **more: Any) -> User:
    return User((Text(text),), **more)


def says(*content: Block | str, **more: Any) -> Assistant:
    blocks = tuple(Text(block) if isinstance(block, str) else block for block in content)
    model = {"provider": SONNET.provider, "api": SONNET.api, "model": SONNET.id}
    return Assistant(blocks, **(model | more))


def call(ident: str, name: str = "read", arguments: str = '{"path":"a.txt"}') -> ToolCall:
    return ToolCall(ident, name, arguments.encode())


def result(ident: str, text: str = "ok", **more: Any) -> ToolResult:
    return ToolResult(ident, more.pop("tool", "read"), (Text(text),), **more)


def items(*messages: Message) -> Items:
    """A view whose entries are named e1, e2, …"""
    return tuple(Item(f"e{n}", message) for n, message in enumerate(messages, 1))


def view(found: list[dict[str, Any]]) -> Items:
    """A view from messages as JSON; the entry is the vector's own tag or the place."""
    pairs = [(str(one.get("mid") or f"e{n}"), message(one)) for n, one in enumerate(found, 1)]
    return tuple(Item(entry, made) for entry, made in pairs)


def case_view(entries: list[dict[str, Any]]) -> Items:
    """The view of a fault case: a straight line of entries, the last compaction honoured."""
    last = max((n for n, e in enumerate(entries) if e["type"] == "compaction"), default=None)
    made: list[Item] = []
    if last is not None:
        summary = entries[last]
        made.append(Item(summary["id"], Summary(summary["summary"])))
        kept = next(n for n, e in enumerate(entries) if e.get("id") == summary["firstKeptEntryId"])
        entries = entries[kept:last] + entries[last + 1 :]
    made += [Item(e["id"], message(e["message"])) for e in entries if e["type"] == "message"]
    return tuple(made)


def message(found: dict[str, Any]) -> Message:
    """One message as a decoder would make it, absent and odd values as their nearest record."""
    role, when = found.get("role"), _time(found.get("timestamp"))
    content = blocks(found.get("content"))
    if role == "assistant":
        stop = found.get("stopReason") or "stop"
        model = {key: _text(found.get(key)) for key in ("provider", "api", "model")}
        return Assistant(content, stop, usage=_usage(found.get("usage")), timestamp=when, **model)
    if role == "toolResult":
        ident = _text(found.get("toolCallId")) or _text(found.get("toolUseId"))
        details = json.dumps(found["details"]).encode() if "details" in found else None
        error = bool(found.get("isError"))
        return ToolResult(ident, _text(found.get("toolName")), content, error, details, when)
    if role == "compactionSummary":
        return Summary(found.get("summary", ""), found.get("tokensBefore", 0), when)
    if role == "branchSummary":
        return BranchSummary(found.get("summary", ""), found.get("fromId", ""), when)
    if role == "bashExecution":
        return Bash(found.get("command", ""), found.get("output", ""), found.get("exitCode"))
    if role == "user":
        return User(content, when, _provenance(found.get("provenance")))
    return Custom(_text(found.get("customType")), content, timestamp=when)


def blocks(found: Any) -> tuple[Block, ...]:
    if isinstance(found, str):
        return (Text(found),)
    return tuple(map(block, found)) if isinstance(found, list) else ()


def block(found: Any) -> Block:
    kind = found.get("type") if isinstance(found, dict) else None
    if kind == "text":
        return Text(_text(found.get("text")))
    if kind in ("thinking", "redacted_thinking"):
        sign = found.get("thinkingSignature") or found.get("signature") or None
        return Thinking(_text(found.get("thinking")), sign, bool(found.get("redacted")))
    if kind == "image":
        return Image(_text(found.get("data")), _text(found.get("mimeType")))
    if kind in CALLS:
        given = found.get("arguments", found.get("input"))
        raw = json.dumps(given, separators=(",", ":")).encode()
        return ToolCall(_text(found.get("id")), _text(found.get("name")), raw)
    return Opaque(str(kind), json.dumps(found).encode())


def _text(found: Any) -> str:
    return found if isinstance(found, str) else ""


def _time(found: Any) -> int:
    """Milliseconds, from a number or an ISO text; 0 where it can't be told."""
    if isinstance(found, str):
        try:
            return int(datetime.fromisoformat(found.replace("Z", "+00:00")).timestamp() * 1000)
        except ValueError:
            return 0
    return int(found or 0)


def _usage(found: Any) -> Usage | None:
    if not isinstance(found, dict):
        return None
    return Usage(*(found.get(key, 0) for key in ("input", "output", "cacheRead", "cacheWrite")))


def _provenance(found: Any) -> Provenance | None:
    if not isinstance(found, dict):
        return None
    keys = ("sourceSession", "sourceSessionKey", "sourceChannel", "sourceTool")
    own, other, channel, tool = (found.get(key) for key in keys)
    return Provenance(found["kind"], own or other, channel, tool)

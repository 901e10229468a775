"""What a script lets the model answer: blocks, timing, and the faults that real providers have."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal, TypeAlias

import msgspec

from perdure.contracts import Request
from perdure.records import Block, Record, Stop, Text, ToolCall, Usage

Fault: TypeAlias = Literal[
    "none", "rate_limit", "overloaded", "overloaded_midway", "server", "overflow", "cut", "stall",
    "malformed_arguments", "empty", "refusal", "auth", "billing",
]  # fmt: skip


class ScriptedReply(Record):
    """One answer of a script.

    `stop` None: "toolUse" where blocks hold a call, else "stop". `latency` is seconds before the first
    token, `chunks` into how many pieces each text is streamed, `pace` seconds between two pieces.
    `usage` replaces the counted one. Calls without an id and thinking without a signature are given one.
    "cut" and "overloaded_midway" come after half of the answer: a lost connection, an error event.
    `malformed` is the raw text that fault "malformed_arguments" streams instead of a call's arguments;
    `retry_after` goes with "rate_limit" and "overloaded" (seconds).
    """

    blocks: tuple[Block, ...] = ()
    stop: Stop | None = None
    usage: Usage | None = None
    latency: float = 0.0
    chunks: int = 1
    pace: float = 0.0
    fault: Fault = "none"
    retry_after: float | None = None
    malformed: str = '{"path": "notes.md", "text": "unfinished'


Source: TypeAlias = Callable[[dict[str, Any], Request], ScriptedReply | Awaitable[ScriptedReply]]


def say(text: str, **options: Any) -> ScriptedReply:
    """An answer of one text."""
    return ScriptedReply((Text(text),), **options)


def call(name: str, /, ident: str = "", **arguments: Any) -> ToolCall:
    """A call with its arguments as keywords; without `ident` the model gives it one."""
    return ToolCall(ident, name, msgspec.json.encode(arguments))


def fail(fault: Fault, **options: Any) -> ScriptedReply:
    """A failing answer."""
    return ScriptedReply(fault=fault, **options)


def split(text: str, chunks: int) -> list[str]:
    """A text in at most `chunks` pieces of about the same length."""
    size = max(1, -(-len(text) // max(1, chunks)))
    return [text[n : n + size] for n in range(0, len(text), size)]

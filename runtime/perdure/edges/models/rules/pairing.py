"""Calls and results: every call is answered in the next message, every result answers the previous one.

Checked on raw message indices, before consecutive messages of one role are merged.
"""

from __future__ import annotations

import re
from typing import Any

from perdure.edges.models.rules.refusal import Json, invalid

CALL_ID = re.compile(r"[a-zA-Z0-9_-]+\Z")
NO_CALLS: dict[str, int] = {}


def check_pairing(messages: list[Json], *, known: bool) -> None:
    """Walk the messages once, with the calls of the previous one in hand."""
    seen: set[str] = set()
    open_calls = NO_CALLS
    for n, message in enumerate(messages):
        content = message["content"]
        blocks = () if type(content) is str else content
        if message["role"] == "assistant":
            if open_calls:
                _unanswered(n - 1, open_calls)
            open_calls = _calls(n, blocks, seen, known)
        else:
            _check_results(n, blocks, open_calls, known)
            open_calls = NO_CALLS
    if open_calls:
        _unanswered(len(messages) - 1, open_calls)


def _calls(n: int, blocks: Any, seen: set[str], known: bool) -> dict[str, int]:
    calls: dict[str, int] = {}
    for m, block in enumerate(blocks):
        kind = block["type"]
        if kind == "tool_use":
            ident = block["id"]
            if known and not CALL_ID.match(ident):
                invalid(
                    f"messages.{n}.content.{m}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'"
                )
            if ident in seen:
                invalid(f"messages.{n}.content.{m}: `tool_use` ids must be unique")
            seen.add(ident)
            calls[ident] = m
        elif kind == "tool_result" and known:
            invalid(f"messages.{n}: `tool_result` blocks can only be in `user` messages")
    return calls or NO_CALLS


def _check_results(n: int, blocks: Any, calls: dict[str, int], known: bool) -> None:
    answered: set[str] = set()
    late = other = False
    for m, block in enumerate(blocks):
        kind = block["type"]
        if kind != "tool_result":
            other = True
            if kind == "tool_use" and known:
                invalid(f"messages.{n}: `tool_use` blocks can only be in `assistant` messages")
            continue
        late = late or other
        ident = block["tool_use_id"]
        if ident not in calls:
            _unexpected(n, m, ident)
        if ident in answered:
            invalid(
                f"messages.{n}.content.{m}: each tool_use must have a single result. "
                f"Found multiple `tool_result` blocks with id: {ident}"
            )
        answered.add(ident)
    if len(answered) < len(calls):
        _unanswered(n - 1, {call: m for call, m in calls.items() if call not in answered})
    if late and known:
        _unanswered(n - 1, calls)


def _unanswered(n: int, calls: dict[str, int]) -> None:
    invalid(
        f"messages.{n}: `tool_use` ids were found without `tool_result` blocks immediately after: "
        f"{', '.join(calls)}. Each `tool_use` block must have a corresponding `tool_result` block "
        "in the next message."
    )


def _unexpected(n: int, m: int, ident: str) -> None:
    invalid(
        f"messages.{n}.content.{m}: unexpected `tool_use_id` found in `tool_result` blocks: {ident}. "
        "Each `tool_result` block must have a corresponding `tool_use` block in the previous message."
    )

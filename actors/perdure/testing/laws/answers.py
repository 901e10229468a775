"""What is wrong with an engine's answer, in words; "" where nothing is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, TypeVar

from perdure.contracts import Assembled
from perdure.records import (
    Assistant,
    Bash,
    Block,
    BranchSummary,
    Custom,
    Image,
    Item,
    Items,
    Summary,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    User,
)

B = TypeVar("B", bound=Block)
MESSAGES = (User, Assistant, ToolResult, Summary, BranchSummary, Bash, Custom)


def misshapen(answer: Any) -> str:
    """Wrong types in an `Assembled`."""
    if not isinstance(answer.messages, tuple):
        return f"`messages` was a {type(answer.messages).__name__}, not a tuple"
    for n, item in enumerate(answer.messages):
        if strange := _strange(item):
            return f"message {n} {strange}"
    if not isinstance(answer.addition, str):
        return f"`addition` was a {type(answer.addition).__name__}"
    tokens = answer.estimated_tokens
    if type(tokens) is not int or tokens < 0:
        return f"`estimated_tokens` was {tokens!r}"
    return ""


def _strange(item: Any) -> str:
    if type(item) is not Item or type(item.entry) is not str:
        return f"was a {type(item).__name__}, not an Item"
    return "" if type(item.message) in MESSAGES else f"held a {type(item.message).__name__}"


def unpaired(messages: Items) -> str:
    """A call without its result right behind it, a result without a call, or two results of one call."""
    waiting: list[str] = []
    for item in messages:
        message = item.message
        if isinstance(message, ToolResult):
            if message.call_id not in waiting:
                return f"the result {message.call_id} ({item.entry}) followed no open call of that id"
            waiting.remove(message.call_id)
        elif waiting:
            return f"the call {waiting[0]} had no result before {_name(item)}"
        elif isinstance(message, Assistant):
            waiting = [block.id for block in message.content if isinstance(block, ToolCall)]
    return f"the call {waiting[0]} had no result" if waiting else ""


def garbled_arguments(messages: Items) -> str:
    """A call whose arguments are no JSON object."""
    for call in blocks(messages, ToolCall):
        try:
            found = json.loads(call.arguments)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            return f"the call {call.id} had the arguments {call.arguments[:40]!r}"
    return ""


def strange_ids(messages: Items, known: Items) -> str:
    """An entry's id that is not the session's, or twice there."""
    ids, seen = {item.entry for item in known}, set[str]()
    for item in messages:
        if item.entry and item.entry not in ids:
            return f"the entry {item.entry!r} is none of the session's"
        if item.entry in seen:
            return f"the entry {item.entry!r} was there twice"
        seen |= {item.entry} - {""}
    return ""


def changed_kind(messages: Items, known: Items) -> str:
    """A message under an entry's id that is of another kind than the entry."""
    kinds = {item.entry: type(item.message) for item in known}
    for item in messages:
        kind = kinds.get(item.entry)
        if item.entry and kind is not None and type(item.message) is not kind:
            return f"{item.entry!r} is a {kind.__name__} and came as a {type(item.message).__name__}"
    return ""


def altered(messages: Items, known: Items, kind: type[Image] | type[Thinking]) -> str:
    """A picture or a signed thought that is not byte for byte one of the session's."""
    own = set(map(repr, blocks(known, kind)))
    for block in blocks(messages, kind):
        if repr(block) not in own:
            return f"a {kind.__name__} came back that the session does not have"
    return ""


def missing_request(answer: Assembled, view: Items) -> str:
    """The newest user message is not in the answer, under its id or by its first words."""
    asked = next((item for item in reversed(view) if isinstance(item.message, User)), None)
    if asked is None or any(item.entry == asked.entry for item in answer.messages):
        return ""
    words = text_of((asked,))[:40].strip()
    return "" if words and words in whole_text(answer) else f"the request {words!r} was missing"


def running_turn(view: Items) -> Items:
    """The newest user message and what came behind it."""
    starts = [n for n, item in enumerate(view) if isinstance(item.message, User)]
    return view[starts[-1] :] if starts else ()


def text_of(messages: Items) -> str:
    """All text of messages, summaries and commands included."""
    return "\n".join(_texts(messages))


def whole_text(answer: Assembled) -> str:
    """All text of an answer."""
    return f"{text_of(answer.messages)}\n{answer.addition}"


def blocks(messages: Items, kind: type[B]) -> Iterator[B]:
    """All content blocks of a kind."""
    for item in messages:
        for block in getattr(item.message, "content", ()):
            if isinstance(block, kind):
                yield block


def _texts(messages: Items) -> Iterator[str]:
    for item in messages:
        message = item.message
        if isinstance(message, Summary | BranchSummary):
            yield message.summary
        elif isinstance(message, Bash):
            yield f"{message.command}\n{message.output}"
        else:
            for block in message.content:
                if isinstance(block, Text):
                    yield block.text
                elif isinstance(block, ToolCall):
                    yield block.arguments.decode(errors="replace")


def _name(item: Item) -> str:
    return item.entry or f"a made-up {type(item.message).__name__}"

"""The body of a Chat Completions request, as bytes: OpenAI's own and its many compatible servers'.

What the format can't hold stands in words: a tool message takes text only, so its pictures follow in
a user message; that a tool failed is told in its text. Cached prefixes need no marks here.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import msgspec

from perdure.context.cache.contract import mark
from perdure.context.policy import TranscriptPolicy
from perdure.context.text.characters import encodable
from perdure.context.wire.ask import Ask
from perdure.context.wire.compat import Compat, compat_for, effort
from perdure.context.wire.memo import Memo, Piece
from perdure.context.wire.openai_shared import (
    FAILED,
    NO_OUTPUT,
    cache_settings,
    data_url,
    system_text,
    texts_of,
    tools_of,
    wire_name,
)
from perdure.context.wire.texts import call_part, worded
from perdure.records import Assistant, Block, Image, Item, Items, Text, Thinking, ToolCall, ToolResult

BRIDGE = "(I have read the results.)"
PICTURES = "Images that the tools above returned, in their order:"
PICTURED = "(images only: see the next message)"

_encode = msgspec.json.Encoder().encode
Json = dict[str, Any]


def render(items: Items, ask: Ask, memo: Memo) -> bytes:
    """The whole body for sealed `items`; it asks for a stream."""
    model, compat = ask.model, compat_for(ask.model)
    reasons = model.thinking != "none"
    style = (ask.policy.merge_users, ask.policy.merge_assistants, ask.policy.reasoning_field, reasons)
    piece = partial(_piece, compat, ask.policy, reasons)
    memo.update(items, piece, family=("openai-completions", compat, style))
    used = () if ask.tools or not compat.stand_ins else memo.names_called()
    key = (model.id, ask.system, ask.tools, ask.retention, used)
    head = memo.head(key) or memo.keep_head(key, _head(ask, compat, used))
    return b"".join((head, *memo.bodies(), b"],", _encode(_settings(ask, compat, used))[1:]))


def _head(ask: Ask, compat: Compat, used: tuple[str, ...]) -> bytes:
    """Everything up to the first message of the session."""
    head: Json = {"model": encodable(ask.model.id)}
    tools = tools_of(ask, used)
    if tools:
        head["tools"] = [
            {
                "type": "function",
                "function": {"name": t.name, "description": t.description, "parameters": t.schema},
            }
            for t in tools
        ]
    opened = _encode(head)[:-1] + b',"messages":['
    system = system_text(ask)
    return opened + _encode(_system(system, ask, compat)) + b"," if system else opened


def _system(text: str, ask: Ask, compat: Compat) -> Json:
    role = "developer" if compat.developer and ask.model.thinking != "none" else "system"
    value = mark(ask.retention) if compat.marks else None
    if value is None:
        return {"role": role, "content": text}
    return {"role": role, "content": [{"type": "text", "text": text, "cache_control": value}]}


def _settings(ask: Ask, compat: Compat, used: tuple[str, ...]) -> Json:
    """Calls are made in parallel by default, and some models refuse to be told so."""
    limit = "max_completion_tokens" if compat.completion_tokens else "max_tokens"
    found: Json = {limit: max(1, ask.max_tokens)}
    if ask.model.thinking != "none" and compat.effort and (ask.thinking_level != "off" or compat.developer):
        level = effort(ask.model, ask.thinking_level)
        found |= {"reasoning": {"effort": level}} if compat.effort == "reasoning" else {compat.effort: level}
    if used:
        found["tool_choice"] = "none"
    if compat.cache_key:
        found |= cache_settings(ask)
    found["stream"] = True
    if compat.usage:
        found["stream_options"] = {"include_usage": True}
    return found


# --- messages ---------------------------------------------------------------------------------------


def _piece(compat: Compat, policy: TranscriptPolicy, reasons: bool, role: str, items: Items) -> Piece:
    if role == "user":
        messages = list(_user_side(items, compat, merge=policy.merge_users))
        return Piece(b",".join(map(_encode, messages)), len(messages))
    said = [item.message for item in items if type(item.message) is Assistant]
    contents = [m.content for m in said]
    if policy.merge_assistants:
        contents = [tuple(block for content in contents for block in content)]
    field = policy.reasoning_field if reasons else ""
    messages = [_assistant(content, field) for content in contents]
    calls = (b.name for content in contents for b in content if type(b) is ToolCall)
    return Piece(b",".join(map(_encode, messages)), len(messages), tuple(map(wire_name, calls)))


def _assistant(content: tuple[Block, ...], reasoning_field: str) -> Json:
    message: Json = {"role": "assistant", "content": texts_of(content) or None}
    calls = [_call(block) for block in content if type(block) is ToolCall]
    if calls:
        message["tool_calls"] = calls
    thought = "\n".join(block.thinking for block in content if type(block) is Thinking)
    if reasoning_field and (thought or calls):
        message[reasoning_field] = thought  # these servers want the field on every call, empty if need be
    return message


def _call(block: ToolCall) -> Json:
    function = {"name": wire_name(block.name), "arguments": block.arguments.decode()}
    return {"id": call_part(block.id), "type": "function", "function": function}


def _user_side(items: Items, compat: Compat, *, merge: bool) -> Iterator[Json]:
    """Results first, as they must stand; then what users said, pictures of the results before it."""
    results = [item.message for item in items if type(item.message) is ToolResult]
    yield from map(_result, results)
    pictures = [block for message in results for block in message.content if type(block) is Image]
    said: list[list[Block]] = [[Text(PICTURES), *pictures]] if pictures else []
    said += [list(_content(item)) for item in items if type(item.message) is not ToolResult]
    if said and results and compat.bridge:
        yield {"role": "assistant", "content": BRIDGE}
    if said and merge:
        said = [[block for blocks in said for block in blocks]]
    yield from ({"role": "user", "content": _parts(blocks)} for blocks in said)


def _result(message: ToolResult) -> Json:
    text = texts_of(message.content)
    if not text:
        text = PICTURED if any(type(block) is Image for block in message.content) else NO_OUTPUT
    text = f"{FAILED}\n{text}" if message.is_error else text
    return {"role": "tool", "tool_call_id": call_part(message.call_id), "content": text}


def _content(item: Item) -> tuple[Block, ...]:
    text = worded(item.message)
    return (Text(text),) if text is not None else item.message.content  # type: ignore[union-attr]


def _parts(blocks: list[Block]) -> str | list[Json]:
    """One string where there is text only: not every server takes a list."""
    if not any(type(block) is Image for block in blocks):
        return texts_of(tuple(blocks))
    return [_part(block) for block in blocks if type(block) is Image or type(block) is Text]


def _part(block: Image | Text) -> Json:
    if type(block) is Image:
        return {"type": "image_url", "image_url": {"url": data_url(block)}}
    assert type(block) is Text
    return {"type": "text", "text": block.text}

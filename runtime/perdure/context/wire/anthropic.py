"""The body of an Anthropic Messages request, as bytes.

Order of the keys is that of the provider's cache (tools, system, messages), then what may change
freely. Cache marks are spliced into the messages they stand on; no other byte depends on them.
"""

from __future__ import annotations

from typing import Any

import msgspec

from perdure.context.cache import contract as cache
from perdure.context.cache.contract import Retention
from perdure.context.prompt.boundary import split, strip
from perdure.context.safety import thinking
from perdure.context.text.characters import encodable
from perdure.context.wire.ask import Ask
from perdure.context.wire.memo import Memo, Piece
from perdure.context.wire.texts import call_part, offered, worded
from perdure.records import Block, Image, Items, Message, Text, Thinking, ToolCall, ToolResult

_encode = msgspec.json.Encoder().encode


def render(items: Items, ask: Ask, memo: Memo) -> bytes:
    """The whole body for sealed `items`. `stream` is left to who posts it."""
    model = ask.model
    kept = ask.retention if model.caching else "none"
    chunks = memo.update(items, _piece, family="anthropic-messages")
    used = () if ask.tools else memo.names_called()
    key = (model.id, ask.system, ask.tools, kept, used)
    head = memo.head(key) or memo.keep_head(key, _head(ask, used, kept))
    settings: dict[str, Any] = {"max_tokens": max(1, ask.max_tokens)}
    settings |= thinking.parameter(model, ask.thinking_level, ask.max_tokens)
    if used:
        settings["tool_choice"] = {"type": "none"}
    mark = cache.mark(kept)
    marks = cache.marked_messages(chunks) if mark is not None else ()
    # A message ends in `}]}`, and the first of these closes its last block.
    inside = b',"cache_control":' + _encode(mark) + b"}]}"
    bodies = memo.bodies(marks, lambda body: body[:-3] + inside)
    return b"".join((head, *bodies, b"],", _encode(settings)[1:]))


def _piece(role: str, items: Items) -> Piece:
    contents = [block for item in items for block in _blocks(item.message)]
    calls = tuple(block["name"] for block in contents if block["type"] == "tool_use")
    return Piece(_encode({"role": role, "content": contents}), len(contents), calls)


def _blocks(message: Message) -> list[dict[str, Any]]:
    """The content blocks a message becomes."""
    if type(message) is ToolResult:
        return [_tool_result(message)]
    text = worded(message)
    if text is not None:
        return [_text(text)]
    return [_block(block) for block in message.content]  # type: ignore[union-attr]


def _tool_result(message: ToolResult) -> dict[str, Any]:
    result: dict[str, Any] = {"type": "tool_result", "tool_use_id": call_part(message.call_id)}
    if message.content:
        result["content"] = [_block(block) for block in message.content]
    if message.is_error:
        result["is_error"] = True
    return result


def _block(block: Block) -> dict[str, Any]:
    if type(block) is Text:
        return _text(block.text)
    if type(block) is ToolCall:
        arguments = msgspec.Raw(block.arguments)
        return {"type": "tool_use", "id": call_part(block.id), "name": block.name, "input": arguments}
    if type(block) is Thinking:
        if block.redacted:
            return {"type": "redacted_thinking", "data": block.signature or ""}
        return {"type": "thinking", "thinking": block.thinking, "signature": block.signature or ""}
    assert type(block) is Image, "the seal lets no other block through"
    source = {"type": "base64", "media_type": block.mime, "data": block.data}
    return {"type": "image", "source": source}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _head(ask: Ask, used: tuple[str, ...], kept: Retention) -> bytes:
    """Everything up to the first message."""
    head: dict[str, Any] = {"model": encodable(ask.model.id)}
    specs = [
        {"name": tool.name, "description": tool.description, "input_schema": tool.schema}
        for tool in offered(ask.tools, used)
    ]
    if specs:
        head["tools"] = specs
    blocks = _system_blocks(ask.system, kept)
    if blocks:
        head["system"] = blocks
    return _encode(head)[:-1] + b',"messages":['


def _system_blocks(system: str, retention: Retention) -> list[dict[str, Any]]:
    """The stable part with a mark, the dynamic part without; blank parts are left out."""
    mark = cache.mark(retention)
    system = encodable(system)
    parts = split(system) if mark else (strip(system), "")
    stable, dynamic = parts if parts is not None else (system, "")
    blocks = [_text(text) for text in (stable, dynamic) if text.strip()]
    if mark and blocks and stable.strip():
        blocks[0]["cache_control"] = mark
    return blocks

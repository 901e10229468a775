"""The body of Bedrock's Converse, as bytes. The model's id stands in the address, not here."""

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
from perdure.context.wire.texts import offered, worded
from perdure.records import Block, Image, Items, Message, Text, Thinking, ToolCall, ToolResult

MAX_NAME = 64
NOTHING = "(no output)"
_encode = msgspec.json.Encoder().encode


def render(items: Items, ask: Ask, memo: Memo) -> bytes:
    """The whole body for sealed `items`."""
    kept = ask.retention if ask.model.caching else "none"
    chunks = memo.update(items, _piece, family="bedrock")
    used = () if ask.tools else memo.names_called()
    key = ("bedrock", ask.system, ask.tools, kept, used)
    head = memo.head(key) or memo.keep_head(key, _head(ask, used, kept))
    settings: dict[str, Any] = {"inferenceConfig": {"maxTokens": max(1, ask.max_tokens)}}
    further = thinking.parameter(ask.model, ask.thinking_level, ask.max_tokens)
    if further:
        settings["additionalModelRequestFields"] = further
    point = _point(kept)
    marks = cache.marked_messages(chunks) if point else ()
    inside = b"," + _encode(point) + b"]}" if point else b""
    bodies = memo.bodies(marks, lambda body: body[:-2] + inside)
    return b"".join((head, *bodies, b"],", _encode(settings)[1:]))


def _point(retention: Retention) -> dict[str, Any] | None:
    """A block up to which the prompt is cached."""
    if retention == "none":
        return None
    life = {"ttl": "1h"} if retention == "long" else {}
    return {"cachePoint": {"type": "default"} | life}


def _head(ask: Ask, used: tuple[str, ...], kept: Retention) -> bytes:
    head: dict[str, Any] = {}
    specs = [
        {
            "name": tool.name,
            "description": tool.description or tool.name,
            "inputSchema": {"json": tool.schema},
        }
        for tool in offered(ask.tools, used, longest=MAX_NAME)
    ]
    if specs:
        head["toolConfig"] = {"tools": [{"toolSpec": spec} for spec in specs]}
    blocks = _system(ask.system, kept)
    if blocks:
        head["system"] = blocks
    return (_encode(head)[:-1] + b"," if head else b"{") + b'"messages":['


def _system(system: str, retention: Retention) -> list[dict[str, Any]]:
    """The stable part, the cache's point behind it, the dynamic part; blank parts are left out."""
    point, system = _point(retention), encodable(system)
    parts = split(system) if point else None
    stable, dynamic = parts if parts is not None else (strip(system), "")
    blocks: list[dict[str, Any]] = [{"text": stable}] if stable.strip() else []
    if blocks and point:
        blocks.append(point)
    return [*blocks, {"text": dynamic}] if dynamic.strip() else blocks


def _piece(role: str, items: Items) -> Piece:
    contents = [block for item in items for block in _blocks(item.message)]
    calls = tuple(block["toolUse"]["name"] for block in contents if "toolUse" in block)
    return Piece(_encode({"role": role, "content": contents}), len(contents), calls)


def _blocks(message: Message) -> list[dict[str, Any]]:
    if type(message) is ToolResult:
        content = [_block(block) for block in message.content] or [{"text": NOTHING}]
        status = "error" if message.is_error else "success"
        return [{"toolResult": {"toolUseId": message.call_id, "content": content, "status": status}}]
    text = worded(message)
    if text is not None:
        return [{"text": text}]
    return [_block(block) for block in message.content]  # type: ignore[union-attr]


def _block(block: Block) -> dict[str, Any]:
    if type(block) is Text:
        return {"text": block.text}
    if type(block) is ToolCall:
        call = {"toolUseId": block.id, "name": block.name, "input": msgspec.Raw(block.arguments)}
        return {"toolUse": call}
    if type(block) is Thinking:
        if block.redacted:
            return {"reasoningContent": {"redactedContent": block.signature or ""}}
        said = {"text": block.thinking, "signature": block.signature or ""}
        return {"reasoningContent": {"reasoningText": said}}
    assert type(block) is Image, "the seal lets no other block through"
    return {"image": {"format": block.mime.removeprefix("image/"), "source": {"bytes": block.data}}}

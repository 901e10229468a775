"""Renders scripted answers as the Messages API does: one JSON message, or its stream of events."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

import msgspec

from perdure.edges.models.provider import Decided
from perdure.edges.models.reply import ScriptedReply, split
from perdure.records import Block, Image, Opaque, Text, Thinking, ToolCall

REASONS = {"stop": "end_turn", "length": "max_tokens", "toolUse": "tool_use"}
Json = dict[str, Any]


def message(decided: Decided, body: Json) -> Json:
    """The whole message of an answer that isn't streamed."""
    reply, blocks = decided.reply, () if decided.reply.fault == "empty" else decided.blocks
    ident = blake2b(repr(decided).encode("utf-8", "replace"), digest_size=12).hexdigest()
    return {
        "id": f"msg_{ident}",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": [content(block) for block in blocks],
        "stop_reason": reason(reply, blocks),
        "stop_sequence": None,
        "usage": usage(decided),
    }


def reason(reply: ScriptedReply, blocks: tuple[Block, ...]) -> str:
    """The provider's word for how the answer ended."""
    if reply.fault == "refusal":
        return "refusal"
    calls = any(isinstance(block, ToolCall) for block in blocks)
    return REASONS.get(reply.stop or ("toolUse" if calls else "stop"), "end_turn")


def usage(decided: Decided) -> Json:
    """The three input counters, the output, and the split of what was written to the cache."""
    told, plan = decided.reply.usage, decided.plan
    if told is not None:
        return {
            "input_tokens": told.input,
            "output_tokens": told.output,
            "cache_read_input_tokens": told.cache_read,
            "cache_creation_input_tokens": told.cache_write,
        }
    split_up = {"ephemeral_5m_input_tokens": plan.write_5m, "ephemeral_1h_input_tokens": plan.write_1h}
    return {
        "input_tokens": plan.input,
        "output_tokens": decided.output,
        "cache_read_input_tokens": plan.read,
        "cache_creation_input_tokens": plan.write_5m + plan.write_1h,
        "cache_creation": split_up,
    }


def content(block: Block) -> Json:
    """One block as the API writes it."""
    if isinstance(block, Text):
        return {"type": "text", "text": block.text}
    if isinstance(block, Thinking) and block.redacted:
        return {"type": "redacted_thinking", "data": block.signature or ""}
    if isinstance(block, Thinking):
        return {"type": "thinking", "thinking": block.thinking, "signature": block.signature or ""}
    if isinstance(block, ToolCall):
        given = msgspec.json.decode(block.arguments)
        return {"type": "tool_use", "id": block.id, "name": block.name, "input": given}
    if isinstance(block, Opaque):
        return dict(msgspec.json.decode(block.raw))
    assert isinstance(block, Image)
    raise ValueError("a model does not answer with an image: take it out of the script")


def events(whole: Json, reply: ScriptedReply) -> Iterator[Json]:
    """The stream of events that makes up `whole`."""
    start = {**whole, "content": [], "stop_reason": None, "usage": {**whole["usage"], "output_tokens": 1}}
    yield {"type": "message_start", "message": start}
    yield {"type": "ping"}
    for n, block in enumerate(whole["content"]):
        yield from _block(n, block, reply)
    ended = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    yield {
        "type": "message_delta",
        "delta": ended,
        "usage": {"output_tokens": whole["usage"]["output_tokens"]},
    }
    yield {"type": "message_stop"}


def _block(n: int, block: Json, reply: ScriptedReply) -> Iterator[Json]:
    empty: dict[str, Json] = {
        "text": {"text": ""},
        "thinking": {"thinking": "", "signature": ""},
        "tool_use": {"input": {}},
    }
    start = {**block, **empty.get(block["type"], {})}
    yield {"type": "content_block_start", "index": n, "content_block": start}
    for delta in _deltas(block, reply):
        yield {"type": "content_block_delta", "index": n, "delta": delta}
    yield {"type": "content_block_stop", "index": n}


def _deltas(block: Json, reply: ScriptedReply) -> Iterator[Json]:
    if block["type"] == "text":
        yield from ({"type": "text_delta", "text": t} for t in split(block["text"], reply.chunks))
    elif block["type"] == "thinking":
        pieces = split(block["thinking"], reply.chunks)
        yield from ({"type": "thinking_delta", "thinking": t} for t in pieces)
        yield {"type": "signature_delta", "signature": block["signature"]}
    elif block["type"] == "tool_use":
        raw = msgspec.json.encode(block["input"]).decode() if block["input"] else ""
        raw = reply.malformed if reply.fault == "malformed_arguments" else raw
        yield {"type": "input_json_delta", "partial_json": ""}
        yield from ({"type": "input_json_delta", "partial_json": t} for t in split(raw, reply.chunks + 1))


def encode(event: Json) -> bytes:
    """One server-sent event; its name is the type of its data."""
    return f"event: {event['type']}\ndata: ".encode() + msgspec.json.encode(event) + b"\n\n"


def stream(whole: Json, reply: ScriptedReply, body: Json) -> list[bytes]:
    """The same events, encoded."""
    return [encode(event) for event in events(whole, reply)]


MIDWAY = encode({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})

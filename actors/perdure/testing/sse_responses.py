"""Renders scripted answers as the Responses API does: one JSON object, or its stream of events."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

import msgspec

from perdure.edges.models.provider import Decided
from perdure.edges.models.reply import ScriptedReply, split
from perdure.records import Block, Text, Thinking, ToolCall

Json = dict[str, Any]


def encode(event: Json) -> bytes:
    """One server-sent event; its name is the type of its data."""
    return f"event: {event['type']}\ndata: ".encode() + msgspec.json.encode(event) + b"\n\n"


MIDWAY = encode(
    {"type": "error", "code": "server_is_overloaded", "message": "The server is overloaded.", "param": None}
)


def response(decided: Decided, body: Json) -> Json:
    """The whole of an answer that isn't streamed."""
    reply, blocks = decided.reply, () if decided.reply.fault == "empty" else decided.blocks
    ident = blake2b(repr(decided).encode("utf-8", "replace"), digest_size=12).hexdigest()
    cut = reply.stop == "length"
    return {
        "id": f"resp_{ident}",
        "object": "response",
        "created_at": 0,
        "status": "incomplete" if cut else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "error": None,
        "model": body["model"],
        "output": [_item(block, n, ident, reply) for n, block in enumerate(blocks)],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": usage(decided),
    }


def usage(decided: Decided) -> Json:
    """What the script says, else what was counted; what the cache served is part of the prompt."""
    told, plan = decided.reply.usage, decided.plan
    prompt, output = (told.prompt, told.output) if told else (plan.tokens, decided.output)
    details = {"cached_tokens": told.cache_read if told else plan.read}
    return {
        "input_tokens": prompt,
        "input_tokens_details": details | {"cache_write_tokens": told.cache_write if told else 0},
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": prompt + output,
    }


def _item(block: Block, n: int, ident: str, reply: ScriptedReply) -> Json:
    if isinstance(block, Thinking):
        found: Json = msgspec.json.decode(block.signature or "{}")
        return found
    if isinstance(block, ToolCall):
        call, _, own = block.id.partition("|")
        malformed = reply.fault == "malformed_arguments"
        arguments = reply.malformed if malformed else block.arguments.decode("utf-8", "replace")
        item = {"type": "function_call", "id": own or f"fc_{ident}{n}", "call_id": call}
        return item | {"name": block.name, "arguments": arguments, "status": "completed"}
    assert isinstance(block, Text), "a model answers with text, thinking and calls"
    part: Json = {"type": "output_text", "text": block.text, "annotations": []}
    if reply.fault == "refusal":
        part = {"type": "refusal", "refusal": block.text}
    return {
        "type": "message", "id": f"msg_{ident}{n}", "role": "assistant", "status": "completed",
        "content": [part],
    }  # fmt: skip


def stream(whole: Json, reply: ScriptedReply, body: Json) -> list[bytes]:
    """The events that make up `whole`, numbered."""
    told = [*_begun(whole), *_items(whole["output"], reply)]
    told.append({"type": f"response.{whole['status']}", "response": whole})
    return [encode(event | {"sequence_number": n}) for n, event in enumerate(told)]


def _begun(whole: Json) -> Iterator[Json]:
    empty = {**whole, "status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
    yield {"type": "response.created", "response": empty}
    yield {"type": "response.in_progress", "response": empty}


def _items(items: list[Json], reply: ScriptedReply) -> Iterator[Json]:
    for n, item in enumerate(items):
        yield {"type": "response.output_item.added", "output_index": n, "item": _empty(item)}
        for event in _inside(item, reply):
            yield event | {"output_index": n, "item_id": item.get("id", "")}
        yield {"type": "response.output_item.done", "output_index": n, "item": item}


def _empty(item: Json) -> Json:
    nothing: dict[str, Json] = {
        "message": {"content": [], "status": "in_progress"},
        "function_call": {"arguments": "", "status": "in_progress"},
        "reasoning": {"summary": [], "encrypted_content": ""},
    }
    return item | nothing[item["type"]]


def _inside(item: Json, reply: ScriptedReply) -> Iterator[Json]:
    if item["type"] == "function_call":
        for piece in split(item["arguments"], reply.chunks + 1):
            yield {"type": "response.function_call_arguments.delta", "delta": piece}
        yield {"type": "response.function_call_arguments.done", "arguments": item["arguments"]}
    elif item["type"] == "reasoning":
        for m, part in enumerate(item["summary"]):
            for piece in split(part["text"], reply.chunks):
                yield {"type": "response.reasoning_summary_text.delta", "summary_index": m, "delta": piece}
    else:
        for m, part in enumerate(item["content"]):
            kind = "refusal" if part["type"] == "refusal" else "output_text"
            text = part.get("text") or part.get("refusal") or ""
            for piece in split(text, reply.chunks):
                yield {"type": f"response.{kind}.delta", "content_index": m, "delta": piece}

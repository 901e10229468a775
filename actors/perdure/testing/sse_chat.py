"""Renders scripted answers as Chat Completions does: one JSON object, or its stream of chunks."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

import msgspec

from perdure.edges.models.provider import Decided
from perdure.edges.models.reply import ScriptedReply, split
from perdure.records import Text, Thinking, ToolCall

REASONS = {"stop": "stop", "length": "length", "toolUse": "tool_calls"}
Json = dict[str, Any]


def encode(data: Json) -> bytes:
    """One server-sent event without a name."""
    return b"data: " + msgspec.json.encode(data) + b"\n\n"


DONE = b"data: [DONE]\n\n"
MIDWAY = encode({"error": {"message": "The server is overloaded.", "type": "overloaded", "code": None}})


def completion(decided: Decided, body: Json) -> Json:
    """The whole of an answer that isn't streamed."""
    reply, blocks = decided.reply, () if decided.reply.fault == "empty" else decided.blocks
    text = "".join(block.text for block in blocks if isinstance(block, Text))
    thought = "".join(block.thinking for block in blocks if isinstance(block, Thinking))
    calls = [_call(block, reply) for block in blocks if isinstance(block, ToolCall)]
    refused = reply.fault == "refusal"
    message: Json = {"role": "assistant", "content": None if refused else text or None}
    message["refusal"] = (text or "I can't help with that.") if refused else None
    if thought:
        message["reasoning_content"] = thought
    if calls:
        message["tool_calls"] = calls
    reason = REASONS.get(reply.stop or ("toolUse" if calls else "stop"), "stop")
    ident = blake2b(repr(decided).encode("utf-8", "replace"), digest_size=12).hexdigest()
    return {
        "id": f"chatcmpl-{ident}",
        "object": "chat.completion",
        "created": 0,
        "model": body["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": reason, "logprobs": None}],
        "usage": usage(decided),
    }


def usage(decided: Decided) -> Json:
    """What the script says, else what was counted; what the cache served is part of the prompt."""
    told, plan = decided.reply.usage, decided.plan
    prompt, output = (told.prompt, told.output) if told else (plan.tokens, decided.output)
    details = {"cached_tokens": told.cache_read if told else plan.read}
    if told and told.cache_write:
        details["cache_write_tokens"] = told.cache_write
    return {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "total_tokens": prompt + output,
        "prompt_tokens_details": details,
    }


def stream(whole: Json, reply: ScriptedReply, body: Json) -> list[bytes]:
    """The chunks that make up `whole`. Usage comes in one of its own where it was asked for, else in the
    last one, as Mistral sends it.
    """
    same = {"id": whole["id"], "object": "chat.completion.chunk", "created": 0, "model": whole["model"]}
    choice = whole["choices"][0]
    deltas = [{"role": "assistant", "content": ""}, *_deltas(choice["message"], reply)]
    chunks = [same | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    last = same | {"choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]}
    asked = body.get("stream_options")
    if asked is None:
        return [encode(chunk) for chunk in (*chunks, last | {"usage": whole["usage"]})]
    chunks.append(last)
    if asked.get("include_usage"):
        chunks.append(same | {"choices": [], "usage": whole["usage"]})
    return [encode(chunk) for chunk in chunks]


def _deltas(message: Json, reply: ScriptedReply) -> Iterator[Json]:
    for field in ("reasoning_content", "content", "refusal"):
        yield from ({field: piece} for piece in split(message.get(field) or "", reply.chunks))
    for n, call in enumerate(message.get("tool_calls") or ()):
        function = call["function"]
        begun = {"name": function["name"], "arguments": ""}
        yield {"tool_calls": [{"index": n, "id": call["id"], "type": "function", "function": begun}]}
        for piece in split(function["arguments"], reply.chunks + 1):
            yield {"tool_calls": [{"index": n, "function": {"arguments": piece}}]}


def _call(block: ToolCall, reply: ScriptedReply) -> Json:
    malformed = reply.fault == "malformed_arguments"
    arguments = reply.malformed if malformed else block.arguments.decode("utf-8", "replace")
    return {"id": block.id, "type": "function", "function": {"name": block.name, "arguments": arguments}}

"""The body of a Responses request, as bytes. Nothing is stored at the provider: every request is whole.

Reasoning items go back as they came, encrypted; `reasoning` says which of them may.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from perdure.context.safety.reasoning import reasoning_item
from perdure.context.text.characters import encodable
from perdure.context.wire.ask import Ask
from perdure.context.wire.compat import compat_for, effort
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
from perdure.records import Assistant, Block, Image, Items, Message, Text, Thinking, ToolCall, ToolResult

LEAST_TOKENS = 16
PHASES = ("commentary", "final_answer")

_encode = msgspec.json.Encoder().encode
Json = dict[str, Any]


def render(items: Items, ask: Ask, memo: Memo) -> bytes:
    """The whole body for sealed `items`; it asks for a stream."""
    memo.update(items, _piece, family="openai-responses")
    key = (ask.model.id, ask.system, ask.tools)
    head = memo.head(key) or memo.keep_head(key, _head(ask))
    return b"".join((head, *memo.bodies(), b"],", _encode(_settings(ask))[1:]))


def _head(ask: Ask) -> bytes:
    head: Json = {"model": encodable(ask.model.id)}
    tools = tools_of(ask, ())
    if tools:
        head["tools"] = [
            {
                "type": "function", "name": t.name, "description": t.description,
                "parameters": t.schema, "strict": False,
            }
            for t in tools
        ]  # fmt: skip
    system = system_text(ask)
    if system:
        head["instructions"] = system
    return _encode(head)[:-1] + b',"input":['


def _settings(ask: Ask) -> Json:
    """Calls are made in parallel by default. Without the encrypted content reasoning would be lost."""
    found: Json = {"max_output_tokens": max(LEAST_TOKENS, ask.max_tokens)}
    if ask.model.thinking != "none":
        found["reasoning"] = {"effort": effort(ask.model, ask.thinking_level), "summary": "auto"}
        found["include"] = ["reasoning.encrypted_content"]
    if compat_for(ask.model).cache_key:
        found |= cache_settings(ask)
    return found | {"store": False, "stream": True}


# --- items ------------------------------------------------------------------------------------------


def _piece(role: str, items: Items) -> Piece:
    found = [each for item in items for each in _items(item.message)]
    calls = tuple(each["name"] for each in found if each["type"] == "function_call")
    return Piece(b",".join(map(_encode, found)), len(found), calls)


def _items(message: Message) -> Iterator[Json]:
    if type(message) is Assistant:
        for block in message.content:
            yield _said(block)
    elif type(message) is ToolResult:
        yield {
            "type": "function_call_output",
            "call_id": call_part(message.call_id),
            "output": _output(message),
        }
    else:
        text = worded(message)
        blocks = (Text(text),) if text is not None else message.content  # type: ignore[union-attr]
        yield {"type": "message", "role": "user", "content": [_input(block) for block in blocks]}


def _said(block: Block) -> Json:
    if type(block) is Text:
        return {"type": "message", "role": "assistant", "content": block.text} | _phase(block)
    if type(block) is ToolCall:
        call, bar, own = block.id.partition("|")
        found: Json = {"type": "function_call", "call_id": call, "name": wire_name(block.name)}
        found["arguments"] = block.arguments.decode()
        return found | {"id": own} if bar else found
    assert type(block) is Thinking, "the seal lets no other block through"
    item = reasoning_item(block)
    assert item is not None, "the seal lets only reasoning items through"
    return {
        "type": "reasoning",
        "id": item["id"],
        "summary": [{"type": "summary_text", "text": part["text"]} for part in item.get("summary", [])],
        "encrypted_content": item["encrypted_content"],
    }


def _phase(block: Text) -> Json:
    """Which part of an answer the text was; newer models want it back (it came in the text's signature)."""
    if not block.signature or '"phase"' not in block.signature:
        return {}
    try:
        phase = msgspec.json.decode(block.signature).get("phase")
    except (msgspec.DecodeError, AttributeError, UnicodeEncodeError):
        return {}
    return {"phase": phase} if phase in PHASES else {}


def _output(message: ToolResult) -> str | list[Json]:
    if any(type(block) is Image for block in message.content):
        return [_input(block) for block in message.content]
    text = texts_of(message.content) or NO_OUTPUT
    return f"{FAILED}\n{text}" if message.is_error else text


def _input(block: Block) -> Json:
    if type(block) is Image:
        return {"type": "input_image", "image_url": data_url(block), "detail": "auto"}
    assert type(block) is Text, "the seal lets no other block through"
    return {"type": "input_text", "text": block.text}

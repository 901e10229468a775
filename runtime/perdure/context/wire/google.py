"""The body of Google's generateContent, as bytes. The model's name stands in the address, not here.

A model's content is one; what follows it is up to two of the user's: the results of its calls alone,
as many as there were calls, and then whatever else was said, pictures of results included.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from perdure.context.prompt.boundary import strip
from perdure.context.safety.thinking import BUDGETS, asked
from perdure.context.text.characters import encodable
from perdure.context.wire.ask import Ask
from perdure.context.wire.memo import Memo, Piece
from perdure.context.wire.texts import offered, worded
from perdure.records import Block, Image, Items, ModelInfo, Text, ToolCall, ToolResult

UNSIGNED = "skip_thought_signature_validator"
"""What Google takes in place of a signature on a call that its model didn't make."""

MAX_NAME = 64
SHOWN = "(a picture, shown below)"
_START = re.compile(r"[A-Za-z_]")
_encode = msgspec.json.Encoder().encode


def render(items: Items, ask: Ask, memo: Memo) -> bytes:
    """The whole body for sealed `items`."""
    signs = signs_calls(ask.model)
    memo.update(items, lambda role, part: _piece(role, part, signs), family=("google", signs))
    used = () if ask.tools else memo.names_called()
    key = ("google", ask.system, ask.tools, used)
    head = memo.head(key) or memo.keep_head(key, _head(ask, used))
    config: dict[str, Any] = {"maxOutputTokens": max(1, ask.max_tokens)}
    thinking = _thinking(ask)
    if thinking:
        config["thinkingConfig"] = thinking
    return b"".join((head, *memo.bodies(), b'],"generationConfig":', _encode(config), b"}"))


def signs_calls(model: ModelInfo) -> bool:
    """Whether the model refuses calls of an open turn without a thought signature (Gemini 3 on)."""
    found = re.search(r"gemini-(\d+)", model.id.lower())
    return found is not None and int(found[1]) >= 3


def wire_name(name: str) -> str:
    """A tool's name as Google takes it: it begins with a letter or an underscore."""
    return name if _START.match(name) else f"_{name}"[:MAX_NAME]


def _head(ask: Ask, used: tuple[str, ...]) -> bytes:
    head: dict[str, Any] = {}
    system = encodable(strip(ask.system))
    if system.strip():
        head["systemInstruction"] = {"parts": [{"text": system}]}
    specs = [
        {"name": wire_name(tool.name), "description": tool.description, "parametersJsonSchema": tool.schema}
        for tool in offered(ask.tools, used, longest=MAX_NAME)
    ]
    if specs:
        head["tools"] = [{"functionDeclarations": specs}]
    if used:
        head["toolConfig"] = {"functionCallingConfig": {"mode": "NONE"}}
    return (_encode(head)[:-1] + b"," if head else b"{") + b'"contents":['


def _thinking(ask: Ask) -> dict[str, Any]:
    if not asked(ask.model, ask.thinking_level):
        return {}
    if signs_calls(ask.model):
        level = "low" if ask.thinking_level in ("minimal", "low") else "high"
        return {"thinkingLevel": level, "includeThoughts": True}
    budget = min(BUDGETS[ask.thinking_level], max(1, ask.max_tokens // 2))
    return {"thinkingBudget": budget, "includeThoughts": True}


def _piece(role: str, items: Items, signs: bool) -> Piece:
    if role == "assistant":
        blocks = [block for item in items for block in item.message.content]  # type: ignore[union-attr]
        parts = _own(blocks, signs)
        calls = tuple(part["functionCall"]["name"] for part in parts if "functionCall" in part)
        return Piece(_encode({"role": "model", "parts": parts}), len(parts), calls)
    answers, said = _users(items)
    contents = [{"role": "user", "parts": parts} for parts in (answers, said) if parts]
    return Piece(b",".join(map(_encode, contents)), len(answers) + len(said))


def _own(blocks: list[Block], signs: bool) -> list[dict[str, Any]]:
    """The parts of an answer; of parallel calls only the first needs a signature."""
    parts: list[dict[str, Any]] = []
    needs = signs
    for block in blocks:
        if type(block) is ToolCall:
            call = {"id": block.id, "name": wire_name(block.name), "args": msgspec.Raw(block.arguments)}
            part: dict[str, Any] = {"functionCall": call}
            signature = block.signature or (UNSIGNED if needs else None)
            needs = False
        else:
            assert type(block) is Text, "the seal lets no other block through"
            part, signature = {"text": block.text}, block.signature
        if signature:
            part["thoughtSignature"] = signature
        parts.append(part)
    return parts


def _users(items: Items) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    answers: list[dict[str, Any]] = []
    said: list[dict[str, Any]] = []
    for item in items:
        message = item.message
        text = worded(message)
        if text is not None:
            said.append({"text": text})
        elif type(message) is ToolResult:
            answers.append(_answer(message))
            said += [_part(block) for block in message.content if type(block) is Image]
        else:
            said += [_part(block) for block in message.content]  # type: ignore[union-attr]
    return answers, said


def _answer(message: ToolResult) -> dict[str, Any]:
    texts = [block.text for block in message.content if type(block) is Text]
    pictures = len(texts) < len(message.content)
    text = "\n".join(texts) or (SHOWN if pictures else "")
    response = {"error" if message.is_error else "output": text}
    return {
        "functionResponse": {"id": message.call_id, "name": wire_name(message.tool), "response": response}
    }


def _part(block: Block) -> dict[str, Any]:
    if type(block) is Text:
        return {"text": block.text}
    assert type(block) is Image, "the seal lets no other block through"
    return {"inlineData": {"mimeType": block.mime, "data": block.data}}

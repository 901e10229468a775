"""What messages may hold: no empty text, a user's message first, no prefill where it isn't supported."""

from __future__ import annotations

from typing import Any

from perdure.edges.models.rules.refusal import Json, invalid
from perdure.records import ModelInfo


def check_content_rules(body: Json, model: ModelInfo | None, *, known: bool) -> None:
    """Roles at both ends, and texts everywhere."""
    messages = body["messages"]
    last = len(messages) - 1
    if known and messages[0]["role"] != "user":
        invalid('messages: first message must use the "user" role')
    _check_system(body.get("system"), known)
    for n, message in enumerate(messages):
        content = message["content"]
        if not content:
            if known and not (n == last and message["role"] == "assistant"):
                _empty_message(n)
            if content == "" and message["role"] == "user":
                invalid("messages: text content blocks must be non-empty")
        elif type(content) is str:
            if content.isspace():
                _blank()
        else:
            _check_blocks(content, n, known)
    if messages[last]["role"] == "assistant":
        _check_prefill(messages[last], model, known)


def _check_blocks(blocks: list[Any], n: int, known: bool) -> None:
    for m, block in enumerate(blocks):
        kind = block["type"]
        if kind == "text":
            if not block["text"] or block["text"].isspace():
                _bad_text(block, f"messages.{n}.content.{m}")
        elif kind == "tool_result" and type(block.get("content")) is list:
            for k, inner in enumerate(block["content"]):
                if inner["type"] == "text" and (not inner["text"] or inner["text"].isspace()):
                    _bad_text(inner, f"messages.{n}.content.{m}.content.{k}")
                elif known and inner["type"] != "text" and block.get("is_error"):
                    invalid(
                        f"messages.{n}.content.{m}.tool_result: "
                        "all content must be type `text` if `is_error` is true"
                    )


def _check_system(system: Any, known: bool) -> None:
    if not known or not isinstance(system, list):
        return
    for n, block in enumerate(system):
        if block["text"] and not block["text"].isspace():
            continue
        if block.get("cache_control"):
            invalid(f"system.{n}: cache_control cannot be set for empty text blocks")
        empty = "non-empty" if not block["text"] else "contain non-whitespace text"
        invalid(f"system: text content blocks must {'be ' if not block['text'] else ''}{empty}")


def _bad_text(block: Json, path: str) -> None:
    if block.get("cache_control") and not block["text"]:
        invalid(f"{path}.text: cache_control cannot be set for empty text blocks")
    if not block["text"]:
        invalid("messages: text content blocks must be non-empty")
    _blank()


def _blank() -> None:
    invalid("messages: text content blocks must contain non-whitespace text")


def _empty_message(n: int) -> None:
    invalid(
        f"messages.{n}: all messages must have non-empty content "
        "except for the optional final assistant message"
    )


def _check_prefill(message: Json, model: ModelInfo | None, known: bool) -> None:
    older = model is not None and model.provider == "anthropic" and model.thinking != "adaptive"
    if not older:
        invalid(
            "This model does not support assistant message prefill. "
            "The conversation must end with a user message."
        )
    content = message["content"]
    if content and type(content) is list:
        content = content[-1].get("text", "")
    if known and content and content[-1].isspace():
        invalid("messages: final assistant content cannot end with trailing whitespace")

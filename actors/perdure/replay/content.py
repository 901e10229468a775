"""What a step says, as content blocks: from its text, its generated text, or its exact blocks.

Exact blocks (`content`) are in the session format's own shape, so that a recording is carried as is.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw

from perdure.context.pictures.images import described
from perdure.records import Block, Image, Kept, Text, Thinking, ToolCall
from perdure.replay import generate
from perdure.replay.steps import (
    BashStep,
    CallPart,
    FileStep,
    Generate,
    ImagePart,
    ModelStep,
    Part,
    Parts,
    TextPart,
    ThinkingPart,
    ToolStep,
    UserStep,
)


def blocks(content: Parts) -> tuple[Block, ...]:
    """The blocks of a `content` list."""
    return tuple(map(_block, content))


def _block(part: Part) -> Block:
    match part:
        case TextPart():
            return Text(part.text, part.text_signature)
        case ImagePart():
            return Image(part.data, part.mime_type)
        case ThinkingPart():
            return Thinking(part.thinking, part.thinking_signature, part.redacted)
        case CallPart():
            return ToolCall(part.id, part.name, bytes(part.arguments), part.thought_signature)


def parts(content: tuple[Block, ...]) -> Parts:
    """The reverse: blocks as a `content` list. Blocks of unknown types are left out."""
    return tuple(part for part in map(_part, content) if part is not None)


def _part(block: Block) -> Part | None:
    match block:
        case Text():
            return TextPart(text=block.text, text_signature=block.signature)
        case Image(data="", kept=Kept()):
            return TextPart(text=described(block))  # its bytes are not in the recording
        case Image():
            return ImagePart(data=block.data, mime_type=block.mime)
        case Thinking():
            return ThinkingPart(
                thinking=block.thinking, thinking_signature=block.signature, redacted=block.redacted
            )
        case ToolCall():
            return CallPart(
                id=block.id,
                name=block.name,
                arguments=Raw(block.arguments),
                thought_signature=block.signature,
            )
        case _:
            return None


def made(spec: Generate) -> str:
    """A generated text."""
    return generate.text(spec.kind, spec.chars, spec.seed, spec.head, spec.tail)


def text(step: UserStep | ModelStep | ToolStep | BashStep | FileStep) -> str:
    """The step's text, written or generated; "" if it has none or exact blocks."""
    return made(step.generate) if step.generate is not None else step.text or ""


def said(step: UserStep | ToolStep) -> tuple[Block, ...]:
    """What a user says or a tool returns; a tool may return nothing, `()`."""
    if step.content is not None:
        return blocks(step.content)
    words = text(step)
    return (Text(words),) if words else ()


def answered(step: ModelStep) -> tuple[Block, ...]:
    """What the model answers: thinking, text, calls, in that order, or the exact blocks.

    A call without an id has `""`: the player gives it one. Arguments that were written as a string are
    that string's bytes.
    """
    if step.content is not None:
        return blocks(step.content)
    words = text(step)
    thinking: tuple[Block, ...] = (Thinking(step.thinking),) if step.thinking else ()
    return (*thinking, *((Text(words),) if words else ()), *answered_calls(step))


def arguments(written: Raw) -> bytes:
    """The JSON text of a call's arguments; what was written as a string is taken literally."""
    raw = bytes(written)
    if raw[:1] == b'"':
        return msgspec.json.decode(raw, type=str).encode()
    return raw


def called(step: ModelStep) -> tuple[str, ...]:
    """The names and ids of everything the step calls."""
    return tuple(word for call in answered_calls(step) for word in (call.name, call.id) if word)


def answered_calls(step: ModelStep) -> tuple[ToolCall, ...]:
    """The calls alone, without making a generated text."""
    if step.content is not None:
        return tuple(block for block in blocks(step.content) if isinstance(block, ToolCall))
    return tuple(ToolCall(call.id, call.name, arguments(call.arguments)) for call in step.calls)

"""Messages as text for a summariser: labelled, bounded, and plainly data.

Details never, images only as a notice, results up to 2,000 characters. A closing tag inside the text is
broken up, so that nothing in a tool's output can end the block that marks it as untrusted, or speak for
somebody else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from perdure.context.compaction.redact import redact
from perdure.context.numbers import SERIALISED_RESULT_CHARS
from perdure.context.results.parts import images_of, text_of
from perdure.context.results.shorten import plan, shorten
from perdure.records import (
    Assistant,
    Bash,
    Block,
    BranchSummary,
    Custom,
    Image,
    Item,
    Items,
    Message,
    Summary,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    User,
)

BLOCK = "conversation"
_TAG = re.compile(rf"([<＜‹〈]\s*)(/?\s*(?:{BLOCK}|previous[-_ ]summary|summary|focus)\b)", re.IGNORECASE)
"""A reader takes `</ Conversation >` and full-width signs for the tag as well."""

_FORGED = re.compile(
    r"^\[(?:User|Assistant(?: thinking| tool calls)?|Tool result|Earlier summary|Summary of another branch"
    r"|Part \d+ of \d+)\]:",
    re.MULTILINE | re.IGNORECASE,
)
"""A label of ours inside a message: a file that says `[User]: delete it` is not the user."""


def serialize(items: Items, *, most: int | None = None) -> str:
    """All messages, joined by blank lines. `most`: characters that one message may take."""
    return "\n\n".join(filter(None, (serialize_item(item, most=most) for item in items)))


def serialize_item(item: Item, *, most: int | None = None) -> str:
    """One message; empty if nothing of it is for a reader."""
    return "\n\n".join(_bounded(part, most, item.entry) for part in _parts(item.message, item.entry))


def as_data(text: str, block: str = BLOCK) -> str:
    """The text inside a block that it can't close."""
    return f"<{block}>\n{neutral(redact(text))}\n</{block}>"


def neutral(text: str) -> str:
    """Break tags that would end or open one of our blocks, however they are spelled."""
    return _TAG.sub(r"\1\\\2", text)


def _bounded(text: str, most: int | None, entry: str) -> str:
    if most is None or len(text) <= most:
        return text
    cut = plan(text, most, entry)
    return shorten(text, cut.head, cut.tail, entry)


def _parts(message: Message, entry: str) -> Iterator[str]:
    if isinstance(message, (User, Custom)):
        yield from _labelled("User", _said(message.content))
    elif isinstance(message, Assistant):
        yield from _assistant(message)
    elif isinstance(message, ToolResult):
        yield from _labelled("Tool result", _result(message, entry))
    elif isinstance(message, Bash):
        if not message.excluded:
            yield from _labelled("User", f"Ran `{message.command}`\n{_clip(message.output, entry)}")
    else:
        yield from _labelled(_SUMMARY[type(message)], message.summary)


_SUMMARY: dict[type[Message], str] = {Summary: "Earlier summary", BranchSummary: "Summary of another branch"}


def _labelled(label: str, text: str) -> Iterator[str]:
    if text.strip():
        yield f"[{label}]: {_FORGED.sub(_backslashed, text)}"


def _backslashed(label: re.Match[str]) -> str:
    return f"\\{label[0]}"


def _said(content: tuple[Block, ...]) -> str:
    texts = [block.text for block in content if isinstance(block, Text)]
    images = sum(isinstance(block, Image) for block in content)
    return "\n".join([*texts, _images(images)] if images else texts)


def _images(count: int) -> str:
    return f"[{count} image{'s' if count > 1 else ''} not shown]"


def _assistant(message: Assistant) -> Iterator[str]:
    thought = "\n".join(b.thinking for b in message.content if isinstance(b, Thinking) and not b.redacted)
    yield from _labelled("Assistant thinking", thought)
    yield from _labelled("Assistant", "\n".join(b.text for b in message.content if isinstance(b, Text)))
    calls = "; ".join(call_line(b) for b in message.content if isinstance(b, ToolCall))
    yield from _labelled("Assistant tool calls", calls)


def call_line(call: ToolCall) -> str:
    """`name(key=<json>, …)`; arguments that are no object stand as they were sent."""
    try:
        given = msgspec.json.decode(call.arguments, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return f"{call.name}({call.arguments.decode('utf-8', 'replace')})"
    pairs = (f"{key}={bytes(value).decode('utf-8', 'replace')}" for key, value in given.items())
    return f"{call.name}({', '.join(pairs)})"


def _result(message: ToolResult, entry: str) -> str:
    images = images_of(message)
    text = _clip(text_of(message), entry)
    return "\n".join(filter(None, [text, _images(len(images)) if images else ""]))


def _clip(text: str, entry: str) -> str:
    return _bounded(text, SERIALISED_RESULT_CHARS, entry)

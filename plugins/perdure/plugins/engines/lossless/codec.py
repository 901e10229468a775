"""Messages as rows and back: a head without content, and one part for each content block.

A part's text stands by itself, so that it is searched and read without decoding; what else a block has is
its `data`. Texts over the limit are kept apart (`payloads`), and the part holds the note.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from perdure.edges.sqlite import storable
from perdure.plugins.engines.lossless.payloads import Payload, payload
from perdure.records import (
    Assistant,
    Bash,
    Block,
    BranchSummary,
    Custom,
    Image,
    Message,
    Opaque,
    Provenance,
    Record,
    Summary,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
    User,
)

_KINDS: Mapping[str, type[Message]] = {
    kind.__name__: kind for kind in (User, Assistant, ToolResult, Summary, BranchSummary, Bash, Custom)
}
_BLOCKS: Mapping[str, type[Block]] = {
    kind.__name__: kind for kind in (Text, Thinking, Image, ToolCall, Opaque)
}
_NESTED: Mapping[str, type[Record]] = {"provenance": Provenance, "usage": Usage}
_PLAIN = "plain"  # the searchable text of a message that has no content blocks
_IMAGE_CHARS = 8_000  # base64 of more is kept apart


class Part(Record):
    """One content block. `text`: what can be read of it; `apart`: where its text really is, else ""."""

    kind: str
    text: str
    data: bytes
    apart: Payload | None = None


class Stored(Record):
    """A message as rows."""

    role: str
    head: bytes
    parts: tuple[Part, ...]

    @property
    def text(self) -> str:
        """All that can be searched."""
        return "\n".join(part.apart.text if part.apart else part.text for part in self.parts)


def stored(message: Message, most: int) -> Stored:
    """The rows of a message; texts of more than `most` characters are kept apart."""
    role = type(message).__name__
    if isinstance(message, (Bash, Summary, BranchSummary)):
        text = f"{message.command}\n{message.output}" if isinstance(message, Bash) else message.summary
        return Stored(role, _packed(message), (Part(_PLAIN, storable(text), b""),))
    parts = tuple(_part(block, most) for block in message.content)
    return Stored(role, _packed(replace(message, content=())), parts)


def _part(block: Block, most: int) -> Part:
    kind = type(block).__name__
    match block:
        case Text(text):
            return _bounded(kind, storable(text), _packed(replace(block, text="")), most)
        case Thinking(text):
            return Part(kind, storable(text), _packed(replace(block, thinking="")))
        case ToolCall(_, name, arguments):
            said = storable(f"{name} {arguments.decode('utf-8', 'replace')}")
            return Part(kind, said, _packed(block))
        case Image(data):
            if len(data) <= _IMAGE_CHARS:
                return Part(kind, "", _packed(block))
            return Part(kind, "", _packed(replace(block, data="")), payload(storable(data)))
        case Opaque(_, raw):
            return Part(kind, storable(raw.decode("utf-8", "replace")), _packed(block))


def _bounded(kind: str, text: str, data: bytes, most: int) -> Part:
    if len(text) <= most:
        return Part(kind, text, data)
    apart = payload(text)
    return Part(kind, apart.note, data, apart)


def message_of(role: str, head: bytes, parts: Sequence[tuple[str, str, bytes]]) -> Message:
    """The message of its rows: (kind, text, data) of each part, in order."""
    fields = msgspec.msgpack.decode(head)
    for name, kind in _NESTED.items():
        if fields.get(name) is not None:
            fields[name] = msgspec.convert(fields[name], kind)
    if "content" in fields:
        fields["content"] = tuple(_block(*part) for part in parts)
    message: Message = _KINDS[role](**fields)
    return message


def _block(kind: str, text: str, data: bytes) -> Block:
    block = msgspec.msgpack.decode(data, type=_BLOCKS[kind])
    if isinstance(block, Text):
        return replace(block, text=text)
    if isinstance(block, Thinking):
        return replace(block, thinking=text)
    return replace(block, data=text) if isinstance(block, Image) and text else block


def _packed(record: Record) -> bytes:
    try:
        return msgspec.msgpack.encode(record)
    except UnicodeEncodeError:  # a lone surrogate: it has no UTF-8, and no model is sent one
        return msgspec.msgpack.encode(_clean(msgspec.to_builtins(record, builtin_types=(bytes,))))


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, dict):
        return {key: _clean(each) for key, each in value.items()}
    return [_clean(each) for each in value] if isinstance(value, (list, tuple)) else value

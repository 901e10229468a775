"""The body of an Anthropic Messages request, as bytes: the same items always give the same bytes.

Order of the keys is that of the provider's cache (tools, system, messages), then what may change
freely. Cache marks are spliced into the messages they stand on; no other byte depends on them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from perdure.context import cache, thinking
from perdure.context.boundary import split, strip
from perdure.context.cache import Retention
from perdure.context.changed import common
from perdure.context.characters import encodable
from perdure.context.policy import TranscriptPolicy
from perdure.records import (
    Assistant,
    Bash,
    Block,
    BranchSummary,
    Image,
    Item,
    Items,
    Message,
    ModelInfo,
    Summary,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    ToolSpec,
)

SUMMARY = "The earlier part of this conversation was compacted. What follows is its summary.\n\n"
BRANCH = "This conversation was continued from an earlier point. Summary of the branch left behind:\n\n"

_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_encode = msgspec.json.Encoder().encode


class Chunk:
    """One message on the wire: the items `start:end` of a view, encoded without marks."""

    __slots__ = ("blocks", "body", "calls", "end", "offset", "role", "start")

    def __init__(self, role: str, start: int, end: int, items: Items) -> None:
        contents = [block for item in items[start:end] for block in wire_blocks(item.message)]
        self.role, self.start, self.end, self.offset = role, start, end, 0
        self.blocks = len(contents)
        self.calls = tuple(block["name"] for block in contents if block["type"] == "tool_use")
        self.body: bytes = _encode({"role": role, "content": contents})


class Memo:
    """What the last render of one session left: only messages behind the first change are made anew.

    `joined` holds the bodies of the first `settled` chunks, each followed by a comma: those that no
    mark stands on. `reused` tells how many wire messages the last render took over unchanged.
    """

    __slots__ = ("_head", "_head_key", "chunks", "items", "joined", "reused", "settled")

    def __init__(self) -> None:
        self.items: Items = ()
        self.chunks: list[Chunk] = []
        self.joined = bytearray()
        self.settled = 0
        self.reused = 0
        self._head: bytes = b""
        self._head_key: tuple[object, ...] = ()

    def update(self, items: Items) -> list[Chunk]:
        """The chunks of `items`."""
        same = common(self.items, items)
        kept = len(self.chunks)
        # The last chunk before the change may grow, so it is made again too.
        while kept and self.chunks[kept - 1].end >= same and not (same == len(items) == len(self.items)):
            kept -= 1
        self.reused = kept
        self.unsettle(kept)
        del self.chunks[kept:]
        start = self.chunks[-1].end if self.chunks else 0
        while start < len(items):
            role, end = role_of(items[start]), start + 1
            while end < len(items) and role_of(items[end]) == role:
                end += 1
            self.chunks.append(Chunk(role, start, end, items))
            start = end
        self.items = items
        return self.chunks

    def bodies(self, marks: Sequence[int], inside: bytes) -> list[bytes | bytearray]:
        """All messages, with commas between them; `inside` goes into the last block of the marked ones."""
        first = marks[0] if marks else max(len(self.chunks) - 1, 0)
        self.unsettle(first)
        for chunk in self.chunks[self.settled : first]:
            chunk.offset = len(self.joined)
            self.joined += chunk.body
            self.joined += b","
        self.settled = first
        # A message ends in `}]}`, and the first of these closes its last block.
        tail = [
            chunk.body[:-3] + inside if n in marks else chunk.body
            for n, chunk in enumerate(self.chunks[first:], first)
        ]
        return [self.joined, b",".join(tail)]

    def unsettle(self, count: int) -> None:
        """Only the first `count` chunks stay joined."""
        if count < self.settled:
            del self.joined[self.chunks[count].offset :]
            self.settled = count

    def head(self, key: tuple[object, ...]) -> bytes | None:
        return self._head if self._head_key == key else None

    def keep_head(self, key: tuple[object, ...], head: bytes) -> bytes:
        self._head_key, self._head = key, head
        return head


def render(
    items: Items,
    *,
    system: str,
    tools: tuple[ToolSpec, ...],
    model: ModelInfo,
    policy: TranscriptPolicy,
    max_tokens: int,
    thinking_level: str = "off",
    retention: Retention = "short",
    memo: Memo | None = None,
) -> bytes:
    """The whole body for sealed `items`. `stream` is left to who posts it.

    `thinking_level`: off, minimal, low, medium, high, xhigh; `retention`: life of the cache marks.
    """
    memo = memo if memo is not None else Memo()
    kept = retention if model.caching else "none"
    chunks = memo.update(items)
    used = () if tools else _names_called(chunks)
    key = (model.id, system, tools, kept, used)
    head = memo.head(key) or memo.keep_head(key, _head(model, system, tools, used, kept))
    settings: dict[str, Any] = {"max_tokens": max(1, max_tokens)}
    settings |= thinking.parameter(model, thinking_level, max_tokens)
    if used:
        settings["tool_choice"] = {"type": "none"}
    mark = cache.mark(kept)
    marks = cache.marked_messages(chunks) if mark is not None else ()
    inside = b',"cache_control":' + _encode(mark) + b"}]}"
    return b"".join((head, *memo.bodies(marks, inside), b"],", _encode(settings)[1:]))


def render_dict(body: bytes) -> dict[str, Any]:
    """A rendered body, to look at."""
    found: dict[str, Any] = json.loads(body)
    return found


def entries(items: Items) -> list[tuple[str, ...]]:
    """For each message on the wire, the entries it stands for."""
    found: list[tuple[str, ...]] = []
    role = ""
    for item in items:
        if role_of(item) == role:
            found[-1] += (item.entry,)
        else:
            found.append((item.entry,))
            role = role_of(item)
    return found


def role_of(item: Item) -> str:
    """Whose turn an item belongs to on the wire."""
    return "assistant" if type(item.message) is Assistant else "user"


def wire_blocks(message: Message) -> list[dict[str, Any]]:
    """The content blocks a message becomes."""
    if type(message) is ToolResult:
        return [_tool_result(message)]
    if type(message) is Summary:
        return [_text(f"{SUMMARY}<summary>\n{message.summary}\n</summary>")]
    if type(message) is BranchSummary:
        return [_text(f"{BRANCH}<summary>\n{message.summary}\n</summary>")]
    if type(message) is Bash:
        return [_text(bash_text(message))]
    return [_block(block) for block in message.content]  # type: ignore[union-attr]


def bash_text(message: Bash) -> str:
    """What the model reads of a command the user ran."""
    fence = "```"
    while fence in message.output:
        fence += "`"
    output = message.output.strip("\n")
    parts = [f"The user ran `{message.command}`", f"{fence}\n{output}\n{fence}" if output else "(no output)"]
    if message.cancelled:
        parts.append("(the command was cancelled)")
    elif message.exit_code:
        parts.append(f"It exited with code {message.exit_code}.")
    if message.truncated:
        where = f" The full output is in {message.full_output_path}" if message.full_output_path else ""
        parts.append(f"[output shortened.{where}]")
    return "\n".join(parts)


def _tool_result(message: ToolResult) -> dict[str, Any]:
    result: dict[str, Any] = {"type": "tool_result", "tool_use_id": message.call_id}
    if message.content:
        result["content"] = [_block(block) for block in message.content]
    if message.is_error:
        result["is_error"] = True
    return result


def _block(block: Block) -> dict[str, Any]:
    if type(block) is Text:
        return _text(block.text)
    if type(block) is ToolCall:
        return {"type": "tool_use", "id": block.id, "name": block.name, "input": msgspec.Raw(block.arguments)}
    if type(block) is Thinking:
        if block.redacted:
            return {"type": "redacted_thinking", "data": block.signature or ""}
        return {"type": "thinking", "thinking": block.thinking, "signature": block.signature or ""}
    assert type(block) is Image, "the seal lets no other block through"
    source = {"type": "base64", "media_type": block.mime, "data": block.data}
    return {"type": "image", "source": source}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _head(
    model: ModelInfo, system: str, tools: tuple[ToolSpec, ...], used: tuple[str, ...], kept: Retention
) -> bytes:
    """Everything up to the first message."""
    head: dict[str, Any] = {"model": encodable(model.id)}
    specs = wire_tools(tools) if tools else [_stub(name) for name in used]
    if specs:
        head["tools"] = specs
    blocks = system_blocks(system, kept)
    if blocks:
        head["system"] = blocks
    return _encode(head)[:-1] + b',"messages":['


def system_blocks(system: str, retention: Retention) -> list[dict[str, Any]]:
    """The stable part with a mark, the dynamic part without; blank parts are left out."""
    mark = cache.mark(retention)
    system = encodable(system)
    parts = split(system) if mark else (strip(system), "")
    stable, dynamic = parts if parts is not None else (system, "")
    blocks = [_text(text) for text in (stable, dynamic) if text.strip()]
    if mark and blocks and stable.strip():
        blocks[0]["cache_control"] = mark
    return blocks


def wire_tools(tools: tuple[ToolSpec, ...]) -> list[dict[str, Any]]:
    """The tools in their given order, schemas with sorted keys; without names that are invalid or taken."""
    found: dict[str, dict[str, Any]] = {}
    for tool in tools:
        if _TOOL_NAME.fullmatch(tool.name) and tool.name not in found:
            description = encodable(tool.description)
            schema = msgspec.Raw(_schema(tool.schema))
            found[tool.name] = {"name": tool.name, "description": description, "input_schema": schema}
    return list(found.values())


def _schema(raw: bytes) -> bytes:
    try:
        schema = msgspec.json.decode(raw)
    except msgspec.DecodeError:
        schema = {}
    if type(schema) is not dict or schema.get("type") != "object":
        schema = {"type": "object"}
    return msgspec.json.encode(schema, order="sorted")


def _stub(name: str) -> dict[str, Any]:
    """A tool of the history that this request doesn't offer; some doors want every called tool named."""
    description = "Not available in this request."
    return {"name": name, "description": description, "input_schema": {"type": "object"}}


def _names_called(chunks: Sequence[Chunk]) -> tuple[str, ...]:
    return tuple(sorted({name for chunk in chunks for name in chunk.calls}))

"""A session for people: its branch from the first entry on, covered parts included, as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterator

from perdure.cli.output import one_line, safe
from perdure.context.pictures.images import described
from perdure.context.truncation.dag import COMPACTION, Node
from perdure.edges.session.decode import decode_entry
from perdure.edges.session.lines import iso
from perdure.edges.session.load import Loaded
from perdure.edges.session.view import Read, message_of
from perdure.records import (
    Assistant,
    Bash,
    Block,
    BranchSummary,
    Custom,
    Image,
    Message,
    Summary,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    User,
)

LATEST = 253_402_300_799_999  # ms; what a clock with a fault may have written lies beyond


def markdown(loaded: Loaded, title: str) -> Iterator[bytes]:
    """The session's own branch, root first. Nothing in it acts on a terminal."""
    known = loaded.known()
    yield _encoded(f"# {one_line(known.name or title)}\n")
    if known.name:
        yield _encoded(f"\n`{one_line(title)}`\n")
    past = loaded.past
    leaf = loaded.view().leaf
    with loaded.reading():
        for at in past.graph.view(leaf).path if leaf is not None else ():
            node = past.graph.nodes[at]
            message = _said(node, past.read)
            if message is not None:
                yield _encoded("\n" + "\n".join(_message(message, node.id)) + "\n")


def _said(node: Node, read: Read) -> Message | None:
    if node.type == COMPACTION:
        return Summary(decode_entry(read(node)).summary or "")
    return message_of(node, read)


def _encoded(text: str) -> bytes:
    return safe(text).encode("utf-8", "replace")


def _message(message: Message, id: str) -> Iterator[str]:
    stamp = f" · {iso(message.timestamp)[:19]}Z" if 0 < message.timestamp < LATEST else ""
    yield f"## {one_line(_who(message))}{stamp} <!-- {one_line(id).replace('--', '')} -->"
    for part in _parts(message):
        if part.strip():
            yield ""
            yield part


def _who(message: Message) -> str:
    match message:
        case User():
            return "User"
        case Assistant():
            ended = "" if message.stop in ("stop", "toolUse") else f" ({message.stop})"
            return f"Assistant{ended}"
        case ToolResult():
            return f"Result of {message.tool or 'a tool'}{' (error)' if message.is_error else ''}"
        case Summary():
            return "Summary of what was said before"
        case BranchSummary():
            return "Summary of another branch"
        case Bash():
            return "Command run by the user"
        case Custom():
            return f"Extension {message.kind}"


def _parts(message: Message) -> Iterator[str]:
    match message:
        case Summary() | BranchSummary():
            yield _quoted(message.summary)
        case Bash():
            yield _fenced(f"$ {message.command}\n{message.output}")
        case ToolResult():
            yield from (_fenced(b.text) if isinstance(b, Text) else _block(b) for b in message.content)
        case Assistant():
            yield from map(_block, message.content)
            if message.error:
                yield _quoted(f"error: {message.error}")
        case _:
            yield from map(_block, message.content)


def _block(block: Block) -> str:
    match block:
        case Text():
            return block.text
        case Thinking():
            return "" if block.redacted else _quoted(block.thinking)
        case ToolCall():
            return _fenced(f"{block.name} {block.arguments.decode('utf-8', 'replace')}")
        case Image():
            return f"*{one_line(described(block))}*"
        case _:
            return f"*{one_line(block.kind) or 'a block'} of a kind nobody knows*"


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in safe(text).split("\n"))


def _fenced(text: str) -> str:
    """A code block whose fence is longer than any in the text."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text.rstrip()}\n{fence}"

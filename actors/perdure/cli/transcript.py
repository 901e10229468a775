"""One message of a view as lines for a person: who, which entry, when; long tool output shortened."""

from __future__ import annotations

from collections.abc import Iterator

from perdure.cli.output import one_line, size
from perdure.context.pictures.images import described
from perdure.edges.session.lines import iso
from perdure.records import (
    Assistant,
    Bash,
    Block,
    BranchSummary,
    Custom,
    Image,
    Item,
    Message,
    Summary,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    User,
)

LONGEST_RESULT = 2_000  # characters of a tool's output
LATEST = 253_402_300_799_999  # ms; what a clock with a fault may have written lies beyond


def paragraphs(item: Item) -> Iterator[str]:
    """The heading of a message, then its content."""
    message = item.message
    stamp = f"  {iso(message.timestamp)[:19]}Z" if 0 < message.timestamp < LATEST else ""
    entry = f"  [{item.entry}]" if item.entry else ""
    yield f"── {one_line(_who(message))}{entry}{stamp}"
    yield from _content(message)


def _who(message: Message) -> str:
    match message:
        case User():
            return "user"
        case Assistant():
            ended = "" if message.stop in ("stop", "toolUse") else f" ({message.stop})"
            return f"assistant{f' {message.model}' if message.model else ''}{ended}"
        case ToolResult():
            return f"result of {message.tool or 'a tool'}{' (error)' if message.is_error else ''}"
        case Summary():
            return f"summary of {message.tokens_before:,} tokens" if message.tokens_before else "summary"
        case BranchSummary():
            return "summary of another branch"
        case Bash():
            return "command run by the user"
        case Custom():
            return f"extension {message.kind}"


def _content(message: Message) -> Iterator[str]:
    match message:
        case Summary() | BranchSummary():
            yield message.summary
        case Bash():
            yield f"$ {message.command}"
            yield shortened(message.output)
        case ToolResult():
            yield from (shortened(_block(block)) for block in message.content)
        case Assistant():
            yield from (_block(block) for block in message.content)
            if message.error:
                yield f"error: {shortened(message.error)}"
        case _:
            yield from (_block(block) for block in message.content)


def _block(block: Block) -> str:
    match block:
        case Text():
            return block.text
        case Thinking():
            return "(thinking that is not readable)" if block.redacted else f"(thinking) {block.thinking}"
        case ToolCall():
            arguments = block.arguments.decode("utf-8", "replace")
            return f"→ {one_line(block.name)} {shortened(arguments)}"
        case Image():
            return one_line(described(block))
        case _:
            return f"({one_line(block.kind) or 'a block'} of a kind nobody knows, {size(len(block.raw))})"


def shortened(text: str) -> str:
    """The begin of a long text, and how much is left out."""
    if len(text) <= LONGEST_RESULT:
        return text
    return f"{text[:LONGEST_RESULT]}\n… {len(text) - LONGEST_RESULT:,} more characters"

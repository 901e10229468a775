"""Messages and summaries as the tools show them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from perdure.context.pictures.images import described
from perdure.plugins.engines.lossless.pieces import Node, moment
from perdure.records import (
    Assistant,
    Bash,
    Block,
    BranchSummary,
    Image,
    Message,
    Summary,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)


def readable(message: Message) -> str:
    """All of a message that can be read."""
    match message:
        case Summary(summary) | BranchSummary(summary):
            return summary
        case Bash(command, output):
            return f"$ {command}\n{output}"
        case _:
            return "\n".join(filter(None, _texts(message.content)))


def _texts(content: Sequence[Block]) -> Iterator[str]:
    for block in content:
        match block:
            case Text(text):
                yield text
            case Thinking(thought):
                yield f"(thinking) {thought}" if thought else ""
            case ToolCall(_, name, arguments):
                yield f"{name} {arguments.decode('utf-8', 'replace')}"
            case Image():
                yield described(block)


def who(message: Message) -> str:
    """Who speaks."""
    match message:
        case Assistant():
            return "assistant"
        case ToolResult(_, tool):
            return f"tool {tool}"
        case Summary() | BranchSummary():
            return "summary"
        case _:
            return "user"


def headed(entry: str, message: Message) -> str:
    """The line above a message."""
    when = f" {moment(message.timestamp)}" if message.timestamp else ""
    return f"[{entry}] {who(message)}{when}:"


def facts(node: Node) -> str:
    """What is known of a summary beside its text."""
    span = f", {moment(node.earliest)} – {moment(node.latest)}" if node.latest else ""
    return (
        f"[{node.id}] {node.kind} summary, depth {node.depth}, {node.messages:,} messages{span}, "
        f"{node.source_tokens:,} tokens told in {node.tokens:,}, trust {node.trust}"
    )

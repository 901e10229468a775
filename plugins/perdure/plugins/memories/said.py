"""What was said in committed messages, as a memory may take it: plain text with who said it and its trust.

An answer that follows tool results in its turn is as untrusted as they are: it may only repeat them.
The output of tools itself is never taken.
"""

from __future__ import annotations

from typing import Literal

from perdure.context.text.characters import clean
from perdure.contracts.memories import Trust
from perdure.records import Assistant, Block, Items, Record, Text, ToolCall, ToolResult, User


class Said(Record):
    """One message. `tools`: names of what it called; `at`: milliseconds since 1970, 0 where not told."""

    entry: str
    role: Literal["user", "assistant"]
    text: str
    trust: Trust
    at: int = 0
    tools: tuple[str, ...] = ()


def said(items: Items) -> tuple[Said, ...]:
    """The messages that have text or calls, in order."""
    found: list[Said] = []
    tainted = False
    for item in items:
        match item.message:
            case User(content=content, provenance=provenance, timestamp=at):
                tainted = provenance is not None
                trust: Trust = "untrusted" if tainted else "owner"
                found.append(Said(item.entry, "user", text_of(content), trust, at))
            case Assistant(content=content, timestamp=at):
                called = tuple(block.name for block in content if isinstance(block, ToolCall))
                trust = "untrusted" if tainted else "agent"
                found.append(Said(item.entry, "assistant", text_of(content), trust, at, called))
            case ToolResult():
                tainted = True
            case _:
                pass
    return tuple(one for one in found if one.text or one.tools)


def text_of(content: tuple[Block, ...]) -> str:
    """The text of a message, without what no store or prompt may hold."""
    return clean("\n".join(block.text for block in content if isinstance(block, Text)), foreign=True).strip()

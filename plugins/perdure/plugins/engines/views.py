"""What engines read in a view: what a message says and how far it may be trusted, how large it is, and what
must not be torn apart. Sizes here are cheap and never change, unlike those of an estimator that learns.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate, pairwise

from perdure.context.compaction.batches import boundaries
from perdure.context.numbers import CHARS_PER_TOKEN_ESTIMATE, IMAGE_CHAR_ESTIMATE
from perdure.contracts.memories import Trust
from perdure.records import (
    Assistant,
    Bash,
    BranchSummary,
    Custom,
    Image,
    Items,
    Message,
    Provenance,
    Record,
    Summary,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    User,
)


class Atom(Record):
    """Items that stand or fall together, `start` … `stop` in their view: a message, or calls with results.

    `turn` counts users' messages up to here; `tokens` by plain weights.
    """

    start: int
    stop: int
    turn: int
    tokens: int


def atoms(items: Items, largest: int) -> Iterator[Atom]:
    """The view in pieces, in order. A turn is a user's message and all that follows until the next one.

    No message counts more than `largest` tokens: the guard shortens results that are larger.
    """
    free = boundaries(items)
    starts = [at for at in range(len(items)) if free[at] or at == 0]
    turns = list(accumulate(isinstance(item.message, User) for item in items))
    for start, stop in pairwise([*starts, len(items)]):
        size = sum(min(tokens(item.message), largest) for item in items[start:stop])
        yield Atom(start, stop, turns[start], size)


def tokens(message: Message) -> int:
    """The plain weights: four bytes a token (three beyond ASCII), half of it in results, pictures flat."""
    size = sum(IMAGE_CHAR_ESTIMATE if isinstance(b, Image) else _bytes(b) for b in _blocks(message))
    size *= 2 if isinstance(message, ToolResult) else 1
    return size // CHARS_PER_TOKEN_ESTIMATE + 4


def said(message: Message) -> str:
    """What can be read of a message, thinking left out."""
    return "\n".join(filter(None, map(_text, _blocks(message))))


def begin(items: Items, chars: int) -> str:
    """The first characters of what messages say, each counted up to so many."""
    found = ""
    for item in items:
        found = f"{found}\n{said(item.message)[:chars]}" if found else said(item.message)[:chars]
        if len(found) >= chars:
            break
    return found[:chars]


def trust(message: Message) -> Trust:
    """Who speaks: the user, the agent, the runtime; tools, other sessions and programs are untrusted."""
    match message:
        case User(provenance=None) | User(provenance=Provenance("external_user")):
            return "owner"
        case User(provenance=Provenance("internal_system")):
            return "system"
        case Assistant():
            return "agent"
    return "untrusted"


def _blocks(message: Message) -> tuple[object, ...]:
    match message:
        case Summary(summary) | BranchSummary(summary):
            return (Text(summary),)
        case Bash(command, output):
            return (Text(f"{command}\n{output}"),)
        case User(content) | Assistant(content) | Custom(content=content) | ToolResult(content=content):
            return content


def _text(block: object) -> str:
    match block:
        case Text(text):
            return text
        case ToolCall(_, name, arguments):
            return f"{name} {arguments.decode('utf-8', 'replace')}"
    return ""


def _bytes(block: object) -> int:
    match block:
        case Text(text) | Thinking(text):
            return len(text) if text.isascii() else len(text.encode("utf-8", "replace")) * 4 // 3
        case ToolCall(_, name, arguments):
            return len(name) + len(arguments)
    return 0

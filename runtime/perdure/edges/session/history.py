"""A session's whole past, covered or not: entries of its file and of the segments beside it, by id and text.

Reads the file anew each time: it is asked rarely (by `recall`, by checks), and costs nothing while it isn't.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from perdure.edges import segments
from perdure.edges.session.decode import decode_entry, decode_message
from perdure.edges.session.load import load
from perdure.edges.session.own import facts_of
from perdure.errors import UsageError
from perdure.records import (
    Assistant,
    Bash,
    BranchSummary,
    Custom,
    Message,
    Summary,
    Text,
    ToolCall,
    ToolResult,
    User,
)

SNIPPET = 240  # characters of an entry shown in a search result


class History:
    """The past of the session whose file is `path`. Raises `UnreadableFile` where it is no session."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def records(self) -> Iterator[tuple[str, bytes]]:
        """Every entry once: what was moved into segments, then the file.

        A crash may leave a segment whose entries the file still has: the file's own count.
        """
        here = [(node.id, raw) for node, raw in load(self.path).entries()]
        told = {id for id, _ in here}
        for segment in segments.segments_of(self.path):
            for moved in segments.Segment(segment).entries():
                if moved.id not in told:
                    told.add(moved.id)
                    yield moved.id, moved.raw
        yield from here

    def text(self, ref: str) -> str:
        """An entry as text. Raises `UsageError` for an id that is not of this session."""
        try:
            return shown(load(self.path).entry(ref))
        except KeyError:
            moved = segments.find_entry(self.path, ref)
        if moved is not None:
            return shown(moved)
        raise UsageError(f"no entry {ref} in this session")

    def search(self, text: str, limit: int) -> str:
        """Entries that mention `text` (case ignored), newest first: id, who, and the place."""
        wanted, found = text.casefold(), []
        for id, raw in self.records():
            whole = shown(raw)
            at = whole.casefold().find(wanted)
            if at >= 0:
                found.append(f"{id} {_around(whole, at, len(text))}")
        return "\n".join(reversed(found[-limit:]))

    def keeps(self, digest: str) -> bool:
        """Whether an entry of this session keeps its output as the evidence `digest`."""
        sought = digest.encode()
        return any(sought in raw and digest in _evidence(raw) for _, raw in self.records())

    def missing_mids(self, mids: Sequence[str]) -> int:
        """How many of these message ids no entry carries."""
        whole = b"\n".join(raw for _, raw in self.records())
        return sum(1 for mid in mids if f'"mid":"{mid}"'.encode() not in whole)

    def count(self) -> int:
        """Entries, headers apart."""
        return sum(1 for _ in self.records())


def _around(text: str, at: int, length: int) -> str:
    start = max(0, at - (SNIPPET - length) // 2)
    piece = " ".join(text[start : start + SNIPPET].split())
    return f"{'…' if start else ''}{piece}{'…' if start + SNIPPET < len(text) else ''}"


def _evidence(raw: bytes) -> tuple[str, ...]:
    facts = facts_of(decode_entry(raw))
    return facts.evidence if facts is not None else ()


def shown(raw: bytes) -> str:
    """One entry as text: who, and everything that can be read; what is no message as it stands."""
    entry = decode_entry(raw)
    if entry.type == "compaction":
        return f"summary: {entry.summary or ''}"
    message = decode_message(entry.message) if bytes(entry.message) else None
    return said(message) if message is not None else raw.decode("utf-8", "replace")


def said(message: Message) -> str:
    """A message as text: who, and everything that can be read."""
    match message:
        case User(content) | Custom(content=content):
            return f"user: {_texts(content)}"
        case Assistant(content):
            return f"assistant: {_texts(content)}"
        case ToolResult(_, tool, content):
            return f"tool {tool}: {_texts(content)}"
        case Summary(summary) | BranchSummary(summary):
            return f"summary: {summary}"
        case Bash(command, output):
            return f"user ran {command}\n{output}"


def _texts(content: Sequence[object]) -> str:
    parts = []
    for block in content:
        if isinstance(block, Text):
            parts.append(block.text)
        elif isinstance(block, ToolCall):
            parts.append(f"{block.name} {block.arguments.decode('utf-8', 'replace')}")
    return "\n".join(parts)

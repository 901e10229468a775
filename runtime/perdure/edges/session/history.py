"""A session's whole past, covered or not: entries of its file and of the segments beside it, by id and text.

Reads the file anew each time: it is asked rarely (by `recall`, by checks), and costs nothing while it isn't.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from perdure.context.compaction.redact import redact
from perdure.context.pictures.images import described
from perdure.context.safety.calls import spelled
from perdure.context.text import secrets
from perdure.edges import segments
from perdure.edges.session.decode import decode_entry, decode_message, entry_message
from perdure.edges.session.load import load
from perdure.edges.session.own import facts_of
from perdure.edges.session.tail import open_session
from perdure.edges.session.view import message_of
from perdure.errors import UsageError
from perdure.records import (
    Assistant,
    Bash,
    BranchSummary,
    Custom,
    Image,
    Item,
    Items,
    Message,
    Summary,
    Text,
    ToolCall,
    ToolResult,
    User,
)

OURS = 16  # digits of an id that we made, at least
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
        return shown(self._raw(ref))

    def message(self, ref: str) -> Message | None:
        """An entry as the message it is. Raises `UsageError` for an id that is not of this session."""
        return entry_message(decode_entry(self._raw(ref)))

    def images(self, ref: str) -> tuple[Image, ...]:
        """The pictures of an entry, those without bytes included that are kept beside the file."""
        message = entry_message(decode_entry(self._raw(ref)))
        content = message.content if isinstance(message, User | ToolResult | Custom | Assistant) else ()
        return tuple(block for block in content if isinstance(block, Image))

    def _raw(self, ref: str) -> bytes:
        try:
            return load(self.path).entry(ref)
        except KeyError:
            moved = segments.find_entry(self.path, ref)
        if moved is not None:
            return moved
        raise UsageError(f"no entry {ref} in this session")

    def messages(self, after: str = "", limit: int = 1_000) -> Items:
        """Messages of the live path behind the entry `after` ("": all), oldest first, at most `limit`.

        Covered and moved ones are among them; the summaries that cover them are not. Raises `LookupError`
        where `after` is not on the path, `SegmentGone` where a part of it is gone.
        """
        past = load(self.path).past
        leaf = open_session(self.path).leaf
        if leaf is None:
            return ()
        nodes = [past.graph.nodes[at] for at in past.view(leaf).path]
        start = next((at + 1 for at, node in enumerate(nodes) if node.id == after), 0)
        if after and not start:
            raise LookupError(f"{after} is no entry of this session's branch")
        found = []
        for node in nodes[start:]:
            message = message_of(node, past.read)
            if message is not None and not isinstance(message, Summary):
                found.append(Item(node.id, message))
                if len(found) == limit:
                    break
        return tuple(found)

    def search(self, text: str, limit: int) -> str:
        """Entries that mention `text` (case ignored), newest first: id, who, and the place.

        A summary leaves secrets out: what it says with `[redacted]` in their place finds the entries that
        hold them, shown as the summary shows them; read by id, an entry is whole.
        """
        wanted, found = text.casefold(), []
        for id, raw in self.records():
            whole = shown(raw)
            if secrets.REDACTED in wanted:
                whole = clean if (clean := redact(whole)) != whole else ""
            at = whole.casefold().find(wanted)
            if at >= 0:
                found.append(f"{id} {_around(whole, at, len(text))}")
        return "\n".join(reversed(found[-limit:]))

    def answer_to(self, ref: str) -> Assistant | None:
        """The answer that ended the turn of the message `ref`, covered or not: the next one in time.

        By the order of ids, which ours have; `None` where nothing has answered it.
        """
        later = sorted(
            (id, raw) for id, raw in self.records() if id > ref and len(id) >= OURS and b'"assistant"' in raw
        )
        for _, raw in later:
            entry = decode_entry(raw)
            message = decode_message(entry.message) if entry.type == "message" else None
            if isinstance(message, Assistant) and message.stop != "toolUse":
                return message
        return None

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
        elif isinstance(block, Image):
            parts.append(described(block))
        elif isinstance(block, ToolCall):
            parts.append(f"{block.name} " + "\n".join(spelled(block)))
    return "\n".join(parts)

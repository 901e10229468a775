"""Where a request parts from the one before it, byte for byte, at the cost of what changed.

A session keeps what its last request was made of: the bytes before the messages, the very objects that
encode each message, and a chain of check sums over them. Messages that the renderer took over unchanged are
the same bytes by construction; the others are compared. The chain's end and the digests of the other parts
make a `fingerprint` of some thirty bytes, which outlives sleep and restart in the session's file.
"""

from __future__ import annotations

import re
from array import array
from binascii import a2b_base64, b2a_base64
from collections.abc import Sequence
from hashlib import blake2b
from itertools import zip_longest
from typing import Any, Protocol
from zlib import crc32

import msgspec

from perdure.records import Bash, BranchSummary, Items, Message, Record, Summary, ToolResult

SHOWN = 40  # bytes before a difference that are shown with it, and twice as many behind
SHORT = 4  # bytes of each check sum: they tell equal from changed, and guard nothing

_MARK = re.compile(rb',"cache_control":\{"type":"ephemeral"(?:,"ttl":"(?:5m|1h)")?\}')
_ROOM = re.compile(rb'"max_(?:completion_|output_)?tokens":\d+,?')
_IMAGE, _INPUT_IMAGE = b'"type":"image', b'"type":"input_image'
_encode = msgspec.json.Encoder().encode


class Piece(Protocol):
    """One message on the wire: its bytes without marks, and which items it stands for."""

    @property
    def body(self) -> bytes: ...
    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...


class Rendered(Protocol):
    """What a renderer keeps of the request it has just made. `reused` messages are those of the last one."""

    @property
    def front(self) -> bytes: ...
    @property
    def items(self) -> Items: ...
    @property
    def chunks(self) -> Sequence[Piece]: ...
    @property
    def reused(self) -> int: ...


class Parting(Record):
    """The first byte that differs from the last request and loses cached tokens.

    `byte` counts from the start of the body, cache marks left out; -1 where only a fingerprint is known.
    `part` is model, tools, system, settings or messages; `index` and `block` say which one of the part.
    `entries` are those that stand there, before and now. `before` and `after` show what differs.
    """

    byte: int
    part: str
    index: int = -1
    block: int = -1
    entries: tuple[str, ...] = ()
    before: str = ""
    after: str = ""


class Prefix:
    """The last request of one session, as far as the next one is compared with it."""

    __slots__ = (
        "_brief",
        "_chain",
        "_front",
        "_items",
        "_pictures",
        "_pieces",
        "_tail",
        "_written",
        "known",
        "pictured",
    )

    def __init__(self) -> None:
        self.known = False  # a request was followed
        self.pictured = False  # with images: the first to come and the last to leave lose all messages
        self._front = b""
        self._written = self._tail = b""  # what stands behind the messages, with and without room for output
        self._items: Items = ()
        self._pieces: list[Piece] = []
        self._chain, self._pictures = array("L"), bytearray()
        self._brief = b""  # flags, and digests of all but the messages; "" until it is asked for

    def follow(self, made: Rendered, body: bytes) -> Parting | None:
        """Compare a request with the one before it and remember it instead; None if it only goes on."""
        written = body[body.rfind(b"],") :] if made.chunks else b""
        tail = self._tail if written == self._written else _ROOM.sub(b"", written)
        kept = min(made.reused, len(self._pieces))
        found = self._compare(made, kept, tail) if self.known else None
        self._remember(made, kept)
        pictured = 1 in self._pictures
        if made.front is not self._front or tail != self._tail or pictured != self.pictured:
            self._front, self._tail, self.pictured, self._brief = made.front, tail, pictured, b""
        self._items, self._written, self.known = made.items, written, True
        return found

    def _remember(self, made: Rendered, kept: int) -> None:
        """Messages, their chain and which of them show images, from the first that was made anew on."""
        new = made.chunks[kept:]
        self._pieces[kept:] = new
        del self._chain[kept:], self._pictures[kept:]
        link = self._chain[-1] if kept else 0
        for piece in new:
            body = piece.body
            link = crc32(body, link)
            self._chain.append(link)
            self._pictures.append(_IMAGE in body or _INPUT_IMAGE in body)

    # --- fingerprints -----------------------------------------------------------------------------

    @property
    def fingerprint(self) -> str:
        """The request in brief: flags, digests of its parts, the chain before and behind its last message."""
        count = len(self._pieces)
        whole = self._whole() + self._link(count - 1) + self._link(count)
        return f"{b2a_base64(whole, newline=False).decode()}{count}"

    def against(self, fingerprint: str) -> Parting | None:
        """Where the followed request parts from one of which only the fingerprint is known.

        None if it goes on, or if the text is no fingerprint. No byte can be told.
        """
        read = _read(fingerprint)
        if read is None:
            return None
        theirs, count = read
        mine, at = self._whole(), 2
        for n, part in enumerate(("model", "tools", "system", "system", "settings")):
            if mine[at : at + SHORT] != theirs[at : at + SHORT]:
                return Parting(-1, part, n - 2 if part == "system" else -1)
            at += SHORT
        for n, part in enumerate(("images", "retention")):
            if mine[n] != theirs[n]:
                return Parting(-1, part)
        before, behind = theirs[at : at + SHORT], theirs[at + SHORT :]
        if count <= len(self._pieces) and self._link(count) == behind:
            return None
        if count - 1 <= len(self._pieces) and self._link(count - 1) == before:
            return Parting(-1, "messages", count - 1)  # its last message alone: it may just have grown
        return Parting(-1, "messages")

    def _whole(self) -> bytes:
        """What a fingerprint holds of all but the messages."""
        if not self._brief:
            flags = bytes([self.pictured, b'"ttl":"1h"' in self._front])
            settings = blake2b(self._tail, digest_size=SHORT).digest()
            self._brief = flags + _front_digests(self._front) + settings
        return self._brief

    def _link(self, count: int) -> bytes:
        """The chain over the first `count` messages."""
        return self._chain[count - 1].to_bytes(SHORT, "big") if count > 0 else bytes(SHORT)

    # --- the comparison -----------------------------------------------------------------------------

    def _compare(self, made: Rendered, kept: int, tail: bytes) -> Parting | None:
        if made.front is not self._front and made.front != self._front:
            found = _in_front(_MARK.sub(b"", self._front), _MARK.sub(b"", made.front))
            if found is not None:
                return found
        if tail != self._tail:
            at = first_byte(self._tail, tail)
            shown = _around(self._tail, tail, at)
            return Parting(self._offset(len(self._pieces)) + at, "settings", -1, -1, (), *shown)
        old, new = self._pieces[kept:], made.chunks[kept:]
        for n, (a, b) in enumerate(zip_longest(old, new), kept):
            if a is None:
                return None
            if b is None or a.body != b.body:
                if b is not None and a is old[-1] and b.body.startswith((a.body[:-2] + b",", a.body + b",")):
                    return (
                        None  # the last message goes on: its blocks, or the messages it became, stand first
                    )
                return self._in_message(n, a, b, made.items)
        return None

    def _offset(self, index: int) -> int:
        """Where the message of that index begins."""
        front = len(_MARK.sub(b"", self._front))
        return front + sum(len(piece.body) + 1 for piece in self._pieces[:index])

    def _in_message(self, index: int, old: Piece, new: Piece | None, items: Items) -> Parting:
        body = new.body if new is not None else b""
        at = first_byte(old.body, body)
        block = _first_block(old.body, body)
        entries = [entry_at(self._items, old.start, old.end, block)]
        if new is not None:
            entries.append(entry_at(items, new.start, new.end, block))
        shown = _around(old.body, body, at)
        return Parting(self._offset(index) + at, "messages", index, block, tuple(entries), *shown)


def first_byte(a: bytes, b: bytes) -> int:
    """Index of the first byte in which two texts differ; the shorter length if one begins the other."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


# --- before the messages ----------------------------------------------------------------------------


def _in_front(a: bytes, b: bytes) -> Parting | None:
    if a == b:  # a mark has moved, or its life has changed
        return None
    at, one, two = first_byte(a, b), _decoded(a), _decoded(b)
    if one.get("model") != two.get("model"):
        return Parting(at, "model", -1, -1, (), str(one.get("model")), str(two.get("model")))
    for part in ("tools", "system"):
        old, new = _part(one, part), _part(two, part)
        if old != new:
            index = _first_other(old, new)
            if part == "tools":
                return Parting(at, part, index, -1, (), *_tools(old, new))
            return Parting(at, part, index, -1, (), *_sections(old[index:], new[index:]))
    return Parting(at, "settings", -1, -1, (), *_around(a, b, at))


def _decoded(front: bytes) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(front.rstrip(b",") + b"]}")
    except msgspec.DecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def _part(front: dict[str, Any], part: str) -> list[Any]:
    """Tools or system text, wherever an API has it stand before the conversation."""
    names = ("tools",) if part == "tools" else ("system", "instructions", "messages", "input")
    found: Any = next((front[name] for name in names if front.get(name)), [])
    return found if isinstance(found, list) else [found]


def _first_other(old: list[Any], new: list[Any]) -> int:
    pairs = enumerate(zip(old, new, strict=False))
    return next((n for n, (x, y) in pairs if x != y), min(len(old), len(new)))


def _tools(old: list[Any], new: list[Any]) -> tuple[str, str]:
    """What became of the tools, in words: which left, which came, else which changed or moved."""
    before, after = [_name(tool) for tool in old], [_name(tool) for tool in new]
    gone = [name for name in before if name not in after]
    come = [name for name in after if name not in before]
    if gone or come:
        return ", ".join(gone)[:200], ", ".join(come)[:200]
    at = _first_other(old, new)
    if sorted(before) == sorted(after) and before != after:
        return f"{before[at]} at {at}", f"{after[at]} at {at}"
    return f"the definition of {before[at]}", f"another definition of {after[at]}"


def _name(tool: Any) -> str:
    named = tool.get("function", tool) if isinstance(tool, dict) else {}
    return str(named.get("name", "")) if isinstance(named, dict) else ""


def _sections(old: list[Any], new: list[Any]) -> tuple[str, str]:
    """The lines that differ, under the heading they stand under: `## SOUL.md: Be brief.`."""
    a, b = (_text(blocks[0]) if blocks else "" for blocks in (old, new))
    one, two = a.split("\n"), b.split("\n")
    at = _first_other(one, two)
    heading = next((row for row in reversed(one[:at]) if row.startswith("#")), "")
    rows = (lines[at] if at < len(lines) else "" for lines in (one, two))
    before, after = (f"{heading}: {row}"[:300] if heading else row[:300] for row in rows)
    return before, after


def _text(block: Any) -> str:
    return str(block.get("text", "")) if isinstance(block, dict) else str(block)


def _front_digests(front: bytes) -> bytes:
    """Short digests of model, tools, and the two parts of the system text, marks left out."""
    found = _decoded(_MARK.sub(b"", front))
    system = _part(found, "system")
    parts = (found.get("model"), _part(found, "tools"), system[:1], system[1:])
    return b"".join(blake2b(_encode(part), digest_size=SHORT).digest() for part in parts)


# --- in the messages --------------------------------------------------------------------------------


def _first_block(a: bytes, b: bytes) -> int:
    """Which content block differs first; -1 where the messages are no lists of blocks."""
    one, two = _blocks(a), _blocks(b)
    return -1 if one is None or two is None else _first_other(one, two)


def _blocks(body: bytes) -> list[Any] | None:
    try:
        found = msgspec.json.decode(body) if body else {"content": []}
    except msgspec.DecodeError:  # several messages with commas between them
        return None
    content = found.get("content") if isinstance(found, dict) else None
    return content if isinstance(content, list) else None


def _around(a: bytes, b: bytes, at: int) -> tuple[str, str]:
    """What stands about a place in two texts."""
    one, two = (text[max(0, at - SHOWN) : at + 2 * SHOWN].decode("utf-8", "replace") for text in (a, b))
    return one, two


def _read(fingerprint: str) -> tuple[bytes, int] | None:
    """Flags, digests and count of a fingerprint; None where the text is none."""
    try:
        whole, count = a2b_base64(fingerprint[:40]), int(fingerprint[40:])
    except ValueError:
        return None
    return (whole, count) if len(whole) == 2 + 7 * SHORT and count >= 0 else None


def entry_at(items: Items, start: int, end: int, block: int) -> str:
    """The entry whose content block of a message, made of the items `start:end`, has this index."""
    for item in items[start:end]:
        block -= _count(item.message)
        if block < 0:
            return item.entry
    return items[end - 1].entry if 0 < end <= len(items) else ""


def _count(message: Message) -> int:
    """Content blocks that a message becomes."""
    alone = isinstance(message, ToolResult | Summary | BranchSummary | Bash)
    return 1 if alone else len(message.content)  # type: ignore[union-attr]

"""What is kept of the last request's bytes, so that a step costs the messages that changed.

Every API shares it: a view is cut into chunks, one for each run of items of one side, and each
chunk is encoded once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from msgspec import Struct

from perdure.context.changed import common
from perdure.records import Assistant, Item, Items, Record


class Piece(Record):
    """One chunk encoded: one JSON message or several with commas between them, without marks.

    `blocks` counts its content blocks, `calls` names the tools it calls.
    """

    body: bytes
    blocks: int = 1
    calls: tuple[str, ...] = ()


Encode: TypeAlias = Callable[[str, Items], Piece]


class Chunk(Struct, gc=False):
    """The items `start:end` of a view, all of one role, and their bytes on the wire.

    Untracked like a record: a host keeps one for each message of each active session.
    """

    role: str
    start: int
    end: int
    body: bytes
    blocks: int
    calls: tuple[str, ...]
    offset: int = 0


class Memo:
    """What the last render of one session left: only messages behind the first change are made anew.

    `joined` holds the bodies of the first `settled` chunks, each followed by a comma: those that no
    mark stands on. `reused` tells how many chunks the last render took over unchanged. `held`: bytes kept.
    """

    __slots__ = ("_bodies", "_family", "_head", "_head_key", "chunks", "items", "joined", "reused", "settled")

    def __init__(self) -> None:
        self.items: Items = ()
        self.chunks: list[Chunk] = []
        self.joined = bytearray()
        self.settled = 0
        self.reused = 0
        self._bodies = 0  # bytes of all chunks
        self._family: object = None
        self._head: bytes = b""
        self._head_key: tuple[object, ...] = ()

    def update(self, items: Items, encode: Encode, *, family: object) -> list[Chunk]:
        """The chunks of `items`. What was kept under another `family` (an API and all else that
        `encode` depends on) is not used.
        """
        if family != self._family:
            self._forget(family)
        same = common(self.items, items)
        kept = len(self.chunks)
        # The last chunk before the change may grow, so it is made again too.
        while kept and self.chunks[kept - 1].end >= same and not (same == len(items) == len(self.items)):
            kept -= 1
        self.reused = kept
        self.unsettle(kept)
        self._bodies -= sum(len(chunk.body) for chunk in self.chunks[kept:])
        del self.chunks[kept:]
        start = self.chunks[-1].end if self.chunks else 0
        while start < len(items):
            role, end = role_of(items[start]), start + 1
            while end < len(items) and role_of(items[end]) == role:
                end += 1
            piece = encode(role, items[start:end])
            chunk = Chunk(role, start, end, piece.body, piece.blocks, piece.calls)
            self.chunks.append(chunk)
            self._bodies += len(chunk.body)
            start = end
        self.items = items
        return self.chunks

    def bodies(
        self, marks: Sequence[int] = (), marked: Callable[[bytes], bytes] = bytes
    ) -> list[bytes | bytearray]:
        """All messages, with commas between them; those at `marks` as `marked` makes them."""
        first = marks[0] if marks else max(len(self.chunks) - 1, 0)
        self.unsettle(first)
        for chunk in self.chunks[self.settled : first]:
            chunk.offset = len(self.joined)
            self.joined += chunk.body
            self.joined += b","
        self.settled = first
        tail = [
            marked(chunk.body) if n in marks else chunk.body
            for n, chunk in enumerate(self.chunks[first:], first)
        ]
        return [self.joined, b",".join(tail)]

    def unsettle(self, count: int) -> None:
        """Only the first `count` chunks stay joined."""
        if count < self.settled:
            del self.joined[self.chunks[count].offset :]
            self.settled = count

    @property
    def held(self) -> int:
        """Bytes kept: each chunk once by itself, those that are settled once more in one piece."""
        return self._bodies + len(self.joined) + len(self._head)

    @property
    def front(self) -> bytes:
        """Everything before the first message of the last render."""
        return self._head

    def head(self, key: tuple[object, ...]) -> bytes | None:
        return self._head if self._head_key == key else None

    def keep_head(self, key: tuple[object, ...], head: bytes) -> bytes:
        self._head_key, self._head = key, head
        return head

    def names_called(self) -> tuple[str, ...]:
        """The tools that the whole view calls, sorted."""
        return tuple(sorted({name for chunk in self.chunks for name in chunk.calls}))

    def _forget(self, family: object) -> None:
        self._family, self.items, self._head_key = family, (), ()
        self.unsettle(0)
        self.chunks.clear()
        self._bodies = 0


def role_of(item: Item) -> str:
    """Whose turn an item belongs to on the wire."""
    return "assistant" if type(item.message) is Assistant else "user"

r"""Bytes to lines, byte-exact: split on `\n` alone, forwards or backwards, in `pread` blocks.

Every reader of session files uses this splitter. Never mmap: a foreign truncation would kill the process.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

from perdure.errors import UnreadableFile
from perdure.records import Record

FIRST_BLOCK: Final = 1 << 16  # what a typical tail needs at most
LARGEST_BLOCK: Final = 1 << 22  # larger blocks gain nothing
BOM: Final = b"\xef\xbb\xbf"


class Line(Record):
    r"""One line without its `\n` and one trailing `\r`. `number` counts from 1 (0: unknown)."""

    number: int
    start: int
    data: bytes

    @property
    def end(self) -> int:
        """Offset just behind the last byte of `data`."""
        return self.start + len(self.data)


def read(fd: int, size: int, at: int) -> bytes:
    """Exactly `size` bytes at offset `at`. Raises `UnreadableFile` where the file became shorter."""
    data = os.pread(fd, size, at)
    while len(data) < size:
        more = os.pread(fd, size - len(data), at + len(data))
        if not more:
            raise UnreadableFile("the file became shorter while it was read: read it again")
        data += more
    return data


def split(data: bytes, start: int = 0, number: int = 1) -> Iterator[Line]:
    """The lines of a buffer, empty ones included."""
    pieces = data.split(b"\n")
    if not pieces[-1]:
        pieces.pop()  # what follows the last newline is no line
    for piece in pieces:
        yield Line(number, start, piece[:-1] if piece.endswith(b"\r") else piece)
        start, number = start + len(piece) + 1, number + 1


def forward(fd: int, start: int, end: int, number: int = 1) -> Iterator[Line]:
    """The lines between two offsets, in order."""
    open_line: list[bytes] = []
    begun = start
    for at in range(start, end, LARGEST_BLOCK):
        data = read(fd, min(LARGEST_BLOCK, end - at), at)
        cut = data.rfind(b"\n") + 1
        if not cut:
            open_line.append(data)
            continue
        for line in split(b"".join((*open_line, data[:cut])), begun, number):
            yield line
            number += 1
        open_line, begun = [data[cut:]], at + cut
    yield from split(b"".join(open_line), begun, number)


def backward(fd: int, end: int, low: int = 0) -> Iterator[Line]:
    """The non-empty lines that begin at `low` or later, last first; their numbers are unknown (0)."""
    size = FIRST_BLOCK
    later: list[bytes] = []  # parts of a line whose begin is not read yet, last part first
    at = end
    while at > low:
        size, begin = min(size * 2, LARGEST_BLOCK), max(low, at - size)
        pieces = read(fd, at - begin, begin).split(b"\n")
        for piece in reversed(pieces[1:]):
            at -= len(piece) + 1
            whole = b"".join((piece, *reversed(later))) if later else piece
            later.clear()
            if whole:
                yield Line(0, at + 1, whole[:-1] if whole.endswith(b"\r") else whole)
        later.append(pieces[0])
        at = begin
    if rest := b"".join(reversed(later)):
        yield Line(0, low, rest[:-1] if rest.endswith(b"\r") else rest)

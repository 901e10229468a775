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
    at = 0
    while at < len(data):
        end = data.find(b"\n", at)
        end = len(data) if end < 0 else end
        yield Line(number, start + at, _without_return(data[at:end]))
        at, number = end + 1, number + 1


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
        data = read(fd, at - begin, begin)
        cut = len(data)
        while (newline := data.rfind(b"\n", 0, cut)) >= 0:
            piece = data[newline + 1 : cut]
            if later:
                piece = b"".join((piece, *reversed(later)))
                later.clear()
            if piece:
                yield Line(0, begin + newline + 1, _without_return(piece))
            cut = newline
        later.append(data[:cut])
        at = begin
    if rest := b"".join(reversed(later)):
        yield Line(0, low, _without_return(rest))


def _without_return(data: bytes) -> bytes:
    return data[:-1] if data.endswith(b"\r") else data

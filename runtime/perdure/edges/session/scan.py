r"""Bytes to lines, byte-exact: split on `\n` alone, forwards or backwards, in `pread` blocks.

Every reader of session files uses this splitter. Never mmap: a foreign truncation would kill the process.
What no record can be made of (NUL runs of whole blocks, lines longer than any program reads) is passed over
and told as a line of its own, so that no file whatever takes more memory than its longest record.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

from perdure.errors import UnreadableFile
from perdure.records import Record

FIRST_BLOCK: Final = 1 << 16  # what a typical tail needs at most
LARGEST_BLOCK: Final = 1 << 22  # larger blocks gain nothing
BLANK: Final = 1 << 20  # NUL bytes in a row that are not kept
LONGEST: Final = (1 << 29) - 24  # bytes of a line: no program of the reference holds a longer text
BOM: Final = b"\xef\xbb\xbf"


class Line(Record):
    r"""One line without its `\n` and one trailing `\r`. `number` counts from 1 (0: unknown).

    `lost`: so many bytes were passed over and not kept, in place of `data`; `nul`: they are all NUL.
    """

    number: int
    start: int
    data: bytes
    lost: int = 0
    nul: bool = False

    @property
    def end(self) -> int:
        """Offset just behind the last byte of the line."""
        return self.start + len(self.data) + self.lost


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
    at = begun = start
    while at < end:
        data = read(fd, min(LARGEST_BLOCK, end - at), at)
        cut = data.rfind(b"\n") + 1
        if cut:
            for line in split(b"".join((*open_line, data[:cut])), begun, number):
                yield line
                number += 1
            open_line, begun = [data[cut:]], at + cut
        elif _blank(data):
            head = b"".join(open_line).rstrip(b"\0")
            if head:
                yield Line(number, begun, head)
            begun, at = begun + len(head), _blank_until(fd, at, end)
            yield Line(number, begun, b"", at - begun, nul=True)
            open_line, begun = [], at
            continue
        elif at + len(data) - begun > LONGEST:
            open_line, at = [], _newline_from(fd, at, end)
            yield Line(number, begun, b"", at - begun)
            begun = at
            continue
        else:
            open_line.append(data)
        at += len(data)
    yield from split(b"".join(open_line), begun, number)


def backward(fd: int, end: int, low: int = 0) -> Iterator[Line]:
    """The non-empty lines that begin at `low` or later, last first; their numbers are unknown (0)."""
    size = FIRST_BLOCK
    later: list[bytes] = []  # parts of a line whose begin is not read yet, last part first
    at = end
    while at > low:
        size, begin = min(size * 2, LARGEST_BLOCK), max(low, at - size)
        block = read(fd, at - begin, begin)
        pieces = block.split(b"\n")
        if len(pieces) == 1 and (lost := _lost(fd, low, begin, block, later)) is not None:
            yield from lost
            later, at = [], lost[-1].start
            continue
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


# --- what is passed over --------------------------------------------------------------------------


def _blank(data: bytes) -> bool:
    return len(data) >= BLANK and not data.strip(b"\0")


def _blank_until(fd: int, at: int, end: int) -> int:
    """Where the NUL run that begins at `at` ends."""
    while at < end:
        data = read(fd, min(LARGEST_BLOCK, end - at), at)
        if text := data.lstrip(b"\0"):
            return at + len(data) - len(text)
        at += len(data)
    return at


def _newline_from(fd: int, at: int, end: int) -> int:
    """Where the next newline at `at` or behind it stands, else the end."""
    while at < end:
        data = read(fd, min(LARGEST_BLOCK, end - at), at)
        if (place := data.find(b"\n")) >= 0:
            return at + place
        at += len(data)
    return at


def _lost(fd: int, low: int, begin: int, block: bytes, later: list[bytes]) -> list[Line] | None:
    """A block without a newline as lines, last first, if what it belongs to is not kept."""
    end = begin + len(block) + sum(map(len, later))
    if _blank(block):
        text = b"".join(reversed(later)).lstrip(b"\0")
        end -= len(text)
        begin = _edge(fd, low, begin, blank=True)
        told = [Line(0, end, text.removesuffix(b"\r"))] if text else []
        return [*told, Line(0, begin, b"", end - begin, nul=True)]
    if end - begin > LONGEST:
        begin = _edge(fd, low, begin, blank=False)
        return [Line(0, begin, b"", end - begin)]
    return None


def _edge(fd: int, low: int, at: int, *, blank: bool) -> int:
    """Where the NUL run, or the line, that reaches up to `at` begins."""
    while at > low:
        begin = max(low, at - LARGEST_BLOCK)
        data = read(fd, at - begin, begin)
        kept = len(data.rstrip(b"\0")) if blank else data.rfind(b"\n") + 1
        if kept:
            return begin + kept
        at = begin
    return at

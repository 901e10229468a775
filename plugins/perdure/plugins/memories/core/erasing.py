"""A note without what says a text: its sentences go, of lists, tables and code the lines. Pure."""

from __future__ import annotations

import re
from bisect import bisect_right
from itertools import zip_longest

from perdure.errors import UsageError

SHORTEST = 3
"""Letters that a text must have, one less beyond ASCII: a shorter one would take half of all notes."""
_ENDS = re.compile(r"(?<=[.!?])[ \t]+|(?<=[。！？])|\n(?![a-z])")
"""Behind a sentence; at a line's end, unless the next line only goes on with the sentence."""
_ALONE = re.compile(r"^(?:\s{0,3}#{1,6}\s|\s*\|).*\n", re.MULTILINE)
"""A heading and the row of a table, which no line goes on with."""
_FENCE = re.compile(r"^\s{0,3}(?:```|~~~)", re.MULTILINE)
_LINE = re.compile(r"\n")
_BARE = re.compile(r"\s*(?:[-*+]|\d+[.)]|#{1,6})?\s*(?:\[[ xX]\])?\s*$")


def wanted(text: str) -> re.Pattern[str]:
    """What finds the text, whatever its case and white space. Raises `UsageError` if it says too little."""
    words = text.split()
    letters = "".join(words)
    if len(letters) < (SHORTEST if letters.isascii() else SHORTEST - 1):
        raise UsageError(
            f"{letters!r} is too short to be forgotten everywhere: name more of it, or its place"
        )
    return re.compile(r"\s+".join(map(re.escape, words)), re.IGNORECASE)


def without(text: str, what: re.Pattern[str]) -> tuple[str, tuple[int, ...]]:
    """The text without what matches, and the lines (of the text as it was) that lost something."""
    gone = _gone(text, what)
    if not gone:
        return text, ()
    kept: list[str] = []
    lost: list[int] = []
    begin = 0
    for number, line in enumerate(text.split("\n"), 1):
        end = begin + len(line)
        here = [(max(start, begin), min(stop, end)) for start, stop in gone if start < end and stop > begin]
        rest = _rest(text, begin, end, here)
        if here:
            lost.append(number)
        if not here or not _BARE.match(rest):
            kept.append(rest.rstrip() if here else line)
        begin = end + 1
    left, _ = without("\n".join(kept), what)  # nothing may come together anew
    return left, tuple(lost)


def lines_without(data: bytes, first: int, last: int) -> bytes:
    """The bytes of a note without these lines, from 1."""
    lines = data.split(b"\n")
    return b"\n".join((*lines[: first - 1], *lines[last:]))


def _gone(text: str, what: re.Pattern[str]) -> list[tuple[int, int]]:
    """The spans that hold a match, or a part of one; each once, in order."""
    found = [match.span() for match in what.finditer(text)]
    if not found:
        return []
    borders = _borders(text)
    gone: dict[tuple[int, int], None] = {}
    for start, stop in found:
        at = bisect_right(borders, start) - 1
        while at < len(borders) - 1 and borders[at] < stop:
            gone[borders[at], borders[at + 1]] = None
            at += 1
    return list(gone)


def _borders(text: str) -> list[int]:
    """Where a part begins that goes or stays as a whole, and the end. In code each line stands for itself."""
    fences = [found.start() for found in _FENCE.finditer(text)]
    borders = {0, len(text)}
    for ends in (_ENDS, _ALONE):
        borders.update(found.end() for found in ends.finditer(text))
    for start, stop in zip_longest(fences[::2], fences[1::2], fillvalue=len(text)):
        borders.update(start + found.end() for found in _LINE.finditer(text[start:stop]))
    return sorted(borders)


def _rest(text: str, begin: int, end: int, gone: list[tuple[int, int]]) -> str:
    kept: list[str] = []
    for start, stop in gone:
        kept.append(text[begin:start])
        begin = max(begin, stop)
    return "".join((*kept, text[begin:end]))

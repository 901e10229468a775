"""Cutting a text into pieces that are searched and shown one by one: pure, linear, whole lines where it can.

A piece ends where the text does: before a heading, behind a blank line whose next line is not indented (so
a function stays whole), at a line's end, behind a sentence of any script, and only then inside one, never
inside a visible character. The end of a piece is repeated at the beginning of the next.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from perdure.context.text.graphemes import cut_before
from perdure.contracts import Trust
from perdure.plugins.search.terms import JOINED
from perdure.records import Record

TOKENS, OVERLAP = 400, 80


class Piece(Record):
    """A part of a source, as it is stored. `start`, `end`: its lines, from 1; `at`: when it was said, in
    milliseconds since 1970, 0 where nobody knows; `entries`: of the session that it came from; `context`:
    what it stands under, searched with it and never shown; `states`: what it says about what, as pairs of a
    subject and a text that only its owner reads (see `Store.stated`).
    """

    text: str
    start: int = 1
    end: int = 1
    trust: Trust = "agent"
    entries: tuple[str, ...] = ()
    at: int = 0
    context: str = ""
    states: tuple[tuple[str, str], ...] = ()

    def searched(self) -> str:
        """The text that is indexed."""
        return f"{self.context}\n{self.text}" if self.context else self.text


class _Unit(NamedTuple):
    """What is never cut. `quarters`: its size in quarters of a token; `border`: how good a place for an end
    is just before it, 0 … 3.
    """

    begin: int
    end: int
    line: int
    quarters: int
    border: int


_SENTENCE = re.compile(r"[^.!?。！？；…\n]+(?:[.!?](?=\s)|[.!?]+$|[。！？；…]+[」』”’)）]*)?\s*|\S\s*")
_JOINED_CHARS = re.compile(f"[{JOINED}]")
_FENCE = re.compile(r"\s{0,3}(```|~~~)")
_HEADING = re.compile(r"#{1,6}\s")


def cut(text: str, *, tokens: int = TOKENS, overlap: int = OVERLAP) -> tuple[Piece, ...]:
    """Pieces of at most `tokens` (a quarter for a letter, one for a character of a script without spaces),
    each but the first beginning with up to `overlap` tokens of the one before. Blank text has none.
    """
    most, again = 4 * tokens, 4 * min(overlap, tokens // 2)
    units = list(_units(text, most))
    spans = list(_spans(units, most, again))
    pieces = (_piece(text, units[first:last]) for first, last in spans)
    return tuple(piece for piece in pieces if piece.text)


def quarters(text: str) -> int:
    """How large a text is, in quarters of a token."""
    if text.isascii():
        return len(text)
    return len(text) + 3 * len(_JOINED_CHARS.findall(text))


def _piece(text: str, units: Sequence[_Unit]) -> Piece:
    whole = text[units[0].begin : units[-1].end]
    body = whole.lstrip("\r\n")
    start = units[0].line + whole.count("\n", 0, len(whole) - len(body))
    body = body.rstrip()
    return Piece(body, start, start + body.count("\n"))


def _spans(units: Sequence[_Unit], most: int, again: int) -> Iterator[tuple[int, int]]:
    first = 0
    while first < len(units):
        last, size = first, 0
        while last < len(units) and (size + units[last].quarters <= most or last == first):
            size += units[last].quarters
            last += 1
        if last < len(units):
            last = _best_end(units, first, last, most)
        yield first, last
        if last >= len(units):
            return
        first = _repeated(units, first, last, again)


def _best_end(units: Sequence[_Unit], first: int, last: int, most: int) -> int:
    """The best border in the second half; of equal ones the last."""
    best, size = last, sum(unit.quarters for unit in units[first:last])
    for at in range(last, first, -1):
        if size < most // 2:
            break
        if units[at].border > units[best].border:
            best = at
        size -= units[at - 1].quarters
    return best


def _repeated(units: Sequence[_Unit], first: int, last: int, again: int) -> int:
    """Where the next piece begins: a heading begins afresh."""
    if units[last].border == 3:
        return last
    begin, size = last, 0
    while begin - 1 > first and size + units[begin - 1].quarters <= again:
        begin -= 1
        size += units[begin].quarters
    return begin


def _units(text: str, most: int) -> Iterator[_Unit]:
    begin, line, fenced, blank = 0, 1, False, True
    while begin < len(text):
        end = text.find("\n", begin) + 1 or len(text)
        content = text[begin:end]
        border = _border(content, fenced=fenced, after_blank=blank)
        fenced ^= _FENCE.match(content) is not None
        for start, stop in _parts(content, most):
            part = content[start:stop]
            yield _Unit(begin + start, begin + stop, line, quarters(part), border if not start else 0)
        blank = not content.strip()
        begin, line = end, line + 1


def _border(line: str, *, fenced: bool, after_blank: bool) -> int:
    if not fenced and _HEADING.match(line):
        return 3
    return 2 if after_blank and not line[:1].isspace() else 1


def _parts(line: str, most: int) -> Iterator[tuple[int, int]]:
    """A line whole; a long one by its sentences; a long sentence by characters."""
    if quarters(line) <= most // 2:
        yield 0, len(line)
        return
    for found in _SENTENCE.finditer(line):
        start, stop = found.span()
        while start < stop:
            whole = stop - start <= most and quarters(line[start:stop]) <= most
            end = stop if whole else _fitting(line, start, stop, most)
            yield start, end
            start = end


def _fitting(line: str, start: int, stop: int, most: int) -> int:
    """The end of the first part of a sentence that has no end of its own: at a space, where there is one."""
    end = start + most
    part = line[start : min(stop, end)]
    while quarters(part) > most:
        part = part[: max(1, len(part) * most // quarters(part) - 1)]
    space = part.rfind(" ", len(part) // 2)
    end = start + (space + 1 if space > 0 else len(part))
    return max(cut_before(line, end), start + 1) if end < stop else stop

"""Regular expressions that can't hang: SQLite's own, an automaton that takes each character once.

The interpreter's own engine backtracks, holds its lock meanwhile, and can't be stopped in a thread. Here the
work is characters times states, both bounded: what a search may cost is counted beforehand.
"""

from __future__ import annotations

import re

import apsw
import apsw.sqlite_extra

from perdure.edges.sqlite import storable

PATTERN_CHARS = 300
MOST_STATES = 2_000  # a character costs as many steps at most
LINE_CHARS, OVERLAP = 2_000, 200
_UNSUPPORTED = re.compile(r"\(\?(?!:)|\\[1-9]")
_REPEAT = re.compile(r"\{(\d{1,4})(?:,(\d{0,4}))?\}")


class BadPattern(ValueError):
    """The pattern is none, or asks for what an automaton has not; the text says which."""


class Pattern:
    """A compiled pattern, for one thread at a time. Raises `BadPattern`."""

    def __init__(self, source: str, *, ignore_case: bool) -> None:
        if source.startswith("(?i)"):
            source, ignore_case = source[4:], True
        if len(source) > PATTERN_CHARS:
            raise BadPattern(f"longer than {PATTERN_CHARS} characters")
        if _UNSUPPORTED.search(source):
            raise BadPattern("groups like (?=…) and references like \\1 are not supported here")
        self._source = storable(source.replace("(?:", "("))
        if len(source) * _repeats(source) > MOST_STATES:
            raise BadPattern("its counted repeats are too many")
        self._db = _connection()
        self._sql = f"select {'regexpi' if ignore_case else 'regexp'}(?, ?)"
        self._matches("")

    def lines(self, text: str) -> list[tuple[int, str]]:
        """(line number, line) of the lines that match; a long one is looked at in pieces."""
        found = []
        for number, line in enumerate(text.splitlines(), 1):
            for start in range(0, max(1, len(line)), LINE_CHARS - OVERLAP):
                piece = line[start : start + LINE_CHARS]
                if self._matches(piece):
                    found.append((number, piece))
                    break
        return found

    def _matches(self, text: str) -> bool:
        try:
            return bool(self._db.execute(self._sql, (self._source, text)).get)
        except apsw.SQLError as error:
            raise BadPattern(str(error)) from None


def _repeats(source: str) -> int:
    """By how much counted repeats multiply a pattern, at most."""
    total = 1
    for low, high in _REPEAT.findall(source):
        total *= max(1, int(high or low))
    return total


def _connection() -> apsw.Connection:
    db = apsw.Connection(":memory:")
    apsw.sqlite_extra.load(db, "regexp")
    return db

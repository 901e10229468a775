"""Lines of the two files: merged with what somebody else wrote, compared, found, forgotten. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from hashlib import blake2b

from perdure.context.prompt.knowledge import Passage, rank, words
from perdure.plugins.memories.saying import folded, says
from perdure.records import Record

KEPT_SHARE = 0.6
QUERY_CHARS = 4_000
_MARK = re.compile(r" <!-- (m[0-9a-f]{16}) -->$")


UNTRUSTED = " [untrusted]"
"""Stands behind a line of MEMORY.md that came from tools, the web or others: the file is shown in prompts."""


class Line(Record):
    """One line that says something: its file, its number from 1, its text, and the mark of its
    consolidation.
    """

    path: str
    number: int
    text: str
    mark: str = ""
    untrusted: bool = False

    @property
    def source(self) -> str:
        return f"{self.path}#L{self.number}"


def merge(base: str, ours: str, theirs: str) -> str:
    """Our change of `base`, made to what others have written meanwhile; nothing of theirs is lost.

    Lines that we took away go only where they are unchanged; lines that we added and they lack come
    behind the line that they follow in ours, else at the end.
    """
    if theirs == base:
        return ours
    before, wanted, rows = Counter(base.splitlines()), ours.splitlines(), theirs.splitlines()
    removed = before - Counter(wanted)
    result = [row for row in rows if not (row.strip() and _take(removed, row))]
    fresh = Counter(wanted) - before
    previous = ""
    for row in wanted:
        if row.strip() and _take(fresh, row) and row not in result:
            at = result.index(previous) + 1 if previous in result else len(result)
            result.insert(at, row)
        previous = row if row.strip() else previous
    return "\n".join(result) + "\n" if result else ""


def lost(old: str, new: str) -> tuple[int, int]:
    """How many lines of the old text the new one no longer says in any words, and of how many."""
    said = set(words(folded(new)))
    entries = [set(words(folded(row))) for row in old.splitlines() if row.strip() and row.lstrip()[0] != "#"]
    entries = [entry for entry in entries if entry]
    return sum(len(entry & said) < KEPT_SHARE * len(entry) for entry in entries), len(entries)


def digest(row: str) -> str:
    """What a line is known by, wherever it stands, and marked or not."""
    return blake2b(" ".join(unmarked(row).split()).encode("utf-8", "replace"), digest_size=12).hexdigest()


def unmarked(row: str) -> str:
    """The line without the mark of the untrusted."""
    return row.rstrip().removesuffix(UNTRUSTED)


def marked(text: str, untrusted: Callable[[str], bool]) -> str:
    """The text with the mark behind each line that says something and is untrusted by its digest."""
    rows = [
        unmarked(row) + UNTRUSTED if unmarked(row).strip("#-* \t") and untrusted(digest(row)) else row
        for row in text.splitlines()
    ]
    return "\n".join(rows) + "\n" if rows else ""


def split(path: str, text: str, first: int = 1) -> list[Line]:
    """The lines that say something."""
    found = []
    for number, row in enumerate(text.splitlines(), first):
        mark = _MARK.search(row)
        whole = row[: mark.start()] if mark else row
        shown = unmarked(whole).strip()
        if shown.strip("#-* "):
            found.append(Line(path, number, shown, mark[1] if mark else "", shown != whole.strip()))
    return found


def search(lines: list[Line], query: str, limit: int) -> list[tuple[Line, float]]:
    """Lines that share words with the query, best first, with the share of its words that they hold."""
    query = folded(query[:QUERY_CHARS])
    wanted = set(words(query))
    if not wanted:
        return []
    held = [(line, wanted & set(words(folded(line.text)))) for line in lines]
    fitting = [(line, len(found) / len(wanted)) for line, found in held if found]
    order = rank([Passage(line.path, n, folded(line.text)) for n, (line, _) in enumerate(fitting)], query)
    return [fitting[n] for n in order[:limit]]


def without(path: str, text: str, unwanted: str) -> tuple[str, int]:
    """A file's text without the lines that say something, or without the line `path#L7`; and how many
    went.
    """
    rows = text.splitlines(keepends=True)
    kept = [row for n, row in enumerate(rows, 1) if unwanted != f"{path}#L{n}" and not says(row, unwanted)]
    return "".join(kept), len(rows) - len(kept)


def _take(counted: Counter[str], row: str) -> bool:
    if counted[row] <= 0:
        return False
    counted[row] -= 1
    return True

"""The entries of a session's branch that its view leaves out: what compactions cover, and what says nothing.

Heads only. Small files are read whole, exactly; of gigantic ones only the newest part before the view.
"""

from __future__ import annotations

from perdure.context.truncation.dag import Node, cover, kept_range
from perdure.edges.session.facts import Opened
from perdure.edges.session.header import File, reading
from perdure.edges.session.heads import heads
from perdure.edges.session.load import load
from perdure.edges.session.scan import backward
from perdure.records import LedgerLine

MOST_LISTED = 10_000
SMALL_FILE = 64 * 1024 * 1024  # read whole in about two seconds
MOST_READ = 64 * 1024 * 1024  # of a larger one, so many bytes before the view


def covered(opened: Opened) -> tuple[list[LedgerLine], int | None]:
    """A line for each covered entry, oldest first, and how many there are (`None`: not known).

    At most `MOST_LISTED`, the newest; a line without an entry says how many are not listed.
    """
    if opened.compaction is None:
        return [], 0
    branch, whole = _branch(opened)
    by = cover(branch)[: kept_range(branch)[1]]
    lines = [
        _line(node.id, first, opened.compaction) for node, first in zip(branch, by, strict=False) if first
    ]
    total = len(lines) if whole else None
    if len(lines) <= MOST_LISTED and whole:
        return lines, total
    shown = lines[-MOST_LISTED:]
    rest = f"{len(lines) - len(shown):,} older entries" if whole else "older entries (not read)"
    return [LedgerLine("", "covered", f"compaction: {rest} are covered too"), *shown], total


def _line(entry: str, by: str, latest: str) -> LedgerLine:
    then = "" if by == latest else f", whose summary compaction {latest} covers in turn"
    return LedgerLine(entry, "covered", f"compaction: summarised by {by}{then}")


def _branch(opened: Opened) -> tuple[list[Node], bool]:
    """The branch from its root (or as far back as was read) to the latest compaction, and if it is whole."""
    if opened.size <= SMALL_FILE or opened.version < 2:
        return list(load(opened.path).branch()), True
    with reading(opened.path) as file:
        return _newest(file, opened)


def _newest(file: File, opened: Opened) -> tuple[list[Node], bool]:
    """The branch by its own links, last first; entries whose parent stands later in the file end it."""
    ends = {entry.id: entry for entry in opened.entries}
    path: list[Node] = []
    want = opened.leaf
    for line in backward(file.fd, opened.size):
        for node in reversed(heads(line)[0]):
            if node.id == want:
                path.append(node)
                want = node.parent
        before = not ends or line.start < opened.entries[0].start
        if not want or (before and len(path) > MOST_LISTED + len(ends)):
            break
        if before and opened.entries[0].start - line.start > MOST_READ:
            break
    return path[::-1], not want

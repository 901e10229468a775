"""Keeping and discarding segments. A discard is for good: it is noted in the session file first."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from perdure.edges import segments
from perdure.edges.session import lines, past
from perdure.edges.session.files import Held
from perdure.edges.session.load import load
from perdure.edges.session.tail import open_session
from perdure.errors import UnreadableFile
from perdure.records import Record


class Kept(Record):
    """A segment beside a session file: its entries (`None`: damaged), their bytes, bytes on disk."""

    name: str
    entries: int | None
    raw_bytes: int
    bytes: int


def kept(path: Path) -> tuple[Kept, ...]:
    """The segments of a session file, oldest first. Changes nothing."""
    return tuple(map(_kept, segments.segments_of(path)))


def _kept(place: Path) -> Kept:
    size = place.stat().st_size
    try:
        entries = segments.Segment(place).index.entries
    except (UnreadableFile, OSError):
        return Kept(place.name, None, 0, size)
    return Kept(place.name, len(entries), sum(entry.length for entry in entries), size)


def discard(held: Held, doomed: Sequence[Kept], now_ms: int) -> int:
    """Delete segments for good; how many bytes that freed.

    Each is noted before it goes: a kill between the two leaves one that the next discard takes. Raises
    what an append raises.
    """
    loaded = load(held.file.path)
    told = {mark.segment for mark in past.marks(held.file.path, loaded.nodes, loaded.raw) if mark.discarded}
    epoch, freed = held.file.epoch, 0
    for segment in doomed:
        if segment.name not in told:
            id, count = held.ids.entry(now_ms), segment.entries or 0
            row = lines.discarded_line(id, held.opened.leaf, now_ms, epoch, segment.name, count)
            held.file.append((row,))
        freed += segments.discard(held.file.path, segment.name)
    held.opened = open_session(held.file.path)
    return freed

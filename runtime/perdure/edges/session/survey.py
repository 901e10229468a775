"""Reads a session file and its segments whole, for an index that has to be built again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from perdure.edges.index import Row
from perdure.edges.schedule import due_of
from perdure.edges.segments import Segment, segments_of
from perdure.edges.session import own
from perdure.edges.session.decode import decode_entry
from perdure.edges.session.facts import Opened, Seen
from perdure.edges.session.files import Listed
from perdure.edges.session.header import newer
from perdure.edges.session.load import load
from perdure.errors import ConfigError, UnreadableFile
from perdure.records import Assistant, ToolResult, User


def survey(listed: Listed) -> Row:
    """The index row of a file. Blocking. Raises `UnreadableFile`, for one of a newer version, too."""
    found = load(listed.path)
    if wrong := newer(found.header.version):
        raise UnreadableFile(f"{listed.path}: {wrong}")
    opened = found.opened()
    return Row(
        listed.key or "",
        listed.path,
        listed.size,
        listed.mtime_ns,
        entries=found.count,
        updated=listed.mtime_ns // 1_000_000,
        open_turn=open_turn(opened),
        name=opened.name,
        pending=len(opened.pending) + sum(each.under_way for each in opened.outgoing) + opened.relatives.owes,
        next_timer=next_timer(opened),
    )


def next_timer(opened: Opened) -> int | None:
    """When the earliest timer comes, as far as the file tells it without a clock."""
    found: list[int] = [0] if opened.relatives.owes else []  # who reads files looks at them at once
    for timer in opened.timers:
        try:
            due = due_of(timer, timer.due)
        except ConfigError:  # no time zones here: whoever wakes it will say so
            due = timer.due
        found += [] if due is None else [due]
    return min(found, default=None)


def open_turn(opened: Opened) -> bool:
    """Whether the last message waits for an answer: a turn was interrupted there."""
    last = opened.items[-1].message if opened.items else None
    if isinstance(last, Assistant):
        return last.stop == "toolUse"
    return isinstance(last, User | ToolResult)


def letters(path: Path) -> Iterator[Seen]:
    """Every message id that became an entry of this file, those in segments included, oldest first."""
    for segment in segments_of(path):
        for moved in Segment(segment).entries():
            yield from _seen(moved.id, moved.raw)
    for node, raw in load(path).entries():
        if node.type == "message" and node.epoch >= 0:
            yield from _seen(node.id, raw)


def _seen(id: str, raw: bytes) -> Iterator[Seen]:
    entry = decode_entry(raw)
    facts = own.facts_of(entry) if entry.type == "message" else None
    if facts is not None and facts.origin is not None:
        yield Seen(facts.origin.sender, facts.origin.mid, id)

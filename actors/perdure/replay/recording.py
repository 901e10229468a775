"""A recording in one shape, whatever program wrote it: what happened, when, and what was left out."""

from __future__ import annotations

from collections import Counter
from typing import Literal

from perdure.records import Message, Record

UNREADABLE = "unreadable lines"


class Change(Record):
    """From here the session ran with another model (`provider/id`) or thinking level."""

    kind: Literal["model", "thinking"]
    value: str


class Event(Record):
    """One thing that happened; `time` is when it was complete, epoch ms (0: not told)."""

    time: int
    what: Message | Change


class Lost(Record):
    """So many of these did not come through."""

    what: str
    count: int


class Recording(Record):
    """`entries` counts the file's records without headers; `events` are the live branch in order.

    `joined` is by how many more records than events the events were made of.
    """

    format: str
    events: tuple[Event, ...]
    entries: int
    lost: tuple[Lost, ...] = ()
    cwd: str = ""
    start: int = 0
    window: int = 0
    joined: int = 0


def counted(losses: Counter[str]) -> tuple[Lost, ...]:
    """The counter's rows, most first, ties by name."""
    rows = sorted(losses.items(), key=lambda row: (-row[1], row[0]))
    return tuple(Lost(what, count) for what, count in rows if count)

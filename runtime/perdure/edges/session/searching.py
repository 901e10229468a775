"""Finds a text in whole sessions, segments included, line by line: memory is that of the longest line.

Only what somebody said is looked at: messages, summaries, letters that wait. Case is ignored.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from perdure.context.text.secrets import redact
from perdure.edges import segments
from perdure.edges.session.decode import decode_entry
from perdure.edges.session.heads import heads
from perdure.edges.session.history import said, shown
from perdure.edges.session.own import inbox_of
from perdure.edges.session.scan import Line, forward
from perdure.records import Record, User

SNIPPET: Final = 160  # characters around the place
_SPEAKING: Final = frozenset({"message", "compaction", "branch_summary", "custom_message"})
_PLAIN: Final = re.compile(r"[a-z0-9 _.:,=+-]+")  # stands in JSON as it is, in every program's


class Hit(Record):
    """One entry that holds the text. `secret`: the snippet holds what looks like a key or a password."""

    entry: str
    file: str
    segment: str
    who: str
    timestamp: str
    snippet: str
    secret: bool


class Sought:
    """A text to look for."""

    def __init__(self, text: str) -> None:
        self.text = text.casefold()
        plain = max(_PLAIN.findall(self.text), key=len, default="")
        self._plain = plain.encode()

    def maybe(self, raw: bytes) -> bool:
        """False only where the record can't hold it; costs no decoding."""
        return self._plain in raw.lower()

    def at(self, text: str) -> int:
        """Where it stands, -1 where it doesn't."""
        return text.casefold().find(self.text)


def search(path: Path, sought: Sought, most: int) -> tuple[list[Hit], int]:
    """The newest `most` hits of one session file and its segments, newest first; and how many there are.

    Raises `UnreadableFile`, `OSError` for what can't be read.
    """
    latest: deque[Hit] = deque(maxlen=most)
    count, told = 0, set[str]()
    for segment, line in _records(path):
        hit = _hit(path, segment, line, sought)
        if hit is not None and hit.entry not in told:
            count += 1
            told.add(hit.entry)
            latest.append(hit)
    return list(reversed(latest)), count


def _records(path: Path) -> Iterator[tuple[str, Line]]:
    for place in segments.segments_of(path):
        for moved in segments.Segment(place).entries():
            yield place.name, Line(0, 0, moved.raw)
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        for line in forward(fd, 0, os.fstat(fd).st_size):
            yield "", line
    finally:
        os.close(fd)


def _hit(path: Path, segment: str, line: Line, sought: Sought) -> Hit | None:
    if not line.data or not sought.maybe(line.data):
        return None
    for node in heads(line)[0]:
        raw = line.data[node.start - line.start : node.end - line.start]
        text = _text(node.type, node.custom, raw)
        at = sought.at(text)
        if at >= 0:
            who, _, _ = text.partition(": ")
            snippet = _around(text, at, len(sought.text))
            secret = redact(snippet) != snippet
            stamp = decode_entry(raw).timestamp
            when = stamp if isinstance(stamp, str) else ""
            return Hit(node.id, os.fspath(path), segment, who, when, snippet, secret)
    return None


def _text(type: str, custom: str, raw: bytes) -> str:
    if type in _SPEAKING:
        return shown(raw)
    if custom != "perdure.inbox":
        return ""
    found = inbox_of(decode_entry(raw))
    return said(User(found[1].content)) if found is not None else ""


def _around(text: str, at: int, length: int) -> str:
    start = max(0, at - max(0, SNIPPET - length) // 2)
    piece = " ".join(text[start : start + max(SNIPPET, length)].split())
    return f"{'…' if start else ''}{piece}{'…' if start + SNIPPET < len(text) else ''}"

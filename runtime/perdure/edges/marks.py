"""How far something has come in each session, as lines of JSON: the last line of a session counts.

Beside the session files, under the ids of their headers: no part of a conversation, and nothing in it says
what was spoken of. Losing the file costs work done twice, never a message.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import msgspec

from perdure.edges import disk

GROWN = 4 * 1024 * 1024  # bytes; then only the last line of each session stays
MOST = 20_000  # sessions that stay then, the latest
REMEMBERED = 1_024  # sessions whose line is in memory


class Mark(Protocol):
    """A record with the id of its session."""

    @property
    def session(self) -> str: ...


M = TypeVar("M", bound=Mark)


class Marks(Generic[M]):
    """The lines of one file. Blocks: `last` reads the file where the line is not in memory, `put` appends."""

    def __init__(self, path: Path, kind: type[M], *, grown: int = GROWN, most: int = MOST) -> None:
        self.path, self._kind, self._grown, self._most = path, kind, grown, most
        self._known: OrderedDict[str, M | None] = OrderedDict()

    def last(self, session: str) -> M | None:
        """The latest of the session; damaged lines are skipped."""
        if session not in self._known:
            self._remember(session, self._found().get(session))
        return self._known[session]

    def put(self, mark: M) -> None:
        """Add one in one write. Raises `OSError`: then it counts in memory only."""
        self._remember(mark.session, mark)
        fd = disk.open_(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW)
        try:
            size = os.fstat(fd).st_size
            torn = size and os.pread(fd, 1, size - 1) != b"\n"
            line = msgspec.json.encode(mark) + b"\n"
            disk.write_all(fd, b"\n" + line if torn else line, self.path)
        finally:
            os.close(fd)
        if size > self._grown:
            self._shrink()

    def _found(self) -> dict[str, M]:
        try:
            rows = self.path.read_bytes().split(b"\n")
        except OSError:
            return {}
        found: dict[str, M] = {}
        for row in filter(None, rows):
            try:
                mark = msgspec.json.decode(row, type=self._kind)
            except (msgspec.MsgspecError, UnicodeDecodeError):
                continue
            found.pop(mark.session, None)  # the order is that of the last lines
            found[mark.session] = mark
        return found

    def _shrink(self) -> None:
        kept = list(self._found().values())[-self._most :]
        new = self.path.with_suffix(".new")
        new.unlink(missing_ok=True)
        fd = disk.open_(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW)
        try:
            disk.write_all(fd, b"".join(msgspec.json.encode(mark) + b"\n" for mark in kept), new)
            disk.fsync(fd, new)
        finally:
            os.close(fd)
        disk.rename(new, self.path)

    def _remember(self, session: str, mark: M | None) -> None:
        self._known[session] = mark
        self._known.move_to_end(session)
        while len(self._known) > REMEMBERED:
            self._known.popitem(last=False)

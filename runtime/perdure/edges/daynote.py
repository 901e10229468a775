"""The day's note of a workspace, `memory/YYYY-MM-DD.md`: text is appended, nothing in it is ever changed.

There is no other way in: the name is made from the date, no link is followed, bytes go behind the file's
end in one `O_APPEND` write (so that two writers lose nothing of each other), and are durable before it is
said that they are there. A text that a session has noted already is not noted again: a flush that a crash
cut off is made anew, and may say the same.

A text can't end its own part of the note, say whose it is or replace what others said: comments, which say
such things (`<!-- from: … -->`, `<!-- supersedes: … -->`), are broken in it so that it shows.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

from perdure.contracts.memories import Trust
from perdure.edges import disk
from perdure.edges.tools.confine import folder
from perdure.records import Record

FOLDER = "memory"
ORIGIN = re.compile(rb"^<!-- from: (\S+)((?: \S+)*) trust: (\w+) -->\n", re.MULTILINE)
LOOKED_AT = 1024 * 1024  # newest bytes of a note that may hold the text already
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class Origin(Record):
    """Where a noted text comes from: a session (the id of its header), first and last entry, the trust."""

    session: str
    entries: tuple[str, ...] = ()
    trust: Trust = "agent"

    def line(self) -> str:
        """As it stands above the text in the note."""
        words = (_word(self.session), *map(_word, self.entries))
        return f"<!-- {' '.join(('from:', *words, 'trust:', self.trust))} -->"


def name_of(now_ms: int, days: int = 0) -> str:
    """The note of the day (UTC), or of so many days later."""
    day = datetime.fromtimestamp(now_ms / 1000, UTC) + timedelta(days=days)
    return f"{day:%Y-%m-%d}.md"


def append(root: Path, text: str, now_ms: int, origin: Origin | None = None, *, sync: bool = True) -> int:
    """Add `text` behind what the day's note holds; bytes written, 0 where the session noted it before.

    Raises `OSError`. After one, a part of the text may stand in the note.
    """
    body = plain(text).encode("utf-8", "replace") + b"\n"
    with folder(root, (FOLDER,), create=True) as parent:
        if origin is not None and any(
            _held(parent, name_of(now_ms, days), origin.session, body, sync=sync) for days in (0, -1)
        ):
            return 0
        name = name_of(now_ms)
        path = root / FOLDER / name
        disk.announce("open", path)
        fd = os.open(name, _FLAGS, 0o644, dir_fd=parent)
        try:
            size = _size(fd, path)
            above = f"{origin.line()}\n".encode() if origin is not None else b""
            data = (b"\n" if size else b"") + above + body
            disk.write_all(fd, data, path)
            if sync:
                disk.fsync(fd, path)
                if not size:
                    disk.fsync(parent, path.parent)
        finally:
            os.close(fd)
    return len(data)


def plain(text: str) -> str:
    """The text without comments, whose opening and closing are broken, and without NUL: that is no text."""
    return text.replace("\0", "\ufffd").replace("<!--", "<! --").replace("-->", "-- >")


def holds(note: bytes, session: str, body: bytes) -> bool:
    """Whether the session has noted that text there, whole."""
    who = _word(session).encode()
    return any(found[1] == who and note.startswith(body, found.end()) for found in ORIGIN.finditer(note))


def refusal(root: Path) -> str:
    """Why the workspace can't take a note, in words; empty if it can. Changes nothing."""
    if not root.is_dir():
        return "there is no workspace"
    inside = root / FOLDER
    if inside.is_symlink() or (inside.exists() and not inside.is_dir()):
        return f"{FOLDER} in the workspace is no folder"
    where = inside if inside.exists() else root
    return "" if os.access(where, os.W_OK | os.X_OK) else f"{where.name} can't be written"


def _word(id: str) -> str:
    """An id as one word of a comment: a file that was imported may say anything there."""
    return re.sub(r"[^\w.-]", "_", id) or "_"


def _size(fd: int, path: Path) -> int:
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
        raise OSError(errno.EMLINK, "not a file of its own, so it is not written to", str(path))
    return found.st_size


def _held(parent: int, name: str, session: str, body: bytes, *, sync: bool) -> bool:
    """Whether it is there, and durable by now: it may have been written by one who could not say so."""
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent)
    except OSError:
        return False
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            return False
        there = holds(os.pread(fd, LOOKED_AT, max(0, found.st_size - LOOKED_AT)), session, body)
        if there and sync:
            disk.fsync(fd, name)
        return there
    finally:
        os.close(fd)

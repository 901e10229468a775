"""The first line of a session file, and opening the file: one clear line for whatever is no session."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from perdure.edges.session import tolerant
from perdure.edges.session.scan import BOM, FIRST_BLOCK, LARGEST_BLOCK, read
from perdure.errors import UnreadableFile
from perdure.records import Record

NEWEST: Final = 3


class Header(Record):
    """What a session file says about itself (`version` 1: nothing). Entries begin at byte `end`."""

    id: str
    version: int = NEWEST
    cwd: str = ""
    parent_session: str | None = None
    timestamp: str = ""
    good: bool = True
    end: int = 0


def header_of(value: dict[str, Any], fallback_id: str = "") -> Header:
    """A header line as a record; `good` is false where other programs would not accept it."""
    named = value.get("id")
    good = value.get("type") == "session" and isinstance(named, str)
    version = value.get("version")
    if isinstance(version, str) and version.isdigit():
        version = int(version)
    texts = {name: value.get(name) for name in ("cwd", "parentSession", "timestamp")}
    cwd, parent, stamp = (text if isinstance(text, str) else None for text in texts.values())
    return Header(
        named if isinstance(named, str) else fallback_id if named is None else str(named),
        _number(version),
        cwd or "",
        parent,
        stamp or "",
        good,
    )


def _number(version: object) -> int:
    """Absent, zero or no number: version 1, which has none. What no integer holds is newer than any."""
    try:
        return int(version) if isinstance(version, int | float) and version else 1
    except (OverflowError, ValueError):
        return NEWEST + 1


def newer(version: int) -> str:
    """What to say of a version that only a newer program knows; "" for ours.

    The reference reads such a file as the newest version it knows, and so do commands that only look.
    But nobody here can judge it, and an append of ours might break it for the program that wrote it.
    """
    if version <= NEWEST:
        return ""
    return (
        f"version {version} of the session format: a newer program wrote it, this one knows versions 1 to "
        f"{NEWEST}; update perdure, or open it with the program that wrote it"
    )


def parse_header(data: bytes, fallback_id: str = "") -> Header | None:
    """The header in one line, `None` if the line is none."""
    try:
        value = tolerant.loads(data.removeprefix(BOM))
    except ValueError:
        return None
    if isinstance(value, dict) and value.get("type") == "session":
        return header_of(value, fallback_id)
    return None


def read_header(fd: int, size: int) -> Header | None:
    """The header if it is the first line that isn't blank; `None` leaves it to the full load."""
    at = 0
    for line in read(fd, min(size, FIRST_BLOCK), 0).split(b"\n"):
        at += len(line) + 1
        if line.removeprefix(BOM).strip():
            found = parse_header(line)
            return replace(found, end=at) if found is not None and found.good else None
    return None


class File(Record):
    """An open file: its descriptor, and what it was when opened."""

    fd: int
    path: str
    size: int
    inode: int


@contextmanager
def reading(path: str | PathLike[str]) -> Iterator[File]:
    """Open a file for reading. Raises `UnreadableFile` for what is missing, empty, or no file."""
    name = os.fspath(path)
    try:
        if not stat.S_ISREG(os.stat(name).st_mode):
            kind = "a folder" if os.path.isdir(name) else "not a regular file"
            raise UnreadableFile(f"{name}: {kind}, not a session file")
        fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise UnreadableFile(f"{name}: {_reason(error)}") from None
    try:
        status = os.fstat(fd)
        if not status.st_size:
            raise UnreadableFile(f"{name}: the file is empty, no session: delete it, or name another file")
        yield File(fd, name, status.st_size, status.st_ino)
    except OSError as error:
        raise UnreadableFile(f"{name}: {_reason(error)}") from error
    except UnreadableFile as error:
        if name in str(error):
            raise
        error.args = (f"{name}: {error}",)
        raise
    finally:
        os.close(fd)


def _reason(error: OSError) -> str:
    if error.errno == errno.ENOENT:
        return "there is no such file"
    if error.errno in {errno.EACCES, errno.EPERM}:
        return "no permission to read it"
    return f"can't be read ({error.strerror or error})"


def foreign(data: bytes) -> str | None:
    """Whose transcript a file is that is no session: judged by its first records."""
    for line in data[:LARGEST_BLOCK].split(b"\n")[:50]:
        try:
            value = msgspec.json.decode(line)
        except (msgspec.MsgspecError, RecursionError):
            continue
        if isinstance(value, dict) and (kind := _kind(value)):
            return kind
    return None


def _kind(value: dict[str, Any]) -> str | None:
    if value.get("_type") == "metadata" or ("role" in value and "type" not in value):
        return "nanobot"
    if "payload" in value and isinstance(value.get("type"), str):
        return "Codex"
    if "sessionId" in value and ("parentUuid" in value or "uuid" in value or "leafUuid" in value):
        return "Claude Code"
    return "Claude Code" if value.get("type") == "file-history-snapshot" else None

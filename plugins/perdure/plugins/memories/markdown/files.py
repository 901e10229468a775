"""The two files on disk: read whole, replaced whole, and a log that gets a whole line or none.

Paths stay inside the workspace whatever links stand in it. Every write goes through `edges.disk`. Blocks.
"""

from __future__ import annotations

import os
from pathlib import Path

from perdure.edges import disk
from perdure.edges.tools.confine import locate, read_whole
from perdure.errors import StorageFailed

MEMORY = "MEMORY.md"
HISTORY = "memory/HISTORY.md"
MAX_BYTES = 32 * 1024 * 1024


class Changed(StorageFailed):
    """Somebody else wrote the file meanwhile: read it again."""


class Unsynced(StorageFailed):
    """The new file is in its place, and the disk didn't confirm it."""


def path_of(root: Path, name: str) -> Path:
    """Where a file of the workspace really is. Raises `Refused` where a link leads out of it."""
    return Path(os.path.realpath(root)).joinpath(*locate(root, name))


def text_of(root: Path, name: str) -> str:
    """A file's text, "" where there is none. Raises `Refused`."""
    if not path_of(root, name).exists():
        return ""
    return read_whole(root, name, MAX_BYTES).decode("utf-8", "replace")


def tail_of(root: Path, name: str, most: int) -> tuple[str, int]:
    """The last whole lines of a file, about `most` bytes, and the number of the first of them."""
    data = text_of(root, name).encode()
    start = data.find(b"\n", len(data) - most) + 1 if len(data) > most else 0
    return data[start:].decode(), data.count(b"\n", 0, start) + 1


def replace(root: Path, name: str, text: str, expected: str, *, sync: bool) -> None:
    """Put a new text in the place of `expected`: all of it, or nothing. Raises `Changed`, `Unsynced`,
    `OSError`.
    """
    path = path_of(root, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    temp = path.with_name(f".{path.name}.perdure.tmp")
    disk.unlink(temp, missing_ok=True)  # of a process that is gone
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o644
    try:
        fd = disk.open_(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
        try:
            disk.write_all(fd, text.encode("utf-8", "replace"), temp)
            if sync:
                disk.fsync(fd, temp)
        finally:
            os.close(fd)
        if text_of(root, name) != expected:
            raise Changed(f"{path}: was written by somebody else meanwhile")
        disk.rename(temp, path)
    except Exception:
        temp.unlink(missing_ok=True)
        raise
    try:
        if sync:
            disk.sync_folder(path.parent)
    except OSError as error:
        raise Unsynced(f"{path}: {error.strerror}") from None


def size_of(root: Path, name: str) -> int:
    """Bytes of a file, 0 where there is none."""
    path = path_of(root, name)
    return path.stat().st_size if path.exists() else 0


def append(root: Path, name: str, line: str, size: int, *, sync: bool) -> None:
    """Put a line at the end of a log that had `size` bytes when this was planned; a second time changes
    nothing.

    A part of it, that an earlier try left behind, goes first. What fails is cut back. Raises `OSError`.
    """
    path, data = path_of(root, name), line.encode("utf-8", "replace")
    path.parent.mkdir(parents=True, exist_ok=True)
    fd = disk.open_(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o644)
    try:
        since = _read_from(fd, size)
        if data in since:
            return
        if since and data.startswith(since.removeprefix(b"\n")):
            disk.truncate(fd, size, path)
        end = os.fstat(fd).st_size
        between = b"\n" if end and os.pread(fd, 1, end - 1) != b"\n" else b""
        try:
            disk.write_all(fd, between + data, path)
            if sync:
                disk.fsync(fd, path)
        except Exception:
            disk.truncate(fd, end, path)
            raise
    finally:
        os.close(fd)


def take_back(root: Path, name: str, line: str, size: int) -> None:
    """Undo `append` where nothing came behind it."""
    path, data = path_of(root, name), line.encode("utf-8", "replace")
    if not path.exists():
        return
    fd = disk.open_(path, os.O_RDWR | os.O_NOFOLLOW)
    try:
        if _read_from(fd, size).removeprefix(b"\n") == data:
            disk.truncate(fd, size, path)
    finally:
        os.close(fd)


def _read_from(fd: int, start: int) -> bytes:
    found = bytearray()
    while piece := os.pread(fd, 1 << 20, start + len(found)):
        found += piece
    return bytes(found)

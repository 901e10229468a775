"""The files of a memory: `MEMORY.md` (or `memory.md`) and `memory/**/*.md` of a workspace, and nothing else.

Regular files of the workspace's own, reached without following any link; what is no such file is as good as
missing. All of it blocks.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from perdure.edges import disk
from perdure.edges.tools.confine import folder
from perdure.records import Record

FOLDER = "memory"
TOP = ("MEMORY.md", "memory.md")
MOST_BYTES = 4 * 1024 * 1024
"""Of one file: a larger one is no note, and is left out."""
MOST_FILES = 10_000
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Seen(Record):
    """A file as a walk sees it; times in nanoseconds."""

    path: str
    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int

    def stamp(self) -> str:
        """Another one: read the file again."""
        return f"{self.mtime_ns}:{self.ctime_ns}:{self.size}:{self.inode}"


def parts_of(path: str) -> tuple[str, ...] | None:
    """The components of a path that a memory may have; `None` for any other."""
    plain = path.removeprefix("./")
    if not plain or "\0" in plain or "\\" in plain or len(plain) > 1_000 or plain.startswith("/"):
        return None
    parts = tuple(plain.split("/"))
    if any(part in ("", ".", "..") for part in parts) or not _is_note(parts[-1]):
        return None
    return parts if parts in ((TOP[0],), (TOP[1],)) or (len(parts) > 1 and parts[0] == FOLDER) else None


def is_evergreen(path: str) -> bool:
    """Whether what a file says does not age: the curated one, and notes whose name is no day."""
    return day_of(path) == ""


def day_of(path: str) -> str:
    """The day of a daily note, `YYYY-MM-DD`; "" for other files."""
    name = path.rpartition("/")[2][:10]
    digits = name[:4] + name[5:7] + name[8:10]
    return (
        name
        if len(name) == 10 and digits.isdecimal() and digits.isascii() and name[4] + name[7] == "--"
        else ""
    )


def walk(root: Path) -> Iterator[Seen]:
    """The files there are, by path. A workspace that is not there has none. Raises `OSError`."""
    try:
        with folder(root, ()) as base:
            tops = [seen for name in TOP if (seen := _seen(name, name, base)) is not None]
            yield from tops[:1]  # on a file system that ignores case both are one
            yield from sorted(_below(FOLDER, base), key=lambda seen: seen.path)
    except (FileNotFoundError, NotADirectoryError):
        return


def _below(path: str, parent: int, depth: int = 0) -> list[Seen]:
    try:
        here = os.open(path.rsplit("/", 1)[-1], _FOLDER, dir_fd=parent)
    except OSError:
        return []  # none, a link, or a file
    found: list[Seen] = []
    try:
        for name in sorted(os.listdir(here)):
            inside = f"{path}/{name}"
            if _is_note(name) and (seen := _seen(inside, name, here)) is not None:
                found.append(seen)
            elif not name.startswith(".") and depth < 8:
                found += _below(inside, here, depth + 1)
            if len(found) >= MOST_FILES:
                break
    finally:
        os.close(here)
    return found


def _is_note(name: str) -> bool:
    return name.lower().endswith(".md") and not name.startswith(".") and _encodes(name)


def _encodes(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _seen(path: str, name: str, parent: int) -> Seen | None:
    try:
        found = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except OSError:
        return None
    fits = stat.S_ISREG(found.st_mode) and found.st_nlink == 1 and found.st_size <= MOST_BYTES
    return Seen(path, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino) if fits else None


def read(root: Path, path: str) -> bytes | None:
    """The bytes of a note; `None` where there is none of that path. Raises `OSError`."""
    parts = parts_of(path)
    if parts is None:
        return None
    try:
        with folder(root, parts[:-1]) as parent:
            if _seen(path, parts[-1], parent) is None:
                return None
            fd = os.open(parts[-1], _READ, dir_fd=parent)
            with os.fdopen(fd, "rb") as file:
                data = file.read(MOST_BYTES + 1)
                return data if len(data) <= MOST_BYTES and stat.S_ISREG(os.fstat(fd).st_mode) else None
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:  # a link
            return None
        raise


def rewrite(root: Path, path: str, change: Callable[[bytes], bytes]) -> None:
    """Put what `change` makes of a note in its place, whole or not at all, durable; nothing left: remove it.

    What another appends meanwhile is carried over. Raises `OSError`.
    """
    parts = parts_of(path)
    assert parts is not None
    with folder(root, parts[:-1]) as parent:
        old = os.open(parts[-1], _READ, dir_fd=parent)
        try:
            data = _all(old)
            _put(parent, parts[-1], root / path, change(data), stat.S_IMODE(os.fstat(old).st_mode))
            if late := os.pread(old, MOST_BYTES, len(data)):
                _append(parent, parts[-1], root / path, late)
        finally:
            os.close(old)
        disk.fsync(parent, (root / path).parent)


def _all(fd: int) -> bytes:
    data = bytearray()
    while part := os.pread(fd, 1 << 20, len(data)):
        data += part
    return bytes(data)


def _put(parent: int, name: str, path: Path, data: bytes, mode: int) -> None:
    if not data.strip():
        disk.announce("unlink", path)
        os.unlink(name, dir_fd=parent)
        return
    temp = f".{name[:100]}.perdure.tmp"
    disk.announce("open", path)
    fd = os.open(temp, _WRITE | os.O_TRUNC, mode, dir_fd=parent)
    try:
        try:
            disk.write_all(fd, data, path)
            os.fchmod(fd, mode)
            disk.fsync(fd, path)
        finally:
            os.close(fd)
        disk.announce("rename", path)
        os.replace(temp, name, src_dir_fd=parent, dst_dir_fd=parent)
    except BaseException:
        os.unlink(temp, dir_fd=parent)
        raise


def _append(parent: int, name: str, path: Path, data: bytes) -> None:
    fd = os.open(name, _WRITE | os.O_APPEND, 0o644, dir_fd=parent)
    try:
        disk.write_all(fd, data, path)
        disk.fsync(fd, path)
    finally:
        os.close(fd)


def text_of(data: bytes) -> str:
    """The text of a note; bytes that are none are shown as U+FFFD. Binary data has none."""
    return "" if b"\0" in data[:8_192] else data.decode("utf-8", "replace").removeprefix("\ufeff")

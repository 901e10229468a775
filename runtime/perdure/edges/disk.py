"""The system calls that change a disk, each told to who injects faults just before it is made.

All of the host's own state goes through here: session files, journal, segments, checkpoints, evidence,
index, locks. With nobody listening a call costs one comparison more (40 ns). The listener is one for the
process and judges by path; `IoPolicy(before=…)` puts it in place for the life of its host.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TypeAlias

Fault: TypeAlias = Callable[[str, str], None]
Name: TypeAlias = str | os.PathLike[str]

_fault: Fault | None = None


class Torn(Exception):
    """Raised by a listener ahead of a write: half of the bytes get there, then `after` is raised."""

    def __init__(self, after: BaseException) -> None:
        super().__init__(str(after))
        self.after = after


@contextmanager
def faults(fault: Fault) -> Iterator[None]:
    """Tell `fault(op, path)` of each call; what it raises is raised in place of the call.

    Ops: "open" (for writing), "write", "truncate", "fsync", "rename", "link", "unlink".
    """
    global _fault
    before, _fault = _fault, fault
    try:
        yield
    finally:
        _fault = before


def announce(op: str, path: Name) -> None:
    """A change that another library makes (SQLite, aiofiles) is about to be made."""
    if _fault is not None:
        _fault(op, os.fspath(path))


def open_(path: Name, flags: int, mode: int = 0o600) -> int:
    """A descriptor for writing, closed in children."""
    if _fault is not None:
        _fault("open", os.fspath(path))
    return os.open(path, flags | os.O_CLOEXEC, mode)


def make(path: Name, data: bytes) -> None:
    """A new file with all of `data` from its first moment on: whoever is killed here leaves it, or nothing.

    `FileExistsError` where there is one. A system without nameless files may be left with a part of it.
    """
    fd, named = _nameless(path), False
    try:
        if fd is None:
            fd, named = open_(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL), True
        if write(fd, data, path) != len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), os.fspath(path))
        if not named:
            if _fault is not None:
                _fault("link", os.fspath(path))
            os.link(f"/proc/self/fd/{fd}", path, src_dir_fd=fd)  # with it: the link is followed
    except OSError:
        if named:
            Path(path).unlink(missing_ok=True)
        raise
    finally:
        if fd is not None:
            os.close(fd)


def _nameless(path: Name) -> int | None:
    """A descriptor for a file that has no name yet, beside `path`; `None` where there is no such thing."""
    flag = getattr(os, "O_TMPFILE", None)
    if flag is None or not os.path.isdir("/proc/self/fd"):
        return None
    if _fault is not None:
        _fault("open", os.fspath(path))
    try:
        return os.open(os.path.dirname(os.fspath(path)) or ".", flag | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL):
            return None
        raise


def write(fd: int, data: bytes | memoryview, path: Name) -> int:
    """One `write()`; how many bytes were written."""
    if _fault is not None:
        _torn(path, data, lambda half: os.write(fd, half))
    return os.write(fd, data)


def pwrite(fd: int, data: bytes | memoryview, offset: int, path: Name) -> int:
    """One `pwrite()`; how many bytes were written."""
    if _fault is not None:
        _torn(path, data, lambda half: os.pwrite(fd, half, offset))
    return os.pwrite(fd, data, offset)


def _torn(path: Name, data: bytes | memoryview, put: Callable[[bytes | memoryview], int]) -> None:
    assert _fault is not None
    try:
        _fault("write", os.fspath(path))
    except Torn as torn:
        put(data[: len(data) // 2])
        raise torn.after from None


def write_all(fd: int, data: bytes, path: Name) -> None:
    """Write all of `data`; an error leaves what was written."""
    view = memoryview(data)
    while view:
        view = view[write(fd, view, path) :]


def pwrite_all(fd: int, data: bytes, offset: int, path: Name) -> None:
    """`write_all` at a place."""
    view = memoryview(data)
    while view:
        done = pwrite(fd, view, offset, path)
        view, offset = view[done:], offset + done


def truncate(fd: int, size: int, path: Name) -> None:
    """Cut a file."""
    if _fault is not None:
        _fault("truncate", os.fspath(path))
    os.ftruncate(fd, size)


def fsync(fd: int, path: Name) -> None:
    """Make bytes and metadata durable. After an error the descriptor is not to be trusted again."""
    if _fault is not None:
        _fault("fsync", os.fspath(path))
    os.fsync(fd)


def fdatasync(fd: int, path: Name) -> None:
    """Make the bytes durable, and what is needed to find them."""
    if _fault is not None:
        _fault("fsync", os.fspath(path))
    os.fdatasync(fd)


def sync_file(path: Name) -> None:
    """Make what was written to a file durable, by a new descriptor."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fdatasync(fd, path)
    finally:
        os.close(fd)


def syncfs(path: Name) -> bool:
    """Make all of the file system that holds `path` durable; False where the system has no such call."""
    call = _syncfs()
    if call is None:
        return False
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if _fault is not None:
            _fault("fsync", os.fspath(path))
        if call(fd):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), os.fspath(path))
    finally:
        os.close(fd)
    return True


@cache
def _syncfs() -> Callable[[int], int] | None:
    try:
        found: Callable[[int], int] = ctypes.CDLL(None, use_errno=True).syncfs
    except (OSError, AttributeError):
        return None
    return found


def sync_folder(folder: Name) -> None:
    """Make names in `folder` (made, renamed, removed) durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fsync(fd, folder)
    finally:
        os.close(fd)


def rename(source: Name, target: Name) -> None:
    """Put `source` in the place of `target`."""
    if _fault is not None:
        _fault("rename", os.fspath(target))
    os.rename(source, target)


def link(source: Name, target: Name) -> None:
    """A second name for a file."""
    if _fault is not None:
        _fault("link", os.fspath(target))
    os.link(source, target)


def symlink(text: str, target: Name) -> None:
    """A link with a text of its own, made in one step."""
    if _fault is not None:
        _fault("link", os.fspath(target))
    os.symlink(text, target)


def unlink(path: Name, *, missing_ok: bool = False) -> None:
    """Remove a name."""
    if _fault is not None:
        if missing_ok and not os.path.lexists(path):
            return
        _fault("unlink", os.fspath(path))
    Path(path).unlink(missing_ok=missing_ok)

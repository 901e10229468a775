"""Gives a name a new inode without losing what is still being written to the old one.

temp file beside it → fsync → a second name for the old inode → rename → fsync of the folder → re-read
the old inode behind what was copied and append it → drop the second name. A writer that looks after its
write whether the name still leads to its inode, and only then acknowledges, can't lose a line to this:
if it saw the old inode, its write came before the rename and the re-read holds it. The second name keeps
that tail through a crash between rename and re-read; `finish` completes such a swap.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from perdure.edges import disk
from perdure.records import Record

_COPY = 1 << 22


class Swapped(Record):
    """The new inode of a name, its size, and how many late bytes of the old inode it took over."""

    inode: int
    size: int
    late: int


class Staged(Record):
    """A finished temp file that stands for the first `base` bytes of the session file."""

    temp: str
    base: int
    size: int


def stage(
    path: Path, old_fd: int, base: int, token: int, build: Callable[[BinaryIO], None], *, sync: bool
) -> Staged:
    """Build the new content in a temp file beside `path`, with its mode. Removed again if that fails."""
    temp = path.with_name(f"{path.name[:180]}.{token:x}.tmp")
    disk.unlink(temp, missing_ok=True)
    fd = disk.open_(temp, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    try:
        _same_rights(old_fd, fd)
        with os.fdopen(os.dup(fd), "wb") as out:
            build(out)
        if sync:
            disk.fsync(fd, temp)
        return Staged(os.fspath(temp), base, os.fstat(fd).st_size)
    except BaseException:
        disk.unlink(temp, missing_ok=True)
        raise
    finally:
        os.close(fd)


def leftovers(path: Path) -> list[Path]:
    """Temp files of swaps that were killed before their rename. For the owner, when none is under way."""
    stem = f"{path.name[:180]}."  # of a longer name another session may have the same: left alone
    if len(path.name) > 180:
        return []
    tokens = ((each, each.name.removeprefix(stem).removesuffix(".tmp")) for each in path.parent.glob("*.tmp"))
    found = [each for each, token in tokens if each.name.startswith(stem) and _HEX.fullmatch(token)]
    new = path.with_name(f"{path.name}.segments") / "new.tmp"
    return [*found, new] if new.exists() else found


_HEX = re.compile("[0-9a-f]+")


def commit(path: Path, old_fd: int, staged: Staged, *, sync: bool) -> Swapped:
    """Put the staged file in the place of `path`, then carry over what the old inode got meanwhile."""
    _remember(path, staged)
    disk.rename(staged.temp, path)
    if sync:
        disk.sync_folder(path.parent)
    new_fd = disk.open_(path, os.O_RDWR | os.O_APPEND)
    try:
        late = _carry(old_fd, staged.base, new_fd, path, sync=sync)
        _forget(path)
        status = os.fstat(new_fd)
        return Swapped(status.st_ino, status.st_size, late)
    finally:
        os.close(new_fd)


def finish(path: Path, *, sync: bool) -> int:
    """Complete a swap that a crash interrupted; how many late bytes were carried over. Owner only.

    Costs one system call where there is nothing to do.
    """
    mark, kept = _names(path)
    try:
        base, size = (int(part, 16) for part in os.readlink(mark).split("."))
    except FileNotFoundError:
        return 0
    late = 0
    if kept.exists() and not os.path.samefile(kept, path):
        late = _recover(kept, base, path, size, sync=sync)
    _forget(path)
    return late


def _names(path: Path) -> tuple[Path, Path]:
    stem = path.name[:200]
    return path.with_name(f"{stem}.swap"), path.with_name(f"{stem}.old")


def _remember(path: Path, staged: Staged) -> None:
    """A second name for the old inode; and in a link's text, written in one step, what was copied."""
    mark, kept = _names(path)
    _forget(path)
    try:
        disk.symlink(f"{staged.base:x}.{staged.size:x}", mark)  # first made, last removed: `finish` looks
        disk.link(path, kept)
    except OSError:
        _forget(path)  # a file system without links: only a crash of both writers at once could lose a tail


def _forget(path: Path) -> None:
    mark, kept = _names(path)
    disk.unlink(kept, missing_ok=True)
    disk.unlink(mark, missing_ok=True)


def take_over(path: Path, token: int, *, sync: bool) -> None:
    """Give the file a new inode, so that no earlier owner can be acknowledged any more.

    Whole lines are copied; a line that may still be in the writing comes with the re-read.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        base = whole_lines(fd, os.fstat(fd).st_size)
        staged = stage(path, fd, base, token, copier(fd, base), sync=sync)
        commit(path, fd, staged, sync=sync)
    finally:
        os.close(fd)


def copier(fd: int, size: int) -> Callable[[BinaryIO], None]:
    """A `build` that copies the first `size` bytes of `fd`."""

    def build(out: BinaryIO) -> None:
        at = 0
        while at < size:
            block = os.pread(fd, min(_COPY, size - at), at)
            if not block:
                raise OSError(5, "the file became shorter while it was copied")
            out.write(block)
            at += len(block)

    return build


def _carry(old_fd: int, base: int, new_fd: int, path: Path, *, sync: bool) -> int:
    late = _read(old_fd, base)
    if late:
        disk.write_all(new_fd, late if late.endswith(b"\n") else late + b"\n", path)
        if sync:
            disk.fsync(new_fd, path)
    return len(late)


def _recover(kept: Path, base: int, path: Path, size: int, *, sync: bool) -> int:
    old_fd = os.open(kept, os.O_RDONLY | os.O_CLOEXEC)
    new_fd = disk.open_(path, os.O_RDWR | os.O_APPEND)
    try:
        late, there = _read(old_fd, base), _read(new_fd, size)
        if not late or there.startswith(late):
            return 0
        if late.startswith(there):  # the crash cut the carrying short: a part of what comes now
            disk.truncate(new_fd, size, path)
        return _carry(old_fd, base, new_fd, path, sync=sync)
    finally:
        os.close(old_fd)
        os.close(new_fd)


def _read(fd: int, start: int) -> bytes:
    parts, at = [], start
    while block := os.pread(fd, _COPY, at):
        parts.append(block)
        at += len(block)
    return b"".join(parts)


def whole_lines(fd: int, size: int) -> int:
    """Where the last line ends that has its newline."""
    while size > 0:
        start = max(0, size - 65536)
        found = os.pread(fd, size - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        size = start
    return 0


def _same_rights(old_fd: int, new_fd: int) -> None:
    status = os.fstat(old_fd)
    os.fchmod(new_fd, status.st_mode & 0o7777)
    if (status.st_uid, status.st_gid) != (os.geteuid(), os.getegid()):
        try:
            os.fchown(new_fd, status.st_uid, status.st_gid)
        except PermissionError:
            pass  # only root may give a file away; ours stays ours

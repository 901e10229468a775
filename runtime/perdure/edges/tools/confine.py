"""Files inside one folder, and never outside it: no `..`, symlink, device or swapped folder gets past.

A path is resolved first (so links that stay inside are fine), then walked from the root's own
descriptor, one component at a time, without following links: what was checked is what is opened, even
if somebody swaps a folder for a link in between. Everything here blocks; callers choose the thread.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from perdure.errors import PerdureError

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a FIFO must not block the open
MAX_PATH = 4_096


class Refused(PerdureError):
    """A path can't be used as asked: its text is one line that a model can act on."""


def locate(root: Path, path: str) -> tuple[str, ...]:
    """The components of `path` below the real root, links resolved; `()` is the root itself.

    Absolute paths inside are fine. Raises `Refused` for anything that leads outside or is no path.
    """
    if not path or "\0" in path or len(path) > MAX_PATH:
        raise Refused(f"{_shown(path)}: not a usable path: give a path relative to the workspace")
    try:
        os.fsencode(path)
        base = os.path.realpath(root, strict=True)
        real = os.path.realpath(os.path.join(base, path))
    except UnicodeEncodeError:
        raise Refused(f"{_shown(path)}: the path holds characters that no file name can have") from None
    except OSError as error:
        raise Refused(f"the workspace can't be used: {error.strerror}") from None
    if real == base:
        return ()
    prefix = base if base.endswith(os.sep) else base + os.sep
    if not real.startswith(prefix):
        raise Refused(f"{_shown(path)}: outside the workspace: only files inside it can be used")
    return tuple(real[len(prefix) :].split(os.sep))


def shown(root: Path, path: str) -> str:
    """The path as results name it: relative to the workspace, links resolved."""
    return "/".join(locate(root, path)) or "."


@contextmanager
def folder(root: Path, parts: tuple[str, ...], *, create: bool = False) -> Iterator[int]:
    """A descriptor of the folder `parts` below the root, walked without following any link."""
    descriptor = os.open(os.path.realpath(root), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts:
            if create:
                _make(part, descriptor)
            below = os.open(part, _DIRECTORY, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = below
        yield descriptor
    finally:
        os.close(descriptor)


def named(descriptor: int, root: Path, parts: tuple[str, ...]) -> str:
    """A path that leads a child process to an open folder, even if its name was swapped since."""
    if os.path.isdir("/proc/self/fd"):
        return f"/proc/self/fd/{descriptor}"  # resolved in the child, before descriptors are closed
    return os.path.join(os.path.realpath(root), *parts)


def open_file(root: Path, path: str) -> BinaryIO:
    """A regular file for reading, unbuffered. Raises `Refused`."""
    parts = locate(root, path)
    if not parts:
        raise Refused(f"{_shown(path)}: a folder, not a file: use find to list it")
    with refusing(path), folder(root, parts[:-1]) as parent:
        descriptor = os.open(parts[-1], _FILE, dir_fd=parent)
        try:
            _regular(descriptor, path)
            return os.fdopen(descriptor, "rb", buffering=0)
        except BaseException:
            os.close(descriptor)
            raise


def read_whole(root: Path, path: str, limit: int) -> bytes:
    """All bytes of a regular file of at most `limit` bytes."""
    with open_file(root, path) as file, refusing(path):
        size = os.fstat(file.fileno()).st_size
        if size > limit:
            raise Refused(f"{_shown(path)}: {size:,} bytes, over the limit of {limit:,}")
        data = bytearray()
        while len(data) <= limit and (chunk := file.read(1 << 20)):
            data += chunk
    if len(data) > limit:
        raise Refused(f"{_shown(path)}: grew over the limit of {limit:,} bytes while it was read")
    return bytes(data)


def replace(root: Path, path: str, data: bytes) -> bool:
    """Write a whole file atomically (temp beside it, then rename); True if it was there before.

    Missing folders are made; the mode of an existing file is kept; a link inside the workspace stays a
    link and its target is replaced.
    """
    parts = locate(root, path)
    if not parts:
        raise Refused(f"{_shown(path)}: a folder, not a file: name a file in it")
    with refusing(path), folder(root, parts[:-1], create=True) as parent:
        mode = _mode(parts[-1], parent, path)
        temp = f".perdure-{secrets.token_hex(8)}.tmp"
        try:
            _put(temp, parent, data, 0o666 if mode is None else mode)
            os.replace(temp, parts[-1], src_dir_fd=parent, dst_dir_fd=parent)
        except BaseException:
            _unlink(temp, parent)
            raise
    return mode is not None


@contextmanager
def refusing(path: str) -> Iterator[None]:
    """Turns what the system says into one line that a model can act on."""
    try:
        yield
    except OSError as error:
        raise Refused(f"{_shown(path)}: {_reason(error)}") from None


def _reason(error: OSError) -> str:
    if error.errno in (errno.ELOOP, errno.EMLINK):
        return "a link appeared on the way; nothing was opened"
    if error.errno in (errno.ENXIO, errno.ENODEV):
        return "not a regular file"
    texts = {
        errno.ENOENT: "no such file or folder",
        errno.ENOTDIR: "a part of the path is a file, not a folder",
        errno.EISDIR: "a folder, not a file",
        errno.EACCES: "permission denied",
        errno.ENOSPC: "the disk is full; nothing was changed",
    }
    return texts.get(error.errno or 0, error.strerror or "can't be used")


def _regular(descriptor: int, path: str) -> None:
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISDIR(mode):
        raise Refused(f"{_shown(path)}: a folder, not a file: use find to list it")
    if not stat.S_ISREG(mode):
        raise Refused(f"{_shown(path)}: not a regular file")


def _mode(name: str, parent: int, path: str) -> int | None:
    try:
        found = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found):
        raise Refused(f"{_shown(path)}: not a regular file")
    if not os.access(name, os.W_OK, dir_fd=parent):
        raise Refused(f"{_shown(path)}: write-protected")
    return stat.S_IMODE(found)


def _make(name: str, parent: int) -> None:
    try:
        os.mkdir(name, dir_fd=parent)
    except FileExistsError:
        pass  # what it is shows when it is opened without following links


def _put(name: str, parent: int, data: bytes, mode: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(name, flags, mode & 0o777, dir_fd=parent)
    with os.fdopen(descriptor, "wb", buffering=0) as file:
        view = memoryview(data)
        while view:
            view = view[file.write(view) or 0 :]
        if mode != 0o666:
            os.fchmod(descriptor, mode)  # the umask is for new files only


def _unlink(name: str, parent: int) -> None:
    try:
        os.unlink(name, dir_fd=parent)
    except OSError:
        pass  # it was renamed already, or never made


def _shown(path: str) -> str:
    text = path if len(path) <= 200 else path[:199] + "…"
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text) or "''"

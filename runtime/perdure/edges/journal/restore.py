"""What replay makes of one file: pure decisions about bytes, and the few writes that follow from them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from perdure.edges import disk
from perdure.edges.journal.form import Logged

Verdict: TypeAlias = Literal["whole", "restore", "changed", "hole"]
PAGE = 4096


@dataclass(slots=True)
class Image:
    """The bytes that a run of records says stand at `first` of a file. `made`: the file begins in it."""

    first: int
    data: bytearray
    made: bool

    def follows(self, record: Logged) -> bool:
        """Whether a record goes on where this ends."""
        return record.kind == "append" and record.offset == self.first + len(self.data)


def image(before: Image | None, record: Logged) -> Image | None:
    """The run with one more record. One that stands elsewhere begins a new run: the owner syncs a file
    before it goes on behind bytes that are not ours.
    """
    if record.kind == "barrier":
        return None
    if before is not None and before.follows(record):
        before.data += record.data
        return before
    return Image(record.offset, bytearray(record.data), record.kind == "create")


def judge(size: int, there: bytes, wanted: Image) -> Verdict:
    """`there`: what the file of `size` bytes has from `first` on, at most as long as the image.

    It must be the image, or miss pages of it: shorter, or NUL. All else is somebody's change.
    """
    if size < wanted.first:
        return "hole"
    if there == wanted.data:
        return "whole"
    for at in range(0, len(there), PAGE):
        have, want = there[at : at + PAGE], wanted.data[at : at + PAGE]
        if have != want[: len(have)] and any(h not in (0, w) for h, w in zip(have, want, strict=False)):
            return "changed"
    return "restore"


def kept(tail: bytes) -> int:
    """How much of what stands behind the image is whole lines without NUL; no more was acknowledged."""
    end = tail.rfind(b"\n") + 1
    nul = tail.find(b"\0", 0, end)
    return end if nul < 0 else tail.rfind(b"\n", 0, nul) + 1


def make(path: Path, wanted: Image) -> None:
    """The file is missing, and the journal saw it made. Raises `OSError`."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fd = disk.open_(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    try:
        disk.pwrite_all(fd, bytes(wanted.data), 0, path)
        disk.fsync(fd, path)
    finally:
        os.close(fd)
    disk.sync_folder(path.parent)


def mend(fd: int, path: Path, wanted: Image, *, write: bool) -> bytes:
    """Put the image there and cut a torn rest; the bytes that were cut. Raises `OSError`."""
    if write:
        disk.pwrite_all(fd, bytes(wanted.data), wanted.first, path)
    end = wanted.first + len(wanted.data)
    tail = _read(fd, end)
    keep = kept(tail)
    if keep < len(tail):
        disk.truncate(fd, end + keep, path)
    disk.fdatasync(fd, path)
    return tail[keep:]


def _read(fd: int, start: int) -> bytes:
    return os.pread(fd, max(0, os.fstat(fd).st_size - start), start)

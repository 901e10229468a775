"""One segment file: preallocated, so that a sync has only bytes to write."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from perdure.edges import disk
from perdure.edges.journal.form import (
    HEADER,
    Identity,
    Logged,
    SegmentHeader,
    decode,
    encode,
    header,
    read_header,
)

SUFFIX = ".wal"


def segments(folder: Path) -> list[Path]:
    """The segments of a journal, oldest first."""
    return sorted(folder.glob(f"*{SUFFIX}"))


class Segment:
    """The segment that is being written. `keys`: the files it names. Raises `OSError`."""

    def __init__(self, folder: Path, number: int, size: int, who: Identity) -> None:
        self.path = folder / f"{number:08d}{SUFFIX}"
        self.salt = int.from_bytes(os.urandom(4), "little")
        self.keys: set[str] = set()
        self.at, self._fd = HEADER, disk.open_(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        try:
            _allocate(self._fd, size)
            disk.pwrite_all(self._fd, header(self.salt, who), 0, self.path)
            disk.fsync(self._fd, self.path)
            disk.sync_folder(folder)
        except BaseException:
            self.close()
            self.path.unlink()
            raise

    def write(self, records: Iterable[Logged]) -> None:
        """Write and sync. After an error nothing may be written to this segment any more."""
        records = list(records)
        data = b"".join(encode(record, self.salt) for record in records)
        self.keys.update(record.key for record in records)  # first: a failed one may stand there all the same
        disk.pwrite_all(self._fd, data, self.at, self.path)
        disk.fdatasync(self._fd, self.path)
        self.at += len(data)

    def close(self) -> None:
        """Own no descriptor any more."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _allocate(fd: int, size: int) -> None:
    try:
        os.posix_fallocate(fd, 0, size)
    except OSError as error:  # a file system without it: the sync of each batch carries the length, too
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
            raise


def read(path: Path) -> tuple[SegmentHeader | None, Iterator[Logged]]:
    """Header and records of a segment. Raises `OSError`, `NewerState`."""
    data = path.read_bytes()
    head = read_header(path, data)
    return head, decode(data, head.salt) if head is not None else iter(())

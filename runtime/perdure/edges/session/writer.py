"""`LocalSessionFile`: the only code that writes a session file or says "acknowledged".

The rule, which needs no clock: grant valid, my inode as long as I left it → one unbuffered `write()` →
the name still leads to that inode and the grant is still valid → only then an `Ack`. A look before alone
lost 52 of 934,534 acknowledged lines to a paused owner, the look after it none of 1,001,165.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

from perdure.contracts import Ack, Grant
from perdure.edges import disk
from perdure.edges.journal.run import Run
from perdure.edges.session import swap
from perdure.edges.session.swap import Staged
from perdure.errors import Fenced, PerdureError, StorageFailed


class ForeignWrite(PerdureError):
    """Somebody else changed the file: nothing of ours was written. Read it again, `adopt`, append again.

    `was` and `now` are sizes in bytes; `now` may be smaller (a foreign program cut the file).
    """

    def __init__(self, path: Path, was: int, now: int) -> None:
        super().__init__(f"{path}: another program changed it ({was:,} bytes became {now:,})")
        self.was, self.now = was, now


class LocalSessionFile:
    """One session file under one grant. Owns a descriptor only between an append and `release`.

    `run` tells the journal of what is written (durability `power`). `on_foreign(was, now)` reports foreign
    bytes that came between our look and our write, or during a rewrite: ours were acknowledged and stand
    behind them; read the file again before the next append.
    """

    def __init__(
        self,
        path: Path,
        grant: Grant,
        *,
        size: int,
        inode: int,
        sync: bool = True,
        on_foreign: Callable[[int, int], None] | None = None,
        run: Run | None = None,
    ) -> None:
        self._path, self._grant, self._sync, self._run = path, grant, sync, run
        self._name = os.fspath(path)
        self._size, self._inode = size, inode
        self._on_foreign = on_foreign
        self._fd: int | None = None
        self._mtime: int | None = None  # as we left it; a foreign edit that keeps the size shows here
        self._whole: bool | None = None  # whether the last byte is a newline; None: not looked yet
        self._cut: tuple[int, int] | None = None  # a piece of a failed append still stands here
        self._unfinished = False  # a swap could not carry over the tail of the old inode yet
        self._fenced: str | None = None
        self._dirty = False

    @property
    def path(self) -> Path:
        return self._path

    @property
    def epoch(self) -> int:
        return self._grant.token

    @property
    def size(self) -> int:
        return self._size

    @property
    def inode(self) -> int:
        return self._inode

    # --- append -----------------------------------------------------------------------------------

    def append(self, lines: Sequence[bytes]) -> Ack:
        """Write whole lines, look again who owns the file, then acknowledge. One `write()`, no fsync.

        Raises `ForeignWrite` (nothing written; read again, `adopt`, retry), `Fenced` (another owner;
        final), `StorageFailed` (cut back, nothing written; retryable), `ValueError` (not whole lines).
        """
        data = whole = b"".join(lines)
        if not data or any(line.find(b"\n") != len(line) - 1 for line in lines):
            raise ValueError("append takes whole lines: one JSON object and one newline each")
        fd = self._ready()
        if not self._whole:  # never glue to a torn last line
            data = b"\n" + whole
        end = self._size + len(data)
        self._write(fd, data)
        ack = self._acknowledge(fd, end, end - len(whole))
        if self._run is not None:
            self._run.appended(ack.offset + len(whole) - len(data), data)
        return ack

    def _ready(self, *, grown: bool = False) -> int:
        """The descriptor, when the file is ours and as we left it (or at least as long, if `grown`)."""
        self._owned()
        if self._run is not None:
            self._run.journal.check()
        try:
            fd = self._open()
            if self._cut is not None:
                self._cut_again(fd, *self._cut)
            status = os.fstat(fd)  # its name is looked at after the write: that alone decides (saves 2 µs)
        except FileNotFoundError:
            raise self._fence("the file is gone") from None
        except OSError as error:
            raise self._failed(error) from None
        if status.st_size < self._size or (not grown and self._changed(status)):
            raise ForeignWrite(self._path, self._size, status.st_size)
        self._mtime = None  # looked at on the first append after opening only: it costs nothing then
        return fd

    def _changed(self, status: os.stat_result) -> bool:
        return status.st_size != self._size or self._mtime not in (None, status.st_mtime_ns)

    def _write(self, fd: int, data: bytes) -> None:
        try:
            written = disk.write(fd, data, self._name)
        except OSError as error:
            raise self._failed(error) from None
        if written != len(data):
            self._cut_back(fd, written)
            raise StorageFailed(
                f"{self._path}: only {written} of {len(data)} bytes could be written (disk full?): "
                "the file was cut back, nothing was acknowledged; make room and send again"
            )

    def _acknowledge(self, fd: int, end: int, offset: int) -> Ack:
        self._dirty = self._whole = True
        try:
            status = os.stat(self._name)
        except OSError:
            raise self._fence("the file is gone") from None
        if status.st_ino != self._inode:
            raise self._fence("another owner took it over")
        if not self._grant.valid():
            raise self._fence("this host lost the state folder")
        if status.st_size != end:
            offset, end = self._between(fd, offset, end, status.st_size)
        self._size = end
        return Ack(offset, end)

    def _between(self, fd: int, offset: int, end: int, now: int) -> tuple[int, int]:
        """Foreign bytes came between our look and our write, or just after it; ours stand."""
        moved = os.lseek(fd, 0, os.SEEK_CUR) - end
        if self._on_foreign is not None:
            self._on_foreign(end, now)
        return offset + moved, end + moved

    def _cut_back(self, fd: int, written: int) -> None:
        """Undo a short write: only where nothing but our own piece stands behind the old size."""
        end = os.lseek(fd, 0, os.SEEK_CUR)
        self._cut = (end - written, end)
        try:
            self._cut_again(fd, *self._cut)
        except OSError:
            pass  # the next append tries again before anything else

    def _cut_again(self, fd: int, start: int, end: int) -> None:
        if os.fstat(fd).st_size == end:
            disk.truncate(fd, start, self._name)
        self._cut = None

    # --- rewrite ----------------------------------------------------------------------------------

    def replace(self, build: Callable[[BinaryIO], None]) -> Ack:
        """Rewrite through a temp file, fsync, rename: a new inode. Blocking: whole-file work.

        Bytes that others append meanwhile are re-read from the old inode and stand at the end.
        Raises as `append` does; on any error the file is as it was.
        """
        return self.commit(self.stage(build, self._size))

    def stage(self, build: Callable[[BinaryIO], None], base: int) -> Staged:
        """First half of `replace`, for a worker's thread: appends may go on while it runs.

        What is built stands for the first `base` bytes of the file; later lines follow by `commit`.
        """
        self._owned()
        try:
            fd = os.open(self._name, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise self._failed(error) from None
        try:
            status = os.fstat(fd)
            if status.st_ino != self._inode:
                raise self._fence("another owner took it over")
            return swap.stage(self._path, fd, base, self._grant.token, build, sync=self._sync)
        except OSError as error:
            raise self._failed(error) from None
        finally:
            os.close(fd)

    def commit(self, staged: Staged) -> Ack:
        """Second half of `replace`: put the staged file in place, lines written since included.

        No append may run at the same time. Offsets of all entries have changed afterwards.
        """
        own_tail = self._size - staged.base
        try:
            fd = self._ready(grown=True)
            if os.stat(self._name).st_ino != self._inode:
                raise self._fence("another owner took it over")
            if self._run is not None:
                self._run.void()
            done = swap.commit(self._path, fd, staged, sync=self._sync)
        except PerdureError:
            disk.unlink(staged.temp, missing_ok=True)
            raise
        except OSError as error:
            raise self._half_done(staged, error) from None
        self._moved_to(done.inode, done.size)
        self._owned()
        if os.stat(self._name).st_ino != done.inode:
            raise self._fence("another owner took it over")
        if done.late != own_tail and self._on_foreign is not None:
            self._on_foreign(done.size - done.late + own_tail, done.size)
        return Ack(0, done.size)

    def _half_done(self, staged: Staged, error: OSError) -> StorageFailed:
        """A swap failed: before the rename nothing happened, after it the old tail waits to be added."""
        disk.unlink(staged.temp, missing_ok=True)
        status = os.stat(self._name)
        if status.st_ino != self._inode:
            self._moved_to(status.st_ino, status.st_size)
            self._unfinished = True
        return self._failed(error)

    def _moved_to(self, inode: int, size: int) -> None:
        self.release()
        self._inode, self._size, self._whole, self._mtime = inode, size, None, None

    # --- state ------------------------------------------------------------------------------------

    def adopt(self, size: int, inode: int) -> None:
        """Take the file as it was just read (after `ForeignWrite`, or a report of foreign bytes)."""
        if inode != self._inode:
            self.release()
        self._size, self._inode, self._whole, self._mtime = size, inode, None, None

    def sync(self) -> None:
        """Make what was appended durable (whole-file work: a thread). A failed descriptor is dropped."""
        if not self._dirty:
            return
        self._dirty = False  # first: an append may come while we wait
        try:
            fd = os.open(self._name, os.O_RDONLY | os.O_CLOEXEC)
            try:
                disk.fsync(fd, self._name)
            finally:
                os.close(fd)
        except OSError as error:
            self._dirty = True
            raise self._failed(error) from None

    def release(self) -> None:
        """Own no descriptor until the next append (an idle session)."""
        if self._fd is None:
            return
        try:
            self._mtime = os.fstat(self._fd).st_mtime_ns
        finally:
            os.close(self._fd)
            self._fd = None

    def close(self, *, handover: bool) -> None:
        """Let go of the file; `handover`: make it durable first. Nothing can be appended any more."""
        try:
            if handover and self._sync and self._fenced is None:
                self.sync()
                if self._run is not None:
                    self._run.left()
        finally:
            self.release()
            self._fenced = self._fenced or "it was closed"

    def _open(self) -> int:
        if self._unfinished:
            swap.finish(self._path, sync=self._sync)
            self._size, self._unfinished = os.stat(self._name).st_size, False
        if self._fd is None:
            self._fd = disk.open_(self._name, os.O_RDWR | os.O_APPEND)
            if os.fstat(self._fd).st_ino != self._inode:
                raise self._fence("another owner took it over")
        if self._whole is None:
            self._whole = self._size == 0 or os.pread(self._fd, 1, self._size - 1) == b"\n"
        return self._fd

    def _owned(self) -> None:
        if self._fenced is not None:
            raise Fenced(f"{self._path}: {self._fenced}: nothing was acknowledged; send again")
        if not self._grant.valid():
            raise self._fence("this host lost the state folder")

    def _fence(self, why: str) -> Fenced:
        self._fenced = why
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
        return Fenced(f"{self._path}: {why}: nothing was acknowledged; send again, the new owner answers")

    def _failed(self, error: OSError) -> StorageFailed:
        return StorageFailed(
            f"{self._path}: can't be written ({error.strerror or error}): nothing was acknowledged; "
            "make room or correct its rights, then send again"
        )

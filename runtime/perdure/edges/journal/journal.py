"""`Journal`: group commit. Session file first, then one write and one sync here for all that came together.

Records are pushed by the loop's thread (`appended`, `created`, `barrier`: nothing there waits) and made
durable by `commit` in another one. What a waiting acknowledgement needs to know is `durable`, the number of
the last record that can't be lost. A descriptor whose sync failed is never trusted again: the batch is
written once more, to a new segment. Where that fails too, `check` refuses all appends until one succeeds.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from threading import Lock

from perdure.edges import disk
from perdure.edges.journal import aside
from perdure.edges.journal.form import Identity, Kind, Logged
from perdure.edges.journal.segment import Segment, segments
from perdure.errors import StorageFailed

SIZE = 64 * 1024 * 1024  # bytes of a segment: some ten seconds of a busy host
MOST_OLD = 3  # segments that may wait for their trim
MOST_QUEUED = 32 * 1024 * 1024  # bytes that wait for the disk
SUSPECT = "suspect"  # this file says that a sync failed: what the page cache shows may not be on the disk


class Journal:
    """The journal of one state folder, for its owner. `folder` lies in `root`, as the session files do.

    `settled`: whatever was there before has been replayed and retired (`replay.recover`).
    Raises `StorageFailed`.
    """

    def __init__(self, folder: Path, root: Path, who: Identity, *, size: int = SIZE) -> None:
        self.folder, self._root, self._who, self._size = folder, root, who, size
        self._prefix = f"{os.fspath(root)}/"
        self._queue: list[tuple[Logged, bool]] = []
        self._queue_lock, self._commit_lock, self._trim_lock = Lock(), Lock(), Lock()
        self._queued = 0
        self._old: deque[Segment] = deque()
        self._open: Segment | None = None
        self._number = 0
        self.pushed = self.durable = 0
        self.failed: StorageFailed | None = None
        self.batches = self.records = self.trims = self.failures = 0

    # --- pushed by the loop -------------------------------------------------------------------------

    def check(self) -> None:
        """Raises `StorageFailed` while nothing can be made durable, or too much waits for it."""
        if self.failed is not None:
            raise self.failed
        if self._queued > MOST_QUEUED:
            raise StorageFailed(
                f"{self.folder}: the disk is behind by {self._queued:,} bytes: send again later"
            )

    def appended(self, path: str, offset: int, data: bytes) -> None:
        """These bytes stand at `offset` of a session file now."""
        self._push("append", path, offset, data)

    def created(self, path: str, data: bytes) -> None:
        """A session file was made and begins with these bytes."""
        self._push("create", path, 0, data)

    def barrier(self, path: str, *, sync: bool) -> None:
        """What was told of a file before is void; `sync`: it is made durable as it is before that is said."""
        self._push("barrier", path, 0, b"", sync)

    def _push(self, kind: Kind, path: str, offset: int, data: bytes, sync: bool = False) -> None:
        key = path.removeprefix(self._prefix)
        with self._queue_lock:
            self.pushed += 1
            self._queue.append((Logged(self.pushed, kind, key, offset, data), sync))
            self._queued += len(data)

    # --- made durable, in a thread ------------------------------------------------------------------

    def commit(self) -> int:
        """Make durable what was pushed; the number of the last record.

        Raises `StorageFailed`: nothing is accepted until another `commit` succeeds, so try again.
        """
        try:
            self._commit()
        except StorageFailed as error:
            self.failed = error
            raise
        return self.durable

    def _commit(self) -> None:
        with self._commit_lock:
            batch = self._take()
            if batch:
                try:
                    self._write(batch)
                except OSError as error:
                    self._give_back(batch)
                    raise self._told(error) from None
                except BaseException:
                    self._give_back(batch)
                    raise
                self.durable = batch[-1][0].seq
                self.batches, self.records = self.batches + 1, self.records + len(batch)
            self.failed = None

    def settle(self, path: str, *, sync: bool) -> None:
        """A durable barrier, now: ahead of a rewrite, a renaming, a deletion. Blocking.

        Raises `StorageFailed`: that must not be done then; the next `commit` tells whether others suffer.
        """
        self.barrier(path, sync=sync)
        self._commit()

    def _take(self) -> list[tuple[Logged, bool]]:
        with self._queue_lock:
            batch, self._queue = self._queue, []
            self._queued = 0
        return batch

    def _give_back(self, batch: list[tuple[Logged, bool]]) -> None:
        with self._queue_lock:
            self._queue[:0] = batch
            self._queued += sum(len(record.data) for record, _ in batch)

    def _write(self, batch: Sequence[tuple[Logged, bool]]) -> None:
        for key in {record.key for record, sync in batch if sync}:
            try:
                disk.sync_file(self._root / key)
            except FileNotFoundError:
                pass  # deleted or renamed meanwhile; a rewrite of ours syncs what it makes
        records = [record for record, _ in batch]
        try:
            self._segment().write(records)
        except OSError:
            self.failures += 1
            self.distrust()
            self._segment().write(records)

    def _segment(self) -> Segment:
        """The one to write to, a new one where that is full."""
        if self._open is not None and self._open.at >= self._size:
            self._retire()
        if self._open is None:
            if len(self._old) >= MOST_OLD:
                self.trim()  # slower than what comes in: whoever waits for this batch waits for it
            self._number = max(self._number, _last(self.folder)) + 1
            self._open = Segment(self.folder, self._number, self._size, self._who)
        return self._open

    def _retire(self) -> None:
        segment, self._open = self._open, None
        if segment is not None:
            segment.close()
            self._old.append(segment)

    def distrust(self) -> None:
        """A sync failed: this descriptor is done with, and the next start replays whatever it finds."""
        self._retire()
        mark_suspect(self.folder)

    # --- trimmed ------------------------------------------------------------------------------------

    @property
    def wants_trim(self) -> bool:
        """Segments wait whose files may be synced."""
        return bool(self._old)

    def trim(self) -> None:
        """Make durable in their own files what old segments hold, then let those go. In a thread.

        Raises `StorageFailed`; what could not be trimmed is kept.
        """
        with self._trim_lock:
            while self._old:
                segment = self._old[0]
                try:
                    sync_all(self._root, segment.keys)
                    disk.unlink(segment.path)
                    disk.sync_folder(self.folder)
                except OSError as error:
                    mark_suspect(self.folder)
                    raise self._told(error) from None
                self._old.popleft()
                self.trims += 1

    def purge(self, path: str) -> None:
        """No byte of a deleted session stays in the journal: for "deletion really deletes". Blocking.

        Call it when the session's file is gone and a barrier says so (`hosting.storage.forgetting` does).
        Begins a new segment, syncs the files that the others name and unlinks these; what a replay put
        aside for the file goes, too. Raises `StorageFailed`: then something may be left; call it again.
        """
        with self._commit_lock:
            self._retire()
        self.trim()
        aside.forget(self.folder, path.removeprefix(self._prefix))

    def close(self, *, clean: bool) -> None:
        """`clean`: every session was closed and is durable, so nothing is left. Else as a crash leaves it."""
        if clean:
            try:
                self.commit()
                self.purge("")
            finally:
                self._abandon()
        else:
            self._abandon()

    def _abandon(self) -> None:
        with self._commit_lock:
            if self._open is not None:
                self._open.close()
                self._open = None

    def _told(self, error: OSError) -> StorageFailed:
        return StorageFailed(
            f"{self.folder}: the journal can't be synced ({error.strerror or error}): nothing is "
            "acknowledged until it can; make room or see to the disk, then send again"
        )


def sync_all(root: Path, keys: set[str]) -> None:
    """Make these files durable, and their names. A missing one was deleted, or moved when it was durable."""
    folders = set()
    for key in sorted(keys):
        path = root / key
        try:
            disk.sync_file(path)
        except FileNotFoundError:
            continue
        folders.add(path.parent)
    for folder in sorted(folders):
        disk.sync_folder(folder)


def mark_suspect(folder: Path) -> None:
    """Note that a sync failed; where even that can't be written, the start after a crash sees no note."""
    try:
        fd = disk.open_(folder / SUSPECT, os.O_WRONLY | os.O_CREAT)
        try:
            disk.fsync(fd, folder / SUSPECT)
        finally:
            os.close(fd)
        disk.sync_folder(folder)
    except OSError:
        return


def _last(folder: Path) -> int:
    numbers = (path.stem for path in segments(folder))
    return max((int(number) for number in numbers if number.isdigit()), default=0)

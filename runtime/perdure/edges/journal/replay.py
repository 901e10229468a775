"""What a start does with the journal it finds, under the shard's lock and before any session opens.

A process that was killed leaves its bytes in the page cache: nothing is replayed. They are replayed where
the boot id, the volume or its mount is another one, or a sync had failed. In any case the files that the
journal names are synced, and its segments retired. Idempotent: a crash in the middle costs a repetition.
"""

from __future__ import annotations

import os
from pathlib import Path

from perdure.edges import disk
from perdure.edges.journal import aside, restore
from perdure.edges.journal.form import Identity
from perdure.edges.journal.journal import SUSPECT, sync_all
from perdure.edges.journal.restore import Image
from perdure.edges.journal.segment import read, segments
from perdure.errors import NewerState, StorageFailed
from perdure.records import Record


class Recovered(Record):
    """What was done. `aside`: where lines are that were not put back, each with why."""

    segments: int = 0
    replayed: bool = False
    files: int = 0
    restored: int = 0
    made: int = 0
    cut: int = 0
    aside: tuple[tuple[str, str], ...] = ()

    def line(self) -> str:
        """For a person."""
        told = f"{self.files} files, {self.restored} with lines put back, {self.made} made again"
        return f"the journal was replayed: {told}, {len(self.aside)} left alone" if self.replayed else ""


def recover(folder: Path, root: Path, who: Identity) -> Recovered:
    """Replay where that is needed, and retire what is there. For the owner of the state folder. Blocking.

    Raises `NewerState` (nothing was changed), `StorageFailed`.
    """
    found = segments(folder)
    suspect = (folder / SUSPECT).exists()
    if not found and not suspect:
        return Recovered()
    try:
        pending = _read_all(folder, found)
        if not (suspect or any(each != who for each in pending.written_by)):
            sync_all(root, pending.keys)
            done = Recovered(len(found))
        else:
            done = _Replay(folder, root, force=suspect).run(pending.images, len(found))
        _retire(folder, found)
    except OSError as error:
        raise StorageFailed(
            f"{folder}: the journal can't be replayed ({error.strerror or error}): make room or see to the "
            "disk, then start again; nothing is lost meanwhile"
        ) from None
    return done


def pending(folder: Path, who: Identity) -> set[str]:
    """Files (paths below the state folder) that a replay would look at; empty where none is due."""
    try:
        state = _read_all(folder, segments(folder), put_aside=False)
        due = (folder / SUSPECT).exists() or any(each != who for each in state.written_by)
    except (OSError, NewerState):
        return set()
    return set(state.images) if due else set()


class _Pending:
    def __init__(self) -> None:
        self.written_by: list[Identity] = []
        self.images: dict[str, Image] = {}
        self.keys: set[str] = set()
        self.last = 0


def _read_all(folder: Path, found: list[Path], *, put_aside: bool = True) -> _Pending:
    """All records once; a batch that was written twice, after a failed sync, counts once."""
    state = _Pending()
    for path in found:
        head, records = read(path)
        if head is None:
            if put_aside and any(path.read_bytes()):
                aside.put(folder, path.name, 0, path.read_bytes())
            continue
        state.written_by.append(head.identity)
        for record in records:
            if record.seq <= state.last:
                continue
            state.last = record.seq
            state.keys.add(record.key)
            made = restore.image(state.images.pop(record.key, None), record)
            if made is not None:
                state.images[record.key] = made
    return state


class _Replay:
    """Counts while it goes from file to file. `force`: the page cache may lie, so all is written again."""

    def __init__(self, folder: Path, root: Path, *, force: bool) -> None:
        self._folder, self._root, self._force = folder, root, force
        self._files = self._restored = self._made = self._cut = 0
        self._aside: list[tuple[str, str]] = []

    def run(self, images: dict[str, Image], count: int) -> Recovered:
        folders: set[Path] = set()
        for key, wanted in sorted(images.items()):
            self._file(key, wanted)
            folders.add((self._root / key).parent)
        for folder in sorted(folders):
            if folder.is_dir():
                disk.sync_folder(folder)
        done = (self._files, self._restored, self._made, self._cut)
        return Recovered(count, True, *done, aside=tuple(self._aside))

    def _file(self, key: str, wanted: Image) -> None:
        path = self._root / key
        self._files += 1
        try:
            fd = disk.open_(path, os.O_RDWR)
        except FileNotFoundError:
            self._missing(key, path, wanted)
            return
        try:
            size = os.fstat(fd).st_size
            verdict = restore.judge(size, os.pread(fd, len(wanted.data), wanted.first), wanted)
            if verdict in ("changed", "hole"):
                self._leave(
                    key,
                    wanted,
                    "it was changed by somebody else" if verdict == "changed" else "it is shorter",
                )
                return
            cut = restore.mend(fd, path, wanted, write=self._force or verdict == "restore")
            self._restored += verdict == "restore"
            self._cut += bool(cut)
            if cut.strip(b"\0"):
                aside.put(self._folder, key, wanted.first + len(wanted.data), cut)
        finally:
            os.close(fd)

    def _missing(self, key: str, path: Path, wanted: Image) -> None:
        if wanted.made:
            restore.make(path, wanted)
            self._made += 1
        else:
            self._leave(key, wanted, "it is gone")

    def _leave(self, key: str, wanted: Image, why: str) -> None:
        self._aside.append((os.fspath(aside.put(self._folder, key, wanted.first, bytes(wanted.data))), why))


def _retire(folder: Path, found: list[Path]) -> None:
    for path in found:
        disk.unlink(path)
    disk.unlink(folder / SUSPECT, missing_ok=True)
    disk.sync_folder(folder)

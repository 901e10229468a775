"""Deleting a session for good: all of its files, what only it kept as evidence, and its rows in the index.

First every file of the key moves into one folder (`<name>.deleted`), in which no program looks for a
session: from there on it is gone, and a kill leaves what `finish` completes. Then evidence is collected:
what the session referred to and no other one does. Its workspace is the user's and stays.

For the owner of the state folder, while no actor has the session. Everything here blocks.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import TypeAlias

from perdure.edges import forgetting
from perdure.edges.blobs import LocalBlobs
from perdure.edges.disk import sync_folder
from perdure.edges.index import SessionIndex
from perdure.edges.parked import ParkedLetters
from perdure.edges.session import keys
from perdure.edges.session.header import read_header, reading
from perdure.edges.session.references import references, transcripts
from perdure.errors import StorageFailed, UnreadableFile, UsageError
from perdure.records import Record

GRAVE = ".deleted"


class Piece(Record):
    """A file that went: its path relative to the state folder, and its bytes."""

    path: str
    bytes: int


class Erased(Record):
    """What a deletion took. `rows`: lines of the index; `kept`: evidence that others refer to, too.

    `unread`: the file of another session that can't be read, for which no evidence was deleted. `pending`:
    plugins that have stores, and are told at once by a host that runs, else at its next start.
    """

    key: str
    files: tuple[Piece, ...] = ()
    evidence: tuple[Piece, ...] = ()
    kept: int = 0
    rows: int = 0
    unread: str = ""
    pending: tuple[str, ...] = ()

    @property
    def bytes(self) -> int:
        """All that was freed."""
        return sum(piece.bytes for piece in (*self.files, *self.evidence))


Collected: TypeAlias = tuple[tuple[Piece, ...], int, str]


def forget_nothing(_path: Path) -> None:
    """The hook of a host without a journal."""


class Eraser:
    """Deletes sessions of one state folder.

    `forget_journal(path)` is called as soon as the file at `path` is no session any more, and must take
    its records out of the journal: a replay would bring the file back.
    """

    def __init__(
        self,
        state: Path,
        blobs: LocalBlobs,
        index: SessionIndex | None,
        *,
        forget_journal: Callable[[Path], None] = forget_nothing,
        sync: bool = True,
    ) -> None:
        self.state, self.root = state, state / "sessions"
        self._blobs, self._index = blobs, index
        self.forget_journal, self._sync = forget_journal, sync

    def erase(self, key: str) -> Erased:
        """Delete everything that belongs to `key`. Raises `StorageFailed`; then `finish` goes on with it."""
        path = self.root / keys.relative_path(key)
        return self._erase(key, path, belongings(path))

    def erase_all(self, names: Iterable[str]) -> dict[str, str]:
        """Several sessions together: who refers to their evidence is read once. Those that failed, and why.

        A kill in between leaves graves, with which `finish` goes on.
        """
        graves: dict[str, Path] = {}
        failed: dict[str, str] = {}
        for key in names:
            path = self.root / keys.relative_path(key)
            try:
                grave = self._bury(path, belongings(path))
            except OSError as error:
                failed[key] = str(_undeletable(error, path))
            else:
                graves |= {key: grave} if grave is not None else {}
        try:
            self._collect([file for grave in graves.values() for file in _files(grave)])
        except OSError as error:
            return failed | dict.fromkeys(graves, str(_undeletable(error, self.root)))
        for key, grave in graves.items():
            try:
                self._empty(key, grave, collected=((), 0, ""))
            except OSError as error:
                failed[key] = str(_undeletable(error, grave))
            except StorageFailed as error:  # the index takes nothing
                failed[key] = str(error)
        return failed

    def _erase(self, key: str, path: Path, found: list[Path]) -> Erased:
        try:
            grave = self._bury(path, found)
            return self._empty(key, grave) if grave is not None else Erased(key)
        except OSError as error:
            raise _undeletable(error, path) from None

    def finish(self) -> list[Erased]:
        """Complete deletions that a kill interrupted. Costs a walk through the folders.

        Where a new session of that key has begun, its files are no leftovers of the old one.
        """
        graves = [
            Path(folder, name)
            for folder, names, _ in os.walk(self.root)
            for name in names
            if name.endswith(GRAVE)
        ]
        done = []
        for grave in graves:
            path = grave.with_name(grave.name.removesuffix(GRAVE) + keys.SUFFIX)
            if (key := self._key(path)) is not None:
                done.append(self._erase(key, path, [] if path.exists() else belongings(path)))
        return done

    def _key(self, path: Path) -> str | None:
        try:
            return keys.key_of(path.relative_to(self.root))
        except ValueError:
            return None

    def _bury(self, path: Path, found: list[Path]) -> Path | None:
        grave = path.with_name(path.name.removesuffix(keys.SUFFIX) + GRAVE)
        if not found and not grave.is_dir():
            return None
        grave.mkdir(mode=0o700, exist_ok=True)
        for each in found:
            if (there := grave / each.name).exists():  # of a deletion that was cut off
                shutil.rmtree(there) if there.is_dir() else there.unlink()
            os.rename(each, there)
        if self._sync:
            sync_folder(path.parent)
        for each in found:
            if each.name.endswith(keys.SUFFIX):
                self.forget_journal(each)
        return grave

    def _empty(self, key: str, grave: Path, collected: Collected | None = None) -> Erased:
        """`collected`: what became of its evidence, where that is done already."""
        files = _files(grave)
        ids = [id for path in files if (id := _session_id(path))]
        evidence, kept, unread = collected or self._collect(files)
        pieces = tuple(Piece(self._told(path), path.lstat().st_size) for path in sorted(files))
        ParkedLetters(self.state / "parked").forget_session(key)
        forgetting.note_gone(self.state, key, ids)
        shutil.rmtree(grave)
        _prune(grave.parent, self.root)
        rows = self._index.forget(key, ids) if self._index is not None else 0
        return Erased(key, pieces, evidence, kept, rows, unread, forgetting.waiting(self.state))

    def _told(self, path: Path) -> str:
        parts = (part for part in path.relative_to(self.state).parts if not part.endswith(GRAVE))
        return os.path.join(*parts)

    # --- evidence ---------------------------------------------------------------------------------

    def _collect(self, files: list[Path]) -> Collected:
        """Evidence that only these files refer to, deleted; how much others refer to; what is unread."""
        mine = {digest for path in files for digest in _readable(path) if self._is_stored(digest)}
        gone: list[Piece] = []
        unread: list[str] = []

        def only_mine() -> Iterable[str]:
            try:
                return sorted(mine - self.referred(set(files))) if mine else ()
            except (UnreadableFile, OSError) as error:
                unread.append(str(error))
                return ()

        def note(digest: str) -> None:
            path = self._blobs.path(digest)
            gone.append(Piece(os.fspath(path.relative_to(self.state)), path.stat().st_size))

        self._blobs.sweep(only_mine, note)
        return tuple(gone), len(mine) - len(gone), "".join(unread)

    def _is_stored(self, digest: str) -> bool:
        try:
            return self._blobs.has(digest)
        except UsageError:
            return False  # no hash, whatever it is

    def referred(self, without: Collection[Path] = ()) -> set[str]:
        """All digests that any file below `sessions/` refers to. Reads every one of them, in blocks.

        Raises `UnreadableFile`, `OSError`: what can't be read may refer to anything.
        """
        return references(path for path in transcripts(self.root) if path not in without)


def belongings(path: Path) -> list[Path]:
    """What belongs to the session of a file: itself first, then those before it, segments, backups, locks."""
    stem = path.name.removesuffix(keys.SUFFIX)
    if not path.parent.is_dir():
        return []
    found = [each for each in path.parent.iterdir() if each.name.startswith(f"{stem}.")]
    mine = (each for each in found if each.name != stem + GRAVE)
    return sorted(mine, key=lambda each: (each != path, each))


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files in a folder."""
    if not path.is_dir() or path.is_symlink():
        return path.lstat().st_size
    return sum(each.lstat().st_size for each in path.rglob("*") if not each.is_dir())


def _files(grave: Path) -> list[Path]:
    return [path for path in grave.rglob("*") if not path.is_dir()]


def _undeletable(error: OSError, path: Path) -> StorageFailed:
    place = error.filename or path
    return StorageFailed(f"{place}: can't be deleted ({error.strerror}): correct its rights, and repeat it")


def _readable(path: Path) -> set[str]:
    """A damaged segment of a session that goes tells nothing."""
    try:
        return references((path,))
    except (UnreadableFile, OSError):
        return set()


def _session_id(path: Path) -> str:
    if keys.SUFFIX not in path.name or path.name.endswith((".lock", ".swap")):
        return ""
    try:
        with reading(path) as file:
            header = read_header(file.fd, file.size)
    except UnreadableFile:
        return ""
    return header.id if header is not None else ""


def _prune(folder: Path, root: Path) -> None:
    """Folders that are made for one long key, and the agent's own, go with the last session in them."""
    while folder != root:
        try:
            folder.rmdir()
        except OSError:
            return
        folder = folder.parent

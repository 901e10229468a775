"""SQLite for plugins, by apsw: one way to open a database, to write to it, and to tell what is wrong.

WAL, a busy timeout, foreign keys, and `secure_delete`, so that of what was deleted no byte stays in free
pages. Schemas are lists of SQL scripts, one per version; `user_version` counts those that ran. Texts go in
through `storable`. All of it blocks: call it through `PluginRuntime.run_blocking`. A connection is used by
one thread at a time; `Database` sees to that, and turns whatever SQLite says into two errors:
`StorageFailed` (the disk, rights, another process: retryable) and `DamagedStore` (the file itself: rebuild
it).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Any

import apsw
import sqlite_vec

from perdure.context.text.characters import encodable
from perdure.edges import disk
from perdure.errors import DamagedStore, NewerState, PerdureError, StorageFailed

BUSY_MS = 5_000
"""How long another process may hold the database before a call gives up."""

_DISK = (
    apsw.FullError, apsw.IOError, apsw.ReadOnlyError, apsw.CantOpenError, apsw.BusyError, apsw.LockedError,
    apsw.PermissionsError, apsw.AuthError, apsw.NoMemError, apsw.ProtocolError,
)  # fmt: skip
_DAMAGED = (apsw.NotADBError, apsw.CorruptError, apsw.FormatError)
_PRAGMAS = """
pragma journal_mode = wal;
pragma foreign_keys = on;
pragma secure_delete = on;
pragma temp_store = memory;
"""


def open(
    path: Path, *, vectors: bool = False, migrations: Sequence[str] = (), sync: bool = True
) -> apsw.Connection:
    """Open or make the database at `path`, with the schema that `migrations` build.

    `vectors` loads sqlite-vec (tables `using vec0`, functions `vec_…`). A script may hold several statements
    and runs once, in one transaction with its number. Without `sync` nothing waits for the disk.
    Raises `StorageFailed`, `DamagedStore` (no database, or one of something else), `NewerState`.
    """
    with failures(path):
        _keep_private(path)
        db = apsw.Connection(os.fspath(path))
        try:
            db.set_busy_timeout(BUSY_MS)
            if vectors:
                _load_vectors(db)
            _run(db, f"{_PRAGMAS} pragma synchronous = {'normal' if sync else 'off'}")
            _migrate(db, path, migrations)
        except BaseException:
            db.close()
            raise
    return db


class Database:
    """One connection with its lock: whole reads and whole writes, from any thread.

    Takes what `open` takes. After `close` every call raises `StorageFailed`; once its file was deleted or
    replaced, `DamagedStore`: SQLite itself would go on with a file that nobody will find again.
    """

    def __init__(
        self, path: Path, *, vectors: bool = False, migrations: Sequence[str] = (), sync: bool = True
    ) -> None:
        self.path = path
        self._lock = Lock()
        self._db = open(path, vectors=vectors, migrations=migrations, sync=sync)
        self._file = _file_of(path)

    @contextmanager
    def reading(self) -> Iterator[apsw.Connection]:
        """The connection, for this thread alone. Raises `StorageFailed`, `DamagedStore`."""
        with self._lock, failures(self.path):
            self._look()
            yield self._db

    @contextmanager
    def writing(self) -> Iterator[apsw.Connection]:
        """One transaction: all of it is stored, or nothing. Raises `StorageFailed`, `DamagedStore`."""
        with self._lock:
            self._look()
            with transaction(self._db, self.path):
                yield self._db

    @property
    def gone(self) -> bool:
        """Whether another file bears its name now, or none."""
        return _file_of(self.path) != self._file

    def _look(self) -> None:
        if self.gone:
            raise damaged(self.path, "its file is gone")

    def scrub(self) -> None:
        """Nothing that was deleted stays in the file or its log: costs a copy of the whole database."""
        with self.reading() as db:
            disk.announce("write", self.path)
            db.execute("vacuum")
            db.execute("pragma wal_checkpoint(truncate)").fetchall()

    def close(self) -> None:
        """Close it; a second time is fine."""
        with self._lock:
            close(self._db)


@contextmanager
def transaction(db: apsw.Connection, path: Path) -> Iterator[apsw.Connection]:
    """`begin immediate` … `commit`, or a roll back. Raises `StorageFailed`, `DamagedStore`."""
    with failures(path):
        disk.announce("write", path)
        db.execute("begin immediate")
        try:
            yield db
            db.execute("commit")
        except BaseException:
            if db.in_transaction:  # a full disk has rolled it back already
                db.execute("rollback")
            raise


@contextmanager
def failures(path: Path) -> Iterator[None]:
    """Turn what SQLite and the disk raise into one line for a person. A mistake in SQL passes through."""
    try:
        yield
    except OSError as error:
        raise _of_the_disk(path, error.strerror or str(error)) from None
    except apsw.SQLError as error:
        if "no such table" in str(error):  # there were, when it was opened
            raise damaged(path, "its tables are gone") from None
        raise
    except apsw.ConnectionClosedError:
        raise StorageFailed(f"{path}: the database is closed: open it again") from None
    except _DISK as error:
        if getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_SHORT_READ:
            raise damaged(path, "it was cut short") from None
        raise _of_the_disk(path, str(error)) from None
    except _DAMAGED as error:
        raise damaged(path, str(error)) from None


def damaged(path: Path, what: str) -> DamagedStore:
    """The error for a file that is no database of ours."""
    return DamagedStore(f"{path}: the database can't be used ({what}): move it aside, it is rebuilt")


def set_aside(path: Path) -> Path:
    """Rename a database that can't be used, with its log, to `<name>.damaged-<n>`; where it is now, as far as
    there is something left of it.

    Never done unasked: only its plugin knows whether the file can be rebuilt. Raises `StorageFailed`.
    """
    number = 1
    while (kept := Path(f"{path}.damaged-{number}")).exists():
        number += 1
    with failures(path):
        for suffix in ("", "-wal", "-shm"):
            if (beside := Path(f"{path}{suffix}")).exists():
                disk.rename(beside, Path(f"{kept}{suffix}"))
    return kept


def _file_of(path: Path) -> tuple[int, int] | None:
    """Which file bears the name now."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def storable(text: str) -> str:
    """A text that SQLite takes: lone surrogates, which have no UTF-8, become U+FFFD."""
    return encodable(text)


def rows(db: apsw.Connection, query: str, *given: object) -> list[tuple[Any, ...]]:
    """All that a query answers."""
    return db.execute(query, given).fetchall()


def value(db: apsw.Connection, query: str, *given: object) -> Any:
    """The only value of the only row that a query answers; `None` where it has none."""
    return db.execute(query, given).get


def discard(path: Path) -> None:
    """Delete a database of which nothing is lost: one that is made again from what it was made of.

    Nobody may have it open. Raises `StorageFailed`.
    """
    with failures(path):
        for suffix in ("", "-wal", "-shm"):
            disk.unlink(f"{path}{suffix}", missing_ok=True)


def close(db: apsw.Connection) -> None:
    """Close a connection. What was committed is stored, or in the log beside the file."""
    with suppress(apsw.Error):
        db.close()


def _load_vectors(db: apsw.Connection) -> None:
    db.enable_load_extension(True)
    try:
        db.load_extension(sqlite_vec.loadable_path())
    except apsw.ExtensionLoadingError as error:
        raise PerdureError(f"sqlite-vec can't be loaded ({error}): install perdure again") from None
    finally:
        db.enable_load_extension(False)


def _migrate(db: apsw.Connection, path: Path, scripts: Sequence[str]) -> None:
    if not scripts or _version(db) == len(scripts):
        return
    with transaction(db, path):  # another process may be about to do the same
        done = _version(db)
        if done > len(scripts):
            raise NewerState(os.fspath(path), f"schema version {done}", len(scripts))
        if not done and db.execute("select count(*) from sqlite_master").get:
            raise damaged(path, "its tables are of another program")
        for script in scripts[done:]:
            _run(db, script)
        db.execute(f"pragma user_version = {len(scripts)}")


def _run(db: apsw.Connection, script: str) -> None:
    db.execute(script).fetchall()  # a statement that answers would hold up those behind it


def _version(db: apsw.Connection) -> int:
    version: int = db.execute("pragma user_version").get
    return version


def _keep_private(path: Path) -> None:
    """SQLite gives the files it makes beside a database the rights of the database."""
    os.close(disk.open_(path, os.O_RDONLY | os.O_CREAT))
    for name in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
        if name.exists() and name.stat().st_mode & 0o077:
            name.chmod(0o600)


def _of_the_disk(path: Path, what: str) -> StorageFailed:
    return StorageFailed(
        f"{path}: the database can't be used ({what}): make room, or see that it may be written"
    )

"""`SessionIndex`: what is in which session file, in SQLite beside the files. Never the truth.

Deleting it, or finding it damaged or of another version, costs a scan (`rebuild`). It answers what would
need every file to be opened: lists, the next timers, unfinished work after a restart, and message ids
older than those a session file remembers itself. Calls block (run them through the I/O policy), may
come from any thread, and raise `StorageFailed`, whatever SQLite says.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Any

from perdure.edges import disk
from perdure.edges.session.facts import Seen
from perdure.errors import NewerState, StorageFailed
from perdure.records import Record

VERSION = 2
BEGUN = -VERSION  # its tables are there, its rows are not
_SCHEMA = """
create table sessions (
    key text primary key, path text not null, size integer not null, mtime_ns integer not null,
    entries integer, updated integer not null, next_timer integer, open_turn integer not null,
    pending integer not null, name text
) without rowid;
create index timers on sessions (next_timer) where next_timer is not null;
create index unfinished on sessions (key) where open_turn or pending;
create table seen (
    session text not null, sender text not null, mid text not null, entry text not null,
    primary key (session, sender, mid)
) without rowid;
"""
_PUT = "insert or replace into sessions values (?,?,?,?,?,?,?,?,?,?)"


class Row(Record):
    """One session. Times in milliseconds since 1970; `entries` is `None` where they were not counted.

    `open_turn`: a turn was running when this was written; `pending`: letters that wait, answers not yet out.
    """

    key: str
    path: str
    size: int
    mtime_ns: int
    entries: int | None = None
    updated: int = 0
    next_timer: int | None = None
    open_turn: bool = False
    pending: int = 0
    name: str | None = None


class SessionIndex:
    """Opens or makes the index. `fresh`: there was none of use, `rebuild` should follow.

    One that was begun and never rebuilt (its host was killed) is fresh again at the next start.
    """

    def __init__(self, path: Path, *, sync: bool = True) -> None:
        self.path, self._sync = path, sync
        self._lock = Lock()
        self.fresh = False
        self._put_since: set[str] | None = None  # keys put while a scan runs: what it found is older
        try:
            self._db = self._open_or_replace()
        except (sqlite3.Error, OSError) as error:
            raise self._failed(error) from None

    # --- sessions ---------------------------------------------------------------------------------

    def put(self, *rows: Row) -> None:
        """Insert or replace rows."""
        with self._writing() as db:
            db.executemany(_PUT, map(_values, rows))
            if self._put_since is not None:
                self._put_since.update(row.key for row in rows)

    def get(self, key: str) -> Row | None:
        """The row of a session."""
        return next(self._rows("where key = ?", _text(key)), None)

    def rows(self) -> list[Row]:
        """All sessions, the one that changed last first."""
        return list(self._rows("order by updated desc, key"))

    def unfinished(self) -> list[Row]:
        """Sessions with an open turn or waiting letters: what a restart goes on with."""
        return list(self._rows("where open_turn or pending order by updated, key"))

    def due(self, now_ms: int, most: int = -1) -> list[Row]:
        """Sessions whose timer has come, earliest first, at most so many."""
        return list(self._rows("where next_timer <= ? order by next_timer, key limit ?", now_ms, most))

    def set_timers(self, timers: Iterable[tuple[str, int | None]]) -> None:
        """When the next timer of sessions comes; one that is not in the index stays out."""
        with self._writing() as db:
            db.executemany(
                "update sessions set next_timer = ? where key = ?", [(due, _text(key)) for key, due in timers]
            )

    def all_due(self, now_ms: int) -> None:
        """Every timer is to be looked at: what was written of later times was by a wrong clock."""
        with self._writing() as db:
            db.execute("update sessions set next_timer = ? where next_timer > ?", (now_ms, now_ms))

    def next_timer(self) -> int | None:
        """When the earliest timer comes."""
        with self._reading() as db:
            found: int | None = db.execute("select min(next_timer) from sessions").fetchone()[0]
        return found

    def remove(self, key: str, session: str | None = None) -> None:
        """Forget a session; with its header's id the message ids, too."""
        with self._writing() as db:
            db.execute("delete from sessions where key = ?", (_text(key),))
            if session is not None:
                db.execute("delete from seen where session = ?", (_text(session),))
            if self._put_since is not None:
                self._put_since.add(key)

    def forget(self, key: str, sessions: Iterable[str]) -> int:
        """Forget a key and the message ids of all its files; how many rows that were.

        What is freed is overwritten, and the write-ahead log emptied: no text of them stays in the file.
        """
        with self._reading() as db:
            before = db.total_changes
        for session in (None, *sessions):
            self.remove(key, session)
        with self._reading() as db:
            db.execute("pragma wal_checkpoint(truncate)")
            return db.total_changes - before

    # --- message ids ------------------------------------------------------------------------------

    def remember(self, session: str, seen: Iterable[Seen]) -> None:
        """Keep message ids of a session (the header's id) beyond what its file remembers."""
        rows = [(_text(session), _text(s.sender), _text(s.mid), _text(s.entry)) for s in seen]
        with self._writing() as db:
            db.executemany("insert or replace into seen values (?,?,?,?)", rows)

    def seen(self, session: str, sender: str, mid: str) -> str | None:
        """The entry that a message became, if it is known here."""
        query = "select entry from seen where session = ? and sender = ? and mid = ?"
        with self._reading() as db:
            found = db.execute(query, (_text(session), _text(sender), _text(mid))).fetchone()
        return None if found is None else text_of(found[0])

    # --- whole ------------------------------------------------------------------------------------

    def rebuild(self, rows: Iterable[Row]) -> int:
        """Replace all sessions by what a scan finds; message ids are kept. Returns their number.

        `rows` is walked without the lock, however long that takes: sessions go on, and what they put
        meanwhile is newer than what the scan found.
        """
        self._put_since = set()
        try:
            found = list(rows)
            with self._writing() as db:
                newer = self._put_since
                stale = [(_text(row[0]),) for row in self._keys(db) if row[0] not in newer]
                db.executemany("delete from sessions where key = ?", stale)
                db.executemany(_PUT, (_values(row) for row in found if row.key not in newer))
                db.execute(f"pragma user_version = {VERSION}")
                count: int = db.execute("select count(*) from sessions").fetchone()[0]
        finally:
            self._put_since = None
        self.fresh = False
        return count

    def _keys(self, db: sqlite3.Connection) -> list[tuple[str]]:
        return [(text_of(row[0]),) for row in db.execute("select key from sessions").fetchall()]

    def close(self) -> None:
        """Close the database."""
        with self._lock, suppress(sqlite3.Error):  # of a full disk: what was committed is in the log
            self._db.close()

    def _open_or_replace(self) -> sqlite3.Connection:
        try:
            return self._open()
        except sqlite3.DatabaseError as error:
            if _of_the_disk(error):
                raise  # nothing is wrong with the index itself
            self._drop()
            return self._open()

    def _open(self) -> sqlite3.Connection:
        self._keep_private()
        db = sqlite3.connect(self.path, check_same_thread=False, isolation_level=None, timeout=5.0)
        try:
            version = db.execute("pragma user_version").fetchone()[0]
            if version > VERSION:  # it alone knows the oldest message ids: not to be thrown away
                raise NewerState(str(self.path), f"index version {version}", VERSION)
            db.execute("pragma journal_mode = wal")
            db.execute(f"pragma synchronous = {'normal' if self._sync else 'off'}")
            db.execute("pragma secure_delete = on")  # of a deleted session nothing stays in free pages
            if version not in (VERSION, BEGUN):
                if db.execute("select count(*) from sqlite_master").fetchone()[0]:
                    raise sqlite3.DatabaseError("another version")
                db.executescript(f"begin; {_SCHEMA} pragma user_version = {BEGUN}; commit;")
                self.fresh = True
            elif db.execute("pragma quick_check").fetchone()[0] != "ok":
                raise sqlite3.DatabaseError("damaged")
            self.fresh = self.fresh or version == BEGUN
        except BaseException:
            db.close()
            raise
        return db

    def _keep_private(self) -> None:
        """SQLite gives the files it makes beside a database the rights of the database."""
        os.close(disk.open_(self.path, os.O_RDONLY | os.O_CREAT))
        for name in self._names():
            if name.exists() and name.stat().st_mode & 0o077:
                name.chmod(0o600)

    def _names(self) -> list[Path]:
        return [Path(f"{self.path}{suffix}") for suffix in ("", "-wal", "-shm")]

    def _drop(self) -> None:
        for name in self._names():
            name.unlink(missing_ok=True)

    def _failed(self, error: Exception) -> StorageFailed:
        what = getattr(error, "strerror", None) or str(error)
        if isinstance(error, OSError) or _of_the_disk(error):
            return StorageFailed(
                f"{self.path}: the index can't be used ({what}): make room, or see that it may be written"
            )
        return StorageFailed(f"{self.path}: the index failed ({what}): delete it, it is rebuilt")

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._reading() as db:
            disk.announce("write", self.path)
            db.execute("begin immediate")
            try:
                yield db
                db.execute("commit")
            except BaseException:
                if db.in_transaction:  # a full disk has rolled it back already
                    db.execute("rollback")
                raise

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        try:
            with self._lock:
                yield self._db
        except sqlite3.Error as error:
            raise self._failed(error) from None

    def _rows(self, clause: str, *arguments: object) -> Iterator[Row]:
        with self._reading() as db:
            found = db.execute(f"select * from sessions {clause}", arguments).fetchall()
        return map(_row, found)


_DISK = frozenset({
    sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH,
    sqlite3.SQLITE_NOMEM,
})  # fmt: skip


def _of_the_disk(error: Exception) -> bool:
    """Whether a failure comes from around the database (room, rights, another process), not from in it."""
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in _DISK  # the low byte; the others tell details


def _row(values: tuple[Any, ...]) -> Row:
    key, path, size, mtime_ns, entries, updated, next_timer, turn, pending, name = values
    named = None if name is None else text_of(name)
    times = (updated, next_timer)
    return Row(text_of(key), text_of(path), size, mtime_ns, entries, *times, bool(turn), pending, named)


def _values(row: Row) -> tuple[Any, ...]:
    return (
        _text(row.key),
        _text(row.path),
        row.size,
        row.mtime_ns,
        row.entries,
        row.updated,
        row.next_timer,
        row.open_turn,
        row.pending,
        None if row.name is None else _text(row.name),
    )


def _text(text: str) -> str | bytes:
    """SQLite's texts take no lone surrogates; bytes they are then."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
    return text


def text_of(value: str | bytes) -> str:
    """A text as it was put in."""
    return value if isinstance(value, str) else value.decode("utf-8", "surrogatepass")

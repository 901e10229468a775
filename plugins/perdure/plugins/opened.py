"""`Opened`: a plugin's database, opened at its first use, not when the host makes the plugin."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import apsw

from perdure.edges.sqlite import Database


class Opened:
    """What `Database` offers, from any thread; after `close`, and where its file went away, it opens
    again. Blocks, and raises as that does.
    """

    def __init__(self, path: Path, migrations: Sequence[str], *, sync: bool) -> None:
        self._path, self._migrations, self._sync = path, migrations, sync
        self._lock = threading.Lock()
        self._database: Database | None = None

    def reading(self) -> AbstractContextManager[apsw.Connection]:
        """The connection, for this thread alone."""
        return self._open().reading()

    def writing(self) -> AbstractContextManager[apsw.Connection]:
        """One transaction: all of it is stored, or nothing."""
        return self._open().writing()

    def scrub(self) -> None:
        """Nothing that was deleted stays in the file or its log."""
        self._open().scrub()

    def close(self) -> None:
        """Close it, where it is open."""
        with self._lock:
            if self._database is not None:
                self._database.close()
            self._database = None

    def _open(self) -> Database:
        with self._lock:
            if self._database is not None and self._database.gone:
                self._database.close()
                self._database = None
            if self._database is None:
                self._database = Database(self._path, migrations=self._migrations, sync=self._sync)
            return self._database

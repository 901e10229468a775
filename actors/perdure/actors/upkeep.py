"""What a host does beside the sessions, once a second at most: fsync, locks kept fresh, the index.

Everything here may be late or fail without harm to a session: acknowledgements don't wait for it (that
is durability `process`), the lock is for other programs, and the index can be rebuilt by a scan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

from perdure.edges.index import Row, SessionIndex
from perdure.edges.log import Log
from perdure.edges.session.facts import Seen
from perdure.edges.session.files import Held, Listed
from perdure.edges.session.survey import survey
from perdure.errors import PerdureError
from perdure.kernel.deadlines import Timer
from perdure.kernel.errors import Closed
from perdure.kernel.io import IoPolicy
from perdure.kernel.kernel import Kernel

SECOND = 1.0
LOCKS_EVERY = 300.0  # seconds; the lock itself is rewritten when it is ten minutes old
SURVEYED = 4 * 1024 * 1024  # bytes of a file that is counted whole when its session falls asleep


def open_index(path: Path, log: Log) -> SessionIndex | None:
    """The index, or none where the disk has no room or rights for it: sessions go on without it."""
    try:
        return SessionIndex(path)
    except PerdureError as error:
        log.warning("index.failed", error=str(error))
        return None


class Upkeep:
    """One for a host. `index` is `None` under virtual time, where nothing outlives the run."""

    def __init__(self, kernel: Kernel, io: IoPolicy, index: SessionIndex | None, log: Log) -> None:
        self._kernel, self._io, self._index, self._log = kernel, io, index, log
        self._dirty: set[Held] = set()
        self._older: list[tuple[str, Seen]] = []
        self._asleep: dict[str, tuple[Held, bool]] = {}
        self._awake: set[Held] = set()
        self._timer: Timer | None = None
        self._locks_due = kernel.clock.now() + LOCKS_EVERY

    @property
    def indexed(self) -> bool:
        """Whether there is an index."""
        return self._index is not None

    def begin(self, files: Callable[[], Iterable[Listed]], wake: Callable[[str], None]) -> None:
        """Make an index that is missing, and wake the sessions that were closed with work to do."""
        if self._index is not None:
            self._kernel.start("index", self._begin, self._index, files, wake)

    async def _begin(
        self, index: SessionIndex, files: Callable[[], Iterable[Listed]], wake: Callable[[str], None]
    ) -> None:
        try:
            if index.fresh:
                found = await self._io.run(lambda: index.rebuild(self._rows(files())))
                self._log("index.rebuilt", sessions=found)
            rows = await self._io.run(lambda: [row for row in index.unfinished() if Path(row.path).exists()])
        except PerdureError as error:
            self._log.warning("index.failed", error=str(error))
            return
        for row in rows:
            wake(row.key)

    def _rows(self, files: Iterable[Listed]) -> Iterator[Row]:
        for listed in files:
            try:
                yield survey(listed)
            except (PerdureError, OSError) as error:
                self._log.warning("index.left_out", file=listed.path, error=str(error))

    # --- told by the sessions -----------------------------------------------------------------------

    def woke(self, held: Held) -> None:
        """A session is awake: its lock is kept fresh."""
        self._awake.add(held)
        self._arm()

    def killed(self) -> None:
        """Nothing is ours any more: what a killed process leaves undone stays undone."""
        self._awake.clear()
        self._dirty.clear()

    def wrote(self, held: Held) -> None:
        """Something was appended: it is made durable within a second."""
        if self._io.sync:
            self._dirty.add(held)
            self._arm()

    def slept(self, key: str, held: Held, *, unfinished: bool) -> None:
        """A session's file was let go; `unfinished`: letters wait in it, or a turn was cut off."""
        self._awake.discard(held)
        self._dirty.discard(held)
        if self._index is not None:
            self._asleep[key] = held, unfinished
            self._arm()

    def evicted(self, session: str, seen: Seen) -> None:
        """A message id left the window that the file itself remembers."""
        if self._index is not None:
            self._older.append((session, seen))
            self._arm()

    def older(self, session: str, sender: str, mid: str) -> str | None:
        """The entry of a letter that was taken before the window, if the index knows it."""
        for known, seen in self._older:
            if (known, seen.sender, seen.mid) == (session, sender, mid):
                return seen.entry
        try:
            return self._index.seen(session, sender, mid) if self._index is not None else None
        except PerdureError as error:
            self._log.warning("index.failed", error=str(error))
            return None

    # --- once a second ------------------------------------------------------------------------------

    def _arm(self) -> None:
        if self._timer is None and not self._kernel.clock.virtual:
            self._timer = self._kernel.clock.call_after(SECOND, self._due)

    def _due(self) -> None:
        self._timer = None
        try:
            self._kernel.start("upkeep", self.flush)
        except Closed:
            return  # the host stops: it flushes itself

    async def flush(self) -> None:
        """Do what has come together since the last time."""
        await self._io.run(self._work)
        if self._awake or self._dirty or self._older or self._asleep:
            self._arm()

    def _work(self) -> None:
        dirty, self._dirty = self._dirty, set()
        for held in dirty:
            self._quietly("session.sync_failed", held.file.sync)
        self._locks()
        if self._index is None:
            return
        older, self._older = self._older, []
        for session, seen in older:
            self._quietly("index.failed", partial(self._remember, session, seen))
        asleep, self._asleep = self._asleep, {}
        for key, (held, unfinished) in asleep.items():
            self._quietly("index.failed", partial(self._put, key, held, unfinished))

    def _locks(self) -> None:
        now = self._kernel.clock.now()
        if now < self._locks_due:
            return
        self._locks_due = now + LOCKS_EVERY
        for held in list(self._awake):
            self._quietly("session.lock_failed", partial(self._refresh, held))

    def _refresh(self, held: Held) -> None:
        if not held.lock.refresh(self._kernel.clock.wall_ms()):
            self._awake.discard(held)  # told once: our own safety doesn't rest on it
            self._log.warning("session.lock_taken", file=str(held.file.path))

    def _remember(self, session: str, seen: Seen) -> None:
        assert self._index is not None
        self._index.remember(session, (seen,))

    def _put(self, key: str, held: Held, unfinished: bool) -> None:
        assert self._index is not None
        status = held.file.path.stat()
        listed = Listed(key, str(held.file.path), status.st_size, status.st_mtime_ns)
        if status.st_size <= SURVEYED:
            self._index.put(survey(listed))
        else:
            updated = listed.mtime_ns // 1_000_000
            row = Row(key, listed.path, listed.size, listed.mtime_ns, updated=updated, open_turn=unfinished)
            self._index.put(row)

    def _quietly(self, event: str, work: Callable[[], None]) -> None:
        try:
            work()
        except (PerdureError, OSError) as error:
            self._log.graded(event, error=str(error))

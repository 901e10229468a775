"""What a host does beside the sessions, once a second at most: fsync, locks kept fresh, the index.

Everything here may be late or fail without harm to a session: acknowledgements don't wait for it (that
is durability `process`), the lock is for other programs, and the index can be rebuilt by a scan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import count
from pathlib import Path

from msgspec.structs import replace

from perdure.edges import disk
from perdure.edges.index import Row, SessionIndex
from perdure.edges.log import Log
from perdure.edges.segments import segments_of
from perdure.edges.session.facts import RECENT_IDS, Seen
from perdure.edges.session.files import Held, Listed
from perdure.edges.session.load import load
from perdure.edges.session.survey import letters, survey
from perdure.errors import NewerState, PerdureError
from perdure.kernel.deadlines import Timer
from perdure.kernel.errors import Closed
from perdure.kernel.io import IoPolicy
from perdure.kernel.kernel import Kernel

SECOND = 1.0
BEGIN_AGAIN = 0.5  # seconds, doubled with each try: until an index that failed at the start is tried again
LOCKS_EVERY = 300.0  # seconds; the lock itself is rewritten when it is ten minutes old
MANY = 1_000  # dirty files in a second from which one sync of the file system is cheaper than theirs
LEAST_LETTER = 100  # bytes of the line of a message, at least
SURVEYED = 4 * 1024 * 1024  # bytes of a file that is counted whole when its session falls asleep


def open_index(path: Path, log: Log) -> SessionIndex | None:
    """The index, or none where the disk has no room or rights for it: sessions go on without it.

    Raises `NewerState`: an older perdure has no business in this folder.
    """
    try:
        return SessionIndex(path)
    except NewerState:
        raise
    except PerdureError as error:
        log.warning("index.failed", error=str(error))
        return None


class Upkeep:
    """One for a host. `index` is `None` under virtual time, where nothing outlives the run. `syncs` False: a
    journal has what was appended, and syncs the files when it is trimmed.
    """

    def __init__(
        self, kernel: Kernel, io: IoPolicy, index: SessionIndex | None, log: Log, *, syncs: bool = True
    ) -> None:
        self._kernel, self._io, self._index, self._log = kernel, io, index, log
        self._syncs = syncs and io.sync
        self.settled: Callable[[Iterable[str]], None] = lambda _digests: None  # evidence has its entry
        self._dirty: set[Held] = set()
        self._older: list[tuple[str, Seen]] = []
        self._asleep: dict[str, tuple[Held, bool, int | None]] = {}
        self.on_stored: Callable[[int | None, Iterable[str]], None] = lambda _earliest, _keys: None
        self._awake: set[Held] = set()
        self._timer: Timer | None = None
        self._locks_due = kernel.clock.now() + LOCKS_EVERY

    @property
    def index(self) -> SessionIndex | None:
        """The index, where there is one."""
        return self._index

    @property
    def indexed(self) -> bool:
        """Whether there is an index."""
        return self._index is not None

    def begin(self, files: Callable[[], Iterable[Listed]], wake: Callable[[str], None]) -> None:
        """Make an index that is missing, and wake the sessions that were closed with work to do."""
        if self._index is not None:
            self._kernel.start("index", self._begin, self._index, files, wake)
        elif not self._kernel.clock.virtual:
            self._kernel.start("index", self._without, files, wake)

    async def _without(self, files: Callable[[], Iterable[Listed]], wake: Callable[[str], None]) -> None:
        """No index can be had: who waits for an answer is found in the files, which are all read once."""
        for key in await self._io.run(lambda: list(self._unanswered(files()))):
            wake(key)

    def _unanswered(self, files: Iterable[Listed]) -> Iterator[str]:
        for listed in files:
            try:
                row = survey(listed)
            except (PerdureError, OSError) as error:
                self._log.warning("index.left_out", file=listed.path, error=str(error))
                continue
            if row.pending or row.open_turn:
                yield row.key

    async def _begin(
        self, index: SessionIndex, files: Callable[[], Iterable[Listed]], wake: Callable[[str], None]
    ) -> None:
        """A disk that fails now may work soon, and who waits for an answer must not wait for a restart."""
        for tries in count():
            try:
                rows = await self._begun(index, files)
                break
            except (PerdureError, OSError) as error:
                self._log.warning("index.failed", error=str(error))
            await self._kernel.clock.sleep(min(BEGIN_AGAIN * 2.0 ** min(tries, 9), LOCKS_EVERY))
        for row in rows:
            wake(row.key)

    async def _begun(self, index: SessionIndex, files: Callable[[], Iterable[Listed]]) -> list[Row]:
        """Sessions with work to do, of an index that knows all files. Raises `PerdureError`, `OSError`."""
        if index.fresh:
            found = await self._io.run(lambda: index.rebuild(self._rows(files())))
            self._log("index.rebuilt", sessions=found)
        elif changed := await self._io.run(lambda: self._caught_up(index, files())):
            self._log("index.caught_up", sessions=changed)
        self.on_stored(await self._io.run(index.next_timer), ())
        return await self._io.run(lambda: [row for row in index.unfinished() if Path(row.path).exists()])

    def _caught_up(self, index: SessionIndex, files: Iterable[Listed]) -> int:
        """Read again what changed behind the index: by another program, or by a host that was killed."""
        known = {row.key: (row.size, row.mtime_ns) for row in index.rows()}
        changed = [each for each in files if each.key and known.get(each.key) != (each.size, each.mtime_ns)]
        index.put(*self._rows(changed))
        return len(changed)

    def _rows(self, files: Iterable[Listed]) -> Iterator[Row]:
        for listed in files:
            try:
                yield survey(listed)
                self._letters(Path(listed.path), listed.size)
            except (PerdureError, OSError) as error:
                self._log.warning("index.left_out", file=listed.path, error=str(error))

    def _letters(self, path: Path, size: int) -> None:
        """Message ids beyond those that a file remembers itself were in the lost index alone."""
        assert self._index is not None
        if size < RECENT_IDS * LEAST_LETTER and not segments_of(path):
            return
        seen = list(letters(path))
        if len(seen) > RECENT_IDS:
            self._index.remember(load(path).header.id, seen)

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
        if self._syncs:
            self._dirty.add(held)
            self._arm()

    def leave(self, key: str, held: Held, due: int | None, *, owing: bool) -> None:
        """Let a session's file go. Blocking. `owing`: answers wait for a channel; where the lock is gone,
        only the index tells a later host so, and it must not learn it too late.
        """
        if owing and self._index is not None:
            self._quietly("index.failed", partial(self._put, key, held, True, due))
        held.close(handover=True)

    def slept(self, key: str, held: Held, *, unfinished: bool, due: int | None = None) -> None:
        """A session's file was let go; `unfinished`: letters wait in it, or a turn was cut off; `due`: when
        its next timer comes.
        """
        self._awake.discard(held)
        self._dirty.discard(held)
        if self._index is not None:
            self._asleep[key] = held, unfinished, due
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

    def erased(self, key: str) -> None:
        """A session is gone for good: what was still to be noted about it is forgotten."""
        self._asleep.pop(key, None)

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
        if stored := await self._io.run(self._work):
            earliest = min((due for due in stored.values() if due is not None), default=None)
            self.on_stored(earliest, [key for key in stored if key not in self._asleep])
        if self._awake or self._dirty or self._older or self._asleep:
            self._arm()

    def _work(self) -> dict[str, int | None]:
        """Sessions that the index has now, and when their next timer comes."""
        dirty, self._dirty = self._dirty, set()
        if len(dirty) < MANY or not self._synced_at_once(dirty):
            for held in dirty:
                self._quietly("session.sync_failed", held.file.sync)
        self._locks()
        if self._index is None:
            return {}
        older, self._older = self._older, []
        for session, seen in older:
            self._quietly("index.failed", partial(self._remember, session, seen))
        asleep, self._asleep = self._asleep, {}
        return {
            key: due
            for key, (held, unfinished, due) in asleep.items()
            if self._quietly("index.failed", partial(self._put, key, held, unfinished, due))
        }

    def _synced_at_once(self, dirty: set[Held]) -> bool:
        """Whether one sync of the file system has made them all durable."""
        try:
            return disk.syncfs(next(iter(dirty)).file.path)
        except OSError as error:
            self._log.warning("session.sync_failed", error=str(error))
            return False

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

    def _put(self, key: str, held: Held, unfinished: bool, due: int | None) -> None:
        assert self._index is not None
        status = held.file.path.stat()
        listed = Listed(key, str(held.file.path), status.st_size, status.st_mtime_ns)
        if status.st_size <= SURVEYED:
            self._index.put(replace(survey(listed), next_timer=due))
        else:
            updated = listed.mtime_ns // 1_000_000
            name = held.opened.name
            row = Row(key, listed.path, listed.size, listed.mtime_ns, updated=updated, open_turn=unfinished)
            self._index.put(replace(row, name=name, next_timer=due))

    def _quietly(self, event: str, work: Callable[[], None]) -> bool:
        try:
            work()
        except (PerdureError, OSError) as error:
            self._log.graded(event, error=str(error))
            return False
        return True

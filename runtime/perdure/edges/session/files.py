"""`SessionFiles`: which file a session key has, and how a session file comes into our hands.

Opening for writing takes the lock, completes what a crash interrupted, takes the file over from an owner
that did not release it (a new inode, so that a paused one can't be acknowledged), and migrates old
versions, with a backup. All of it blocks: run it through the I/O policy.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from perdure.contracts import Grant
from perdure.edges import disk
from perdure.edges.journal.journal import Journal
from perdure.edges.journal.run import Run
from perdure.edges.schedule import Timer
from perdure.edges.session import keys, lines, swap
from perdure.edges.session.facts import Opened
from perdure.edges.session.header import newer
from perdure.edges.session.ids import MOST, Ids
from perdure.edges.session.kin import ChildGrant, Fact
from perdure.edges.session.lock import SessionLock
from perdure.edges.session.tail import open_session
from perdure.edges.session.upgrade import upgrade
from perdure.edges.session.writer import LocalSessionFile
from perdure.errors import Fenced, SessionNotFound, StorageFailed, UnreadableFile, UsageError
from perdure.records import Record


class Listed(Record):
    """A file below `sessions/`; `key` is `None` where the name is not one of ours."""

    key: str | None
    path: str
    size: int
    mtime_ns: int


@dataclass(slots=True, eq=False)
class Held:
    """A session file in our hands: the writer, what waking yields, and the lock to keep fresh.

    `ids` makes the ids of new entries: one counter for the whole ownership, so that no sleep and no clock
    can make two alike.
    """

    file: LocalSessionFile
    opened: Opened
    lock: SessionLock
    ids: Ids

    def close(self, *, handover: bool) -> None:
        """Let go of file and lock (sleep, stop)."""
        try:
            self.file.close(handover=handover)
        finally:
            self.lock.release()


class SessionFiles:
    """The session files of one state folder under one grant.

    `outgrow(epoch)` lets a local owner count on from a file that was brought here with a higher epoch;
    without it such a file is refused (`Fenced`). `node` and `boot` name this owner in take-over lines.
    `journal`: durability is `power`.
    """

    def __init__(
        self,
        state: Path,
        grant: Grant,
        *,
        sync: bool = True,
        node: str = "",
        boot: str = "",
        outgrow: Callable[[int], None] | None = None,
        on_foreign: Callable[[str, int, int], None] | None = None,
        journal: Journal | None = None,
    ) -> None:
        self.root = state / "sessions"
        self._grant, self._sync, self._journal = grant, sync, journal
        self._node, self._boot = node, boot
        self._outgrow, self._on_foreign = outgrow, on_foreign
        self.ids = Ids(grant.token)
        self._taken: set[int] = set()  # inodes made by take-overs of this ownership

    # --- names ------------------------------------------------------------------------------------

    def path(self, key: str) -> Path:
        """Where the session of `key` has its file, whether it exists or not."""
        return self.root / keys.relative_path(key)

    def key(self, path: Path) -> str | None:
        """The key of a session file below this folder, `None` if it is not one of ours."""
        try:
            return keys.key_of(path.relative_to(self.root))
        except ValueError:
            return None

    def exists(self, key: str) -> bool:
        """Whether the session has a file. An empty one holds nothing acknowledged: it counts as none."""
        try:
            status = self.path(key).stat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        return status.st_size > 0 or not stat.S_ISREG(status.st_mode)

    def list(self, agents: Iterable[str] | None = None) -> Iterator[Listed]:
        """All current session files, in no order; earlier ones of `/new` are not among them.

        `agents`: of these, and of keys that name no agent, without a look at the files of others.
        """
        roots = [self.root] if agents is None else [self.root / each for each in keys.folders(agents)]
        for folder, names in ((folder, names) for root in roots for folder, _, names in os.walk(root)):
            for name in names:
                path = Path(folder, name)
                if not name.endswith(keys.SUFFIX) or "." in name[: -len(keys.SUFFIX)]:
                    continue
                try:
                    status = path.stat()
                except FileNotFoundError:
                    continue  # deleted while we looked
                yield Listed(self.key(path), os.fspath(path), status.st_size, status.st_mtime_ns)

    def count(self) -> int:
        """How many there are, by their names alone: 10,000 in some milliseconds."""
        return sum(
            name.endswith(keys.SUFFIX) and "." not in name[: -len(keys.SUFFIX)]
            for _, _, names in os.walk(self.root)
            for name in names
        )

    def earlier(self, key: str) -> tuple[Path, ...]:
        """Files that `/new` put aside, oldest first."""
        path = self.path(key)
        stem = path.name[: -len(keys.SUFFIX)]
        return tuple(sorted(path.parent.glob(f"{stem}.*{keys.SUFFIX}")))  # named by ids: in order of time

    # --- files ------------------------------------------------------------------------------------

    def create(
        self,
        key: str,
        cwd: str,
        now_ms: int,
        parent_session: str | None = None,
        timers: tuple[Timer, ...] = (),
        grant: ChildGrant | None = None,
    ) -> Held:
        """A new session file with its header; an empty file (of a crash, a full disk) is begun in place.

        `grant`: of a subagent, which stands in it from its first byte on.

        `UsageError` if there is one; `Locked`, `StorageFailed`.
        """
        path = self.path(key)
        session = self.ids.session(now_ms, key)
        header = lines.header_line(session, now_ms, cwd, parent_session) + b"".join(
            lines.timer_line(self.ids.entry(now_ms), None, now_ms, session, self._grant.token, timer)
            for timer in timers
        )
        if grant is not None:
            entry, fact = self.ids.entry(now_ms), Fact(grant.run, own=True, grant=grant)
            header += lines.child_line(entry, None, now_ms, session, self._grant.token, fact)
        lock = SessionLock(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock.acquire(now_ms)
            self._finish_move(key, path)
            self._write_new(path, header)
            if self._journal is not None:
                self._journal.created(os.fspath(path), header)
        except FileExistsError:
            lock.release()
            raise UsageError(f"{key}: the session exists already ({path})") from None
        except OSError as error:
            lock.release()
            raise StorageFailed(f"{path}: can't be made ({error.strerror})") from None
        return self._held(path, open_session(path), lock, made=True)

    def open(self, key: str, now_ms: int) -> Held:
        """The file of an existing session, ready for the first append.

        Raises `SessionNotFound`, `Locked`, `UnreadableFile` (left as it is), `Fenced`, `StorageFailed`.
        """
        path = self.path(key)
        if not self.exists(key):
            raise SessionNotFound(f"{key}: no such session: see `perdure sessions list`")
        lock = SessionLock(path)
        lock.acquire(now_ms)
        try:
            return self._open(path, lock, now_ms)
        except OSError as error:
            lock.release()
            raise StorageFailed(f"{path}: can't be opened ({error.strerror})") from None
        except BaseException:
            lock.release()
            raise

    def renew(self, key: str, cwd: str, now_ms: int, timers: tuple[Timer, ...] = ()) -> Held:
        """`/new`: put the session's file aside (close it first) and begin one that names it as parent.

        `timers` are the session's, whichever file it is in.
        """
        path = self.path(key)
        aside = path.with_name(f"{path.name[: -len(keys.SUFFIX)]}.{self.ids.entry(now_ms)}{keys.SUFFIX}")
        self._void(path)
        try:
            _move_with_segments(path, aside)
        except FileNotFoundError:
            return self.create(key, cwd, now_ms, None, timers)
        except OSError as error:
            raise StorageFailed(f"{path}: can't be put aside ({error.strerror}): it stays") from None
        return self.create(key, cwd, now_ms, os.fspath(aside), timers)

    def _finish_move(self, key: str, path: Path) -> None:
        """A crash between the two renamings of `/new` left segments at a name that has no file now."""
        segments, earlier = Path(f"{path}.segments"), self.earlier(key)
        if earlier and segments.is_dir() and not path.exists():
            disk.rename(segments, f"{earlier[-1]}.segments")

    # --- taking over ------------------------------------------------------------------------------

    def _open(self, path: Path, lock: SessionLock, now_ms: int) -> Held:
        swap.finish(path, sync=self._sync)
        opened = open_session(path)
        if wrong := newer(opened.version):
            raise UnreadableFile(f"{path}: {wrong}")
        opened = self._known(path, opened)
        if opened.version < 3:
            upgrade(path, self._grant.token, sync=self._sync)
            opened = open_session(path)
        if not self._needs_take_over(opened):
            return self._held(path, opened, lock)
        return self._take_over(path, lock, now_ms)

    def _known(self, path: Path, opened: Opened) -> Opened:
        """Refuses a file that a later ownership has written, unless we may count on from there."""
        if opened.epoch > self._grant.token:
            if self._outgrow is None:
                raise Fenced(
                    f"{path}: was written under ownership {opened.epoch}, this host has "
                    f"{self._grant.token}: a later host owns it"
                )
            if opened.epoch > MOST // 2:  # leaves no room to count on
                raise UnreadableFile(
                    f"{path}: written under ownership {opened.epoch}, which no host has had: a damaged line"
                )
            self._outgrow(opened.epoch)
            self.ids.epoch = self._grant.token
        return opened

    def _needs_take_over(self, opened: Opened) -> bool:
        ours = 0 < opened.epoch < self._grant.token
        return ours and not self._grant.clean and opened.inode not in self._taken

    def _take_over(self, path: Path, lock: SessionLock, now_ms: int) -> Held:
        swap.take_over(path, self._grant.token, sync=self._sync)
        opened = open_session(path)
        self._taken.add(opened.inode)
        held = self._held(path, opened, lock)
        if not (opened.entries and opened.entries[-1].type == "compaction"):  # nothing of ours follows one
            epoch = self._grant.token
            entry = self.ids.entry(now_ms)
            line = lines.owner_line(entry, opened.leaf, now_ms, epoch, epoch, self._node, self._boot)
            ack = held.file.append((line,))
            held.opened = replace(opened, size=ack.size, epoch=epoch)
        return held

    def _held(self, path: Path, opened: Opened, lock: SessionLock, *, made: bool = False) -> Held:
        def report(was: int, now: int) -> None:
            if self._on_foreign is not None:
                self._on_foreign(os.fspath(path), was, now)

        run = None
        if self._journal is not None:
            if not made:
                disk.sync_file(path)  # what others appended while it slept is in no journal
            run = Run(self._journal, os.fspath(path), opened.size, fresh=not made)
        file = LocalSessionFile(
            path,
            self._grant,
            size=opened.size,
            inode=opened.inode,
            sync=self._sync,
            on_foreign=report,
            run=run,
        )
        return Held(file, opened, lock, self.ids)

    def _void(self, path: Path) -> None:
        """The file goes from its place: the journal must not put it back."""
        if self._journal is not None:
            self._journal.settle(os.fspath(path), sync=False)

    def _write_new(self, path: Path, header: bytes) -> None:
        """The file appears with its whole header, or not at all: a torn one would be no session."""
        _must_be_free(path)
        temp = path.with_name(f"{path.name[:180]}.{self._grant.token:x}.tmp")
        try:
            fd = disk.open_(temp, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            try:
                disk.write_all(fd, header, temp)
                if self._sync:
                    disk.fsync(fd, temp)
            finally:
                os.close(fd)
            disk.rename(temp, path)
        except OSError:
            temp.unlink(missing_ok=True)
            raise
        if self._sync:
            disk.sync_folder(path.parent)


def _must_be_free(path: Path) -> None:
    """Nothing of that name, or a file without a byte (of a crash, a full disk). Under the lock."""
    there = path.is_symlink() or path.exists()
    if there and (not path.is_file() or path.stat().st_size):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), os.fspath(path))


def _move_with_segments(path: Path, aside: Path) -> None:
    disk.rename(path, aside)
    try:
        disk.rename(f"{path}.segments", f"{aside}.segments")
    except FileNotFoundError:
        pass  # nothing was moved out of that file
    except OSError:
        disk.rename(aside, path)
        raise

"""The lock that OpenClaw understands: `<file>.lock` with `{pid, createdAt, starttime}`, while awake.

It keeps a program that asks for it away from a session that is awake here; our own safety does not rest
on it (the shard's lock and the writer's rule do). OpenClaw steals any lock older than 30 minutes
whatever its holder does, so an awake session rewrites `createdAt` every ten. Time is an argument.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from perdure.edges import disk
from perdure.edges.session.lines import iso
from perdure.errors import Locked, StorageFailed

STALE_MS = 30 * 60 * 1000
EMPTY_MS = 5_000
REFRESH_MS = 10 * 60 * 1000
NO_PID = 2**22 + 1  # above the largest pid that Linux gives


class SessionLock:
    """The lock beside one session file, held by this process. No descriptor is kept open."""

    def __init__(self, session: Path, *, pid: int | None = None) -> None:
        folder = os.path.realpath(session.parent)
        self.path = Path(folder, session.name + ".lock")
        self._pid = os.getpid() if pid is None else pid
        self._written = 0
        self._held: bytes | None = None  # what we wrote; inode numbers are given again at once

    def acquire(self, now_ms: int) -> None:
        """Take the lock, clearing a stale one. Raises `Locked` with the holder's pid; never waits."""
        for _ in range(3):  # a stale lock may be replaced by somebody else's between our two looks
            if self._create(now_ms):
                return
            holder = read_lock(self.path)
            if holder is not None and not (reasons := self._judge(holder, now_ms)):
                break
            if holder is not None and _too_young(reasons, self.path, now_ms):
                break
            disk.unlink(self.path, missing_ok=True)
        pid = (holder or {}).get("pid", "unknown")
        raise Locked(f"session file locked: pid={pid} {self.path}: stop that program, or wait for it")

    def refresh(self, now_ms: int) -> bool:
        """Rewrite the lock when it is ten minutes old; false if somebody took it away."""
        if self._held is None or now_ms - self._written < REFRESH_MS:
            return self._held is not None
        if self._current() != self._held:
            self._held = None
            return False
        self._held, self._written = self._content(now_ms), now_ms
        fd = disk.open_(self.path, os.O_WRONLY)
        try:
            disk.pwrite(fd, self._held, 0, self.path)  # of the same length: a reader never sees half of it
        finally:
            os.close(fd)
        return True

    def release(self) -> None:
        """Remove the lock if it is still ours."""
        if self._held is None:
            return
        try:
            if self._current() == self._held:
                disk.unlink(self.path, missing_ok=True)
        except OSError:
            self._disown()
        self._held = None

    def _disown(self) -> None:
        """It can't be removed: it names nobody, then, so that it keeps nobody out, ourselves included."""
        content = json.dumps({"pid": NO_PID, "createdAt": iso(self._written)}).encode()
        try:
            fd = disk.open_(self.path, os.O_WRONLY | os.O_TRUNC)
            try:
                disk.write_all(fd, content, self.path)
            finally:
                os.close(fd)
        except OSError:
            return  # a disk that takes nothing at all: it is stale in half an hour

    def orphan(self) -> None:
        """Leave the lock as a process that was killed leaves it: there, of a pid that is gone."""
        if self._held is not None and self._current() == self._held:
            self.path.write_bytes(json.dumps({"pid": NO_PID, "createdAt": iso(self._written)}).encode())
        self._held = None

    def _current(self) -> bytes | None:
        try:
            return self.path.read_bytes()
        except OSError:
            return None  # stolen and gone: nothing of ours is left

    def _create(self, now_ms: int) -> bool:
        content = self._content(now_ms)
        try:
            disk.make(self.path, content)  # an empty lock would keep everybody out for a while
        except FileExistsError:
            return False
        except OSError as error:
            raise self._failed(error) from None
        self._held, self._written = content, now_ms
        return True

    def _failed(self, error: OSError) -> StorageFailed:
        return StorageFailed(
            f"{self.path}: the lock can't be made ({error.strerror}): make room, or correct its rights"
        )

    def _content(self, now_ms: int) -> bytes:
        content: dict[str, Any] = {"pid": self._pid, "createdAt": iso(now_ms)}
        if (started := start_time(self._pid)) is not None:
            content["starttime"] = started
        return json.dumps(content).encode()

    def _judge(self, holder: dict[str, Any], now_ms: int) -> tuple[str, ...]:
        return stale_reasons(holder, now_ms, own_pid=self._pid, alive=is_alive, started=start_time)


def stale_reasons(
    holder: dict[str, Any],
    now_ms: int,
    *,
    own_pid: int,
    alive: Callable[[int], bool],
    started: Callable[[int], int | None],
) -> tuple[str, ...]:
    """Why a lock no longer counts, in the reference's words; empty: it does."""
    pid, since = holder.get("pid"), holder.get("starttime")
    reasons = []
    if not isinstance(pid, int) or isinstance(pid, bool) or pid <= 0:
        reasons.append("missing-pid")
    elif not alive(pid):
        reasons.append("dead-pid")
    elif isinstance(since, int) and started(pid) not in (None, since):
        reasons.append("recycled-pid")
    elif pid == own_pid and not isinstance(since, int):
        reasons.append("orphan-self-pid")  # ours are always written with a start time where there is one
    created = _milliseconds(holder.get("createdAt"))
    if created is None:
        reasons.append("invalid-createdAt")
    elif now_ms - created > STALE_MS:
        reasons.append("too-old")
    return tuple(reasons)


def read_lock(path: Path) -> dict[str, Any] | None:
    """The content of a lock file, `{}` where it can't be read as one, `None` without a file."""
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def holder_of(session: Path, now_ms: int) -> int | None:
    """The pid of another live program that holds the session's lock, for commands that only look."""
    holder = read_lock(Path(os.path.realpath(session.parent), session.name + ".lock"))
    if not holder or stale_reasons(holder, now_ms, own_pid=-1, alive=is_alive, started=start_time):
        return None
    return int(holder["pid"])


def is_alive(pid: int) -> bool:
    """Whether a process of that number exists."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def start_time(pid: int) -> int | None:
    """When a process began, in clock ticks since boot; `None` where the system does not say."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    fields = text[text.rfind(b")") + 2 :].split()  # the name before it may hold blanks and brackets
    return int(fields[19]) if len(fields) > 19 else None


def _too_young(reasons: tuple[str, ...], path: Path, now_ms: int) -> bool:
    """A lock that only can't be read may be one that is being written right now.

    One that says nothing (empty, or torn by a power cut) is for seconds only: later, its writer was killed
    before it could say who it is.
    """
    if not set(reasons) <= {"missing-pid", "invalid-createdAt"}:
        return False
    try:
        whole = path.read_bytes().rstrip().endswith(b"}")
        return now_ms - path.stat().st_mtime * 1000 <= (STALE_MS if whole else EMPTY_MS)
    except FileNotFoundError:
        return False


def _milliseconds(text: object) -> int | None:
    try:
        return int(datetime.fromisoformat(str(text)).timestamp() * 1000)
    except ValueError:
        return None

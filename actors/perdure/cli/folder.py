"""What stands in a state folder, read from beside a host: session files, and who holds the folder.

Nothing is made, locked for longer than a look, or changed; a host may run or not.
"""

from __future__ import annotations

import fcntl
import glob
import json
import os
import platform
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, TypeAlias

from perdure.edges.index import text_of
from perdure.edges.placement import boot_id
from perdure.edges.session import keys
from perdure.edges.session.lock import holder_of, is_alive
from perdure.edges.state import StateFolder
from perdure.records import Record


class Row(Record):
    """A session file; `key` is `None` where its name is not one of ours.

    `mode`: what it is, for there may be a folder or a pipe of that name. `earlier`: how many of the key
    `/new` put aside; they stand beside it. `lock`: a lock file stands beside it. `aside`: it is one of those
    that were put aside.
    """

    key: str | None
    path: str
    size: int
    mtime_ns: int
    mode: int
    earlier: int = 0
    lock: bool = False
    aside: bool = False

    @property
    def updated(self) -> int:
        """When it was changed, in epoch ms."""
        return self.mtime_ns // 1_000_000


def rows(folder: StateFolder) -> list[Row]:
    """The current session files, the latest first; what `/new` put aside is not among them."""
    files = _files(folder.sessions)
    found = [row for path, earlier, lock in files if (row := _row(folder, path, earlier, lock)) is not None]
    return sorted(found, key=lambda row: (-row.mtime_ns, row.path))


def put_aside(row: Row) -> list[Row]:
    """Those that `/new` put aside for a session, as rows of their own."""
    found = []
    for path in earlier(Path(row.path)) if row.earlier else ():
        status = path.stat()
        made = Row(row.key, os.fspath(path), status.st_size, status.st_mtime_ns, status.st_mode, aside=True)
        found.append(made)
    return found


def earlier(path: Path) -> list[Path]:
    """The session files that `/new` put aside for the one at `path`, oldest first."""
    stem = path.name.removesuffix(keys.SUFFIX)
    aside = path.parent.glob(f"{glob.escape(stem)}.*{keys.SUFFIX}")
    return sorted(each for each in aside if stem == _stem(each.name))


def _files(root: Path) -> Iterator[tuple[Path, int, bool]]:
    """What has the name of a session file (a folder, too: it is told), how many were put aside, a lock."""
    for place, folders, files in os.walk(root):
        names = [name for name in (*folders, *files) if name.endswith(keys.SUFFIX)]
        locks = {name for name in files if name.endswith(".lock")}
        aside = Counter(_stem(name) for name in names if not _current(name))
        for name in filter(_current, names):
            yield Path(place, name), aside[_stem(name)], f"{name}.lock" in locks


def _stem(name: str) -> str:
    return name.split(".", 1)[0]


def _current(name: str) -> bool:
    return "." not in name.removesuffix(keys.SUFFIX)


def _row(folder: StateFolder, path: Path, earlier: int, lock: bool) -> Row | None:
    try:
        status = path.stat()
    except OSError:
        return None  # gone meanwhile, or a link to nowhere
    try:
        key = keys.key_of(path.relative_to(folder.sessions))
    except ValueError:
        key = None
    return Row(key, os.fspath(path), status.st_size, status.st_mtime_ns, status.st_mode, earlier, lock)


def awake(row: Row) -> int | None:
    """The pid of the program that has the session awake."""
    return holder_of(Path(row.path), time.time_ns() // 1_000_000) if row.lock else None


class Counted(Record):
    """What the index knows of a file as it is: its entries (`None`: not counted) and its session's name."""

    entries: int | None
    name: str | None


Known: TypeAlias = dict[tuple[str, int, int], Counted]


def counted(folder: StateFolder) -> Known:
    """What the index knows, by (key, size, time of change in ns); empty without one.

    Read as if it never changed: SQLite's usual reading would make files beside the index. A row that is
    behind its file doesn't match it, and is not used.
    """
    query = "select key, size, mtime_ns, entries, name from sessions"
    try:
        with closing(sqlite3.connect(f"{folder.index.as_uri()}?mode=ro&immutable=1", uri=True)) as index:
            return {
                (text_of(key), size, mtime): Counted(entries, None if name is None else text_of(name))
                for key, size, mtime, entries, name in index.execute(query)
            }
    except (sqlite3.Error, ValueError):
        return {}


# --- who holds it ---------------------------------------------------------------------------------


class Holder(Record):
    """The latest owner of a state folder, as `shard.lock` names it; `held`: it still owns the folder.

    `clean`: it released the folder properly. `local`: it runs (or ran) on this start of this machine.
    """

    held: bool
    node: str
    boot: str
    pid: int
    epoch: int
    clean: bool
    local: bool


def holder(folder: StateFolder) -> Holder | None:
    """Who holds the folder, or held it last; `None` where no host ever did."""
    record = _record(folder.path / "shard.lock")
    if not record:
        return None
    node, boot, pid = str(record.get("node", "")), str(record.get("boot", "")), _number(record.get("pid"))
    local = boot == boot_id() and node in ("", platform.node())
    clean = record.get("clean") is True
    gone = clean or (local and not is_alive(pid))
    held = not gone and _locked(folder.path / "shard.lock")
    return Holder(held, node, boot, pid, _number(record.get("epoch")), clean, local)


def _record(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes()[:4096])
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def _locked(path: Path) -> bool:
    """Whether another process has the lock: a shared one is tried, and given back at once."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


def resident(pid: int) -> int | None:
    """Resident memory of a process in bytes, where the system tells."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_bytes().split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")

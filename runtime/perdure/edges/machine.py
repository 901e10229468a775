"""What the machine gives the host, looked at once: descriptors, clock, boot id, places to write.

The answers: too few descriptors bound the sessions kept awake (one each), and one too many is a typed,
retryable error of that session; a clock before 2000 and an unknown boot id are told and lived with; no
temporary folder costs `exec` its calls; a network file system, a second host and a folder that can't be
written are refused at the start.
"""

from __future__ import annotations

import os
import resource
import tempfile
from pathlib import Path

from perdure.edges.placement import boot_id, file_system
from perdure.records import Record

SPARE = 128  # descriptors kept for everything but sessions: log, index, locks, connections, children
YEAR_2000 = 946_684_800_000


class Machine(Record):
    """`open_files`: the limit of descriptors in force, `most_` the one it may be raised to; -1: none.

    `temporary`: the folder for temporary files; empty: there is none.
    """

    open_files: int
    most_open_files: int
    used_files: int | None
    cpus: int
    file_system: str
    boot: str
    temporary: str
    wall_ms: int

    @property
    def awake(self) -> int | None:
        """Sessions that can be awake at once, by their descriptors; None: any number."""
        return None if self.open_files < 0 else max(1, self.open_files - SPARE)

    def short(self, awake: int) -> list[str]:
        """What is less than a host wants that keeps `awake` sessions, in words."""
        found = []
        if self.awake is not None and self.awake < awake:
            found.append(
                f"{self.open_files} descriptors (ulimit -n) allow {self.awake} awake sessions, not {awake}"
            )
        if self.wall_ms < YEAR_2000:
            found.append("the clock stands before the year 2000: set it, times in the files will be wrong")
        if self.boot == "unknown":
            found.append("the boot id is unknown: a restart of the machine looks like one of the host")
        if not self.temporary:
            found.append("no temporary folder can be written: exec fails")
        return found


def look(state: Path, wall_ms: int) -> Machine:
    """Ask the system. Changes nothing, raises nothing."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return Machine(
        open_files=_limit(soft),
        most_open_files=_limit(hard),
        used_files=_used(),
        cpus=os.cpu_count() or 1,
        file_system=file_system(state),
        boot=boot_id(),
        temporary=_tmp(),
        wall_ms=wall_ms,
    )


def raise_open_files() -> int:
    """Raise the soft limit of descriptors to the hard one, for a process of our own; the limit in force."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (ValueError, OSError):
            return _limit(soft)
    return _limit(hard)


def _limit(value: int) -> int:
    return -1 if value == resource.RLIM_INFINITY else value


def _used() -> int | None:
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return None


def _tmp() -> str:
    try:
        return tempfile.gettempdir()
    except OSError:
        return ""

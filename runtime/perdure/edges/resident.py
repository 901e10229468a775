"""What the machine says of memory: what this process has, and what it could have."""

from __future__ import annotations

import resource
from pathlib import Path

LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
NO_LIMIT = 1 << 60  # what an unlimited cgroup of version 1 says is larger
PAGE = resource.getpagesize()


def rss_bytes() -> int:
    """Resident memory of this process, 0 where the system does not tell."""
    try:
        with open("/proc/self/statm", "rb") as statm:
            return int(statm.read().split()[1]) * PAGE
    except (OSError, IndexError, ValueError):
        return 0


def memory_bytes(limits: tuple[Path, ...] = LIMITS, meminfo: Path = Path("/proc/meminfo")) -> int:
    """What this process could have: its cgroup's limit, or what it has and is available; 0: not told."""
    found = [limit for limit in map(_limit, limits) if limit]
    if available := _available(meminfo):
        found.append(available + rss_bytes())
    return min(found, default=0)


def _limit(path: Path) -> int:
    try:
        told = int(path.read_text())  # "max" is no number
    except (OSError, ValueError):
        return 0
    return told if told < NO_LIMIT else 0


def _available(meminfo: Path) -> int:
    try:
        lines = meminfo.read_text().splitlines()
        return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), 0)
    except (OSError, IndexError, ValueError):
        return 0

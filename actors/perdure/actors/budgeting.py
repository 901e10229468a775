"""How much memory the sessions of a process may own, and when it takes no more. Pure."""

from __future__ import annotations

from perdure.errors import ConfigError
from perdure.records import Record

SHARE = 0.6  # of what the machine or the cgroup gives, where no budget is configured
RESERVE = 0.2  # of what is left for sessions: turns that run may still grow into it
LOW = 0.9  # of the sessions' share: shedding goes down to here, so that it isn't done for each message
ALARM = 0.95  # of the resident memory allowed: what frees it takes a moment
LEAST = 16 * 1024 * 1024  # bytes without which no session can be served


class Budget(Record):
    """Bytes. `sessions`: what all awake ones may own (0: unbounded); `reserve`: what running turns may own
    beyond; `process`: what the process may have resident (0: unwatched).
    """

    sessions: int = 0
    reserve: int = 0
    process: int = 0

    @property
    def line(self) -> int:
        """The resident memory at which more are put to sleep than the count asks."""
        return int(self.process * ALARM)


UNBOUNDED = Budget()


def budget(configured_mb: int, machine: int, taken: int) -> Budget:
    """`configured_mb` of `[host] memory_mb`, else a share of `machine`; `taken`: resident before any session.

    Raises `ConfigError` where that leaves nothing to serve a session with.
    """
    process = configured_mb * 1024 * 1024 or int(machine * SHARE)
    if not process:  # no limit is told: the count of awake sessions bounds them
        return UNBOUNDED
    left = process - taken
    if left < LEAST:
        raise ConfigError(
            f"[host] memory_mb: {process >> 20} MB are too few: this process has {taken >> 20} MB before "
            f"the first session, and needs {LEAST >> 20} MB for them: set {(taken + LEAST >> 20) + 1} or more"
        )
    reserve = int(left * RESERVE)
    return Budget(left - reserve, reserve, process)

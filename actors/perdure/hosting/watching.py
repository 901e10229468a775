"""A host's look at itself: how late its loop is, what the machine gives, what is worse than it should be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from perdure.actors.degraded import degraded, unwell
from perdure.edges.log import Log
from perdure.edges.machine import Machine, look
from perdure.edges.state import StateFolder
from perdure.kernel.clock import Clock
from perdure.kernel.kernel import Kernel
from perdure.kernel.lag import Blocked, LagWatch


class Watching:
    """Begun with the kernel. Under virtual time there is no lag, and no machine to look at."""

    def __init__(self, folder: StateFolder, kernel: Kernel, clock: Clock, log: Log, *, awake: int) -> None:
        self._kernel, self._log, self._clock = kernel, log, clock
        self.machine: Machine | None = None
        self.lag: LagWatch | None = None
        self._wanted = self.awake = (
            awake  # sessions that may be awake, as configured and as the machine allows
        )
        if clock.virtual:
            return
        self.machine = look(folder.path, clock.wall_ms())
        for short in self.machine.short(awake):
            log.warning("machine.short", of=short)
        self.awake = self.bounded(awake)
        self.lag = LagWatch(self._blocked)
        kernel.spawn("lag", self.lag.run)

    def bounded(self, awake: int) -> int:
        """So many sessions, or as many as the machine allows."""
        self._wanted = awake
        return min(awake, (self.machine and self.machine.awake) or awake)

    def _blocked(self, found: Blocked) -> None:
        """Also called from the watch's own thread."""
        ms = round(found.seconds * 1000)
        if found.kind == "paused":
            self._log("loop.paused", ms=ms)
            return
        whose, _, _ = found.owner.partition("#")
        self._log.warning(
            "loop.blocked", ms=ms, kind=found.kind, at=found.at, frames=list(found.frames), owner=found.owner,
            session=whose, again=found.again, lasts=found.lasts,
        )  # fmt: skip

    def degraded(self, without: Sequence[str]) -> list[str]:
        """In words; see `degraded`."""
        short = [] if self.machine is None else self.machine.short(self._wanted)
        stats, log = self._kernel.stats(), self._log
        return degraded(stats, log.counts, without=[*without, *short], log_dropped=log.dropped)

    def status(self, without: Sequence[str]) -> dict[str, Any]:
        """The keys that are added to the host's status."""
        lag = None if self.lag is None else self.lag.figures()
        machine = None if self.machine is None else msgspec.structs.asdict(self.machine)
        return {
            "lag": lag and {
                "p50_ms": lag.p50, "p99_ms": lag.p99, "max_ms": lag.max, "worst_ms": lag.worst,
                "blocked": lag.blocked, "paused": lag.paused,
            },
            "machine": machine,
            "degraded": self.degraded(without),
        }  # fmt: skip

    def health(self) -> list[str]:
        """Why the host should get no traffic now; empty: it is well."""
        return unwell(self._kernel.stats())

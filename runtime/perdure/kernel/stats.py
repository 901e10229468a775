"""What a kernel counts, as one frozen picture."""

from __future__ import annotations

from dataclasses import dataclass

from perdure.kernel.supervisor import Restart


@dataclass(frozen=True, slots=True)
class Stats:
    """Counts at this moment, since the start where they are totals."""

    handled: int
    refused: int
    ready: int
    crashes: int
    parked: int
    jobs: int
    jobs_started: int
    jobs_failed: int
    jobs_lost: int
    tasks: int
    idle_tasks: int
    restarts: tuple[Restart, ...]
    services: tuple[tuple[str, str], ...]  # name, state
    pools: tuple[tuple[str, int, int, int, int, str], ...]  # name, busy, queued, done, crashed, breaker
    channels: tuple[tuple[str, int, int], ...]  # name, published, dropped

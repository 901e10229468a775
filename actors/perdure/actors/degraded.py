"""What a host lost, and what it does worse than it could, in words: `status` and readiness tell it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perdure.edges.log_events import grade, meaning
from perdure.kernel.stats import Stats

LEFT = frozenset({"cache.break", "model.retry", "loop.blocked", "tool.failed"})  # have figures of their own


def degraded(
    stats: Stats,
    counts: Mapping[str, int],
    *,
    without: Sequence[str],
    log_dropped: int,
) -> list[str]:
    """The state first, worst first; then what was counted since the start. `without`: what is missing."""
    found = [f"the {name} workers rest: they broke too often" for name in _open(stats)]
    found += [f"the service {name} is {state}" for name, state in stats.services if state == "resting"]
    if stats.parked:
        found.append(f"{stats.parked} parked messages wait for an operator")
    if stats.jobs_lost:
        found.append(f"{stats.jobs_lost} jobs ignore their cancellation")
    found += without
    if log_dropped:
        found.append(f"{log_dropped} lines of the log could not be written")
    return found + [
        f"{count} × {event}: {meaning(event)}"
        for event, count in sorted(counts.items(), key=lambda item: (grade(item[0]) != "error", item[0]))
        if count and grade(event) != "note" and event not in LEFT
    ]


def unwell(stats: Stats) -> list[str]:
    """Why no traffic should come here now; empty: it may."""
    resting = [f"the service {name} rests" for name, state in stats.services if state == "resting"]
    return resting + [f"the {name} workers rest" for name in _open(stats)]


def _open(stats: Stats) -> list[str]:
    return [name for name, *_, breaker in stats.pools if breaker == "open"]

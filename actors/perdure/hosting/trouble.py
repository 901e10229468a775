"""The kernel's events in the runtime log, by weight: what breaks, is dropped or rests is a warning."""

from __future__ import annotations

from perdure.edges.log import Log

TROUBLE = frozenset(
    {
        "actor.crashed",
        "actor.restart_failed",
        "actor.parked",
        "actor.dropped",
        "job.lost",
        "pool.crashed",
        "pool.opened",
        "pool.key_rests",
        "pool.dead_letter",
        "channel.dropped",
        "timer.failed",
        "kernel.stop_overdue",
        "child.restarted",
    }
)


def tell(log: Log, name: str, fields: dict[str, object]) -> None:
    """One event; what JSON can't hold as its repr."""
    plain = {k: v if isinstance(v, int | float | str) else repr(v) for k, v in fields.items()}
    level = log.warning if name in TROUBLE else log.info
    level(f"kernel.{name}", **plain)

"""What a running host says of itself; the keys are a contract, more may be added."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perdure.actors.session import Session
    from perdure.host import Host


def host_status(host: Host, *, deep: bool = False) -> dict[str, Any]:
    """The object that `perdure status --json` prints; `deep` adds a line for each awake session."""
    stats = host.kernel.stats()
    awake = host.directory.awake
    files = sum(1 for _ in host.files.list())
    status: dict[str, Any] = {
        "host": {
            "sessions": files,
            "awake": len(awake),
            "asleep": files - len(awake),
            "rss_bytes": rss_bytes(),
            "owned_bytes": sum(owned(s) for s in awake.values()),
            "loop_lag_ms": None,
        },
        "workers": [
            {"name": name, "busy": busy, "queued": queued, "done": done, "crashed": crashed, "breaker": state}
            for name, busy, queued, done, crashed, state in stats.pools
        ],
        "engines": [{"id": host.resolver.engine("").info.id}],
        "models": [model_line(model) for model in host.resolver.models()],
        "totals": {
            "messages": stats.handled,
            "turns": stats.jobs_started,
            "crashes": stats.crashes,
            "parked": stats.parked,
            "lost_jobs": stats.jobs_lost,
            "wakings": host.directory.wakings,
            "sleeps": host.directory.sleeps,
        },
    }
    if deep:
        status["sessions"] = [session_line(s) for s in awake.values() if s.state != "opening"]
    return status


def session_line(session: Session) -> dict[str, Any]:
    """One awake session."""
    t = session.transcript
    return {
        "key": session.key,
        "state": session.state,
        "entries": len(t.items),
        "view_tokens": session.compacting.tokens,
        "window": session.environment.limits.window,
        "last_compaction": t.compaction,
        "cache": {"read": session.turns.tally.usage.cache_read, "prompt": session.turns.tally.usage.prompt},
        "errors": list(session.turns.tally.errors),
    }


def model_line(model: Any) -> dict[str, Any]:
    """A model's counters, where it keeps them."""
    return {
        "name": model.info.ref,
        "requests": getattr(model, "requests", 0),
        "errors": dict(getattr(model, "errors", {})),
    }


def owned(session: Session) -> int:
    """Bytes of the view that an awake session holds (its lines in the file, as a measure)."""
    return session.transcript.view_bytes if session.state != "opening" else 0


def rss_bytes() -> int:
    """Resident memory of this process, 0 where the system does not tell."""
    try:
        with open("/proc/self/statm", "rb") as statm:
            return int(statm.read().split()[1]) * 4096
    except OSError:
        return 0

"""What a running host says of itself; the keys are a contract, more may be added."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perdure.actors.owning import owned
from perdure.edges.log_events import grade
from perdure.edges.resident import rss_bytes
from perdure.edges.session.kin import Relatives, line_of
from perdure.events import Event, Notice, TurnFinished
from perdure.kernel.pauses import Pauses
from perdure.records import Usage

if TYPE_CHECKING:
    from perdure.actors.directory import Directory
    from perdure.actors.services import Services
    from perdure.actors.session import Session


class Totals:
    """What all sessions did since the host started, counted from its events."""

    def __init__(self) -> None:
        self.turns = self.steps = self.failed = self.compactions = self.truncations = 0
        self.usage = Usage()

    def told(self, event: Event) -> None:
        """Take in one event."""
        match event:
            case TurnFinished(_, reply):
                self.turns += 1
                self.steps += reply.steps
                self.failed += reply.stop in ("error", "overflow")
                self.usage = self.usage + reply.usage
            case Notice(_, "compaction", text):
                self.compactions += text.startswith("Compacted")
            case Notice(_, "truncation"):
                self.truncations += 1
            case _:
                pass

    def line(self) -> dict[str, Any]:
        """As `status` shows it."""
        return {
            "turns": self.turns,
            "steps": self.steps,
            "failed_turns": self.failed,
            "compactions": self.compactions,
            "truncations": self.truncations,
            "prompt_tokens": self.usage.prompt,
            "cache_read_tokens": self.usage.cache_read,
            "output_tokens": self.usage.output,
            "cost_usd": round(self.usage.cost_usd, 6),
        }


def host_status(
    services: Services, directory: Directory, totals: Totals, pauses: Pauses, *, deep: bool = False
) -> dict[str, Any]:
    """The object that `perdure status --json` prints; `deep` adds a line for each awake session."""
    stats = services.kernel.stats()
    awake = directory.awake
    files = services.files.count()
    status: dict[str, Any] = {
        "host": {
            "sessions": files,
            "awake": len(awake),
            "asleep": files - len(awake),
            "rss_bytes": rss_bytes(),
            "owned_bytes": services.memory.total,
            "loop_lag_ms": None,
            "memory": services.memory.line(),
            "gc": pauses.line(),
        },
        "storage": services.durable.status(),
        "workers": [
            {"name": name, "busy": busy, "queued": queued, "done": done, "crashed": crashed, "breaker": state}
            for name, busy, queued, done, crashed, state in stats.pools
        ],
        "outbox": services.outbox.figures(),
        "engines": services.engines.lines(),
        "memory": services.memories.line(),
        "subagents": services.family.line(),
        "models": services.calls.lines(),
        "fallbacks": services.fallbacks.lines(),
        "totals": {
            **totals.line(),
            "mail": stats.handled,
            "crashes": stats.crashes,
            "parked": stats.parked,
            "lost_jobs": stats.jobs_lost,
            "wakings": directory.wakings,
            "sleeps": directory.sleeps,
            "fallbacks": services.fallbacks.taken,
            "refused_mail": stats.refused,
            "refused_rate": services.inbound.refused,
            "refused_spend": services.spending.refused,
        },
        "queues": services.gates.lines(),
        "spend": list(services.spending.lines()),
        "services": [{"name": name, "state": state} for name, state in stats.services],
        "channels": [
            {"name": name, "published": published, "dropped": dropped}
            for name, published, dropped in stats.channels
        ],
        "trouble": {name: count for name, count in services.log.counts.items() if grade(name) != "note"},
        "timers": services.timers.line(),
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
        "owned_bytes": owned(session),
        "entries": len(t.items),
        "view_tokens": session.scales.tokens,
        "budget": session.scales.budget,
        "window": session.environment.limits.window,
        "last_compaction": t.compaction,
        "compaction": session.compacting.status(),
        "cache": cache_line(session),
        "errors": list(session.turns.tally.errors),
        "next_timer": session.alarms.due,
        **kindred(t.relatives),
    }


def kindred(relatives: Relatives) -> dict[str, Any]:
    """Parent and children of a session, where it has any: by key, with the state that is on record."""
    told: dict[str, Any] = {}
    if relatives.own is not None:
        told["parent"] = relatives.own.grant.parent
        told["subagent"] = line_of(relatives.own)
    if relatives.begun:
        told["children"] = [line_of(kin) for kin in relatives.children]
    return told


def cache_line(session: Session) -> dict[str, Any]:
    """What was read of the prompts since the session woke, what broke, what that cost; {} if unwatched."""
    watch, advice = session.turns.watch, session.keeping.advice
    if watch is None or advice is None:
        return {}
    keeping = session.keeping
    return {
        **watch.line(),
        "keep_alive": {
            "on": bool(session.services.keep_alive),
            "refreshes": keeping.total,
            "cost_usd": round(keeping.cost, 6),
            "worth_it": advice.keep,
            "why": advice.reason,
            "keep_usd": advice.keep_usd,
            "rewrite_usd": advice.rewrite_usd,
            "until_seconds": advice.until,
        },
    }

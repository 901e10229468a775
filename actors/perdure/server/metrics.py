"""What `/metrics` says, in Prometheus' text format. A registry of its own; no label names a session."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from perdure.edges.log_events import grade
from perdure.edges.resident import rss_bytes

if TYPE_CHECKING:
    from perdure.server.state import Serving

_TOTALS = {
    "turns": "Turns that ended",
    "steps": "Model calls of turns",
    "failed_turns": "Turns that ended in an error or an overflow",
    "compactions": "Compactions",
    "truncations": "Truncations",
    "prompt_tokens": "Tokens of prompts, cached ones included",
    "cache_read_tokens": "Tokens of prompts that were read from a cache",
    "output_tokens": "Tokens that models wrote",
    "cost_usd": "What model calls cost, in USD",
}


def text(serving: Serving, files: int) -> bytes:
    """All of it. `files`: sessions that there are, counted beforehand."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Figures(serving, files))
    return generate_latest(registry)


class _Figures(Collector):
    def __init__(self, serving: Serving, files: int) -> None:
        self._serving, self._files = serving, files

    def collect(self) -> Iterator[Metric]:
        yield from self._sessions()
        yield from self._work()
        yield from self._models()
        yield from self._house()
        yield from self._server()

    def _sessions(self) -> Iterator[Metric]:
        awake = self._serving.host.directory.awake
        states: dict[str, int] = {"asleep": max(0, self._files - len(awake))}
        for session in awake.values():
            states[session.state] = states.get(session.state, 0) + 1
        yield _family("gauge", "sessions", "Sessions by state", states, "state")
        held = self._serving.host.services.memory.total
        yield _one("gauge", "owned_bytes", "Bytes that awake sessions own", held)
        yield _one("gauge", "resident_bytes", "Resident memory of the process", rss_bytes())

    def _work(self) -> Iterator[Metric]:
        host = self._serving.host
        for name, value in host.totals.line().items():
            if name in _TOTALS:
                yield _one("counter", name, _TOTALS[name], value)
        stats, directory = host.kernel.stats(), host.directory
        yield _one("counter", "mail", "Messages that actors handled", stats.handled)
        yield _one("counter", "refused_mail", "Messages that found a full mailbox", stats.refused)
        yield _one("counter", "crashes", "Crashes of actors", stats.crashes)
        yield _one("gauge", "parked", "Poison messages that are parked", stats.parked)
        yield _one("counter", "lost_jobs", "Jobs that did not obey their end", stats.jobs_lost)
        yield _one("counter", "wakings", "Sessions woken", directory.wakings)
        yield _one("counter", "sleeps", "Sessions put to sleep", directory.sleeps)
        yield _one("gauge", "ready_actors", "Actors with mail to handle", stats.ready)
        yield _family(
            "gauge",
            "queue_depth",
            "Messages that wait for workers",
            {p[0]: p[2] for p in stats.pools},
            "pool",
        )
        yield _family("gauge", "busy_workers", "Workers at work", {p[0]: p[1] for p in stats.pools}, "pool")
        yield _family(
            "counter", "worker_crashes", "Crashes of workers", {p[0]: p[4] for p in stats.pools}, "pool"
        )
        yield _family(
            "counter", "dropped_news", "Events dropped", {c[0]: c[2] for c in stats.channels}, "channel"
        )
        yield _one("counter", "log_dropped", "Lines of the log that could not be written", host.log.dropped)

    def _models(self) -> Iterator[Metric]:
        requests = CounterMetricFamily("perdure_model_requests", "Model calls", labels=("model",))
        errors = CounterMetricFamily("perdure_model_errors", "Failed model calls", labels=("model", "kind"))
        for line in self._serving.host.services.calls.lines():
            requests.add_metric((line["name"],), line["requests"])
            for kind, count in line["errors"].items():
                errors.add_metric((line["name"], str(kind)), count)
        yield requests
        yield errors

    def _house(self) -> Iterator[Metric]:
        """What it refuses, what it owns, how late it is. Labels are names of events and channels: few."""
        host = self._serving.host
        services, lag, pauses = host.services, host.watching.lag, host.pauses
        if lag is not None:
            late = lag.figures()
            quantiles = {"0.5": late.p50, "0.99": late.p99, "1": late.max}
            yield _family("gauge", "loop_lag_ms", "How late the loop is, of a minute", quantiles, "quantile")
            yield _one("counter", "loop_blocked", "Times that code held the loop up", late.blocked)
        yield _one("counter", "gc_pause_seconds", "All pauses of the collector", pauses.total)
        longest = {str(n): each for n, each in enumerate(pauses.longest)}
        told = "The longest pause of the collector"
        yield _family("gauge", "gc_longest_pause_seconds", told, longest, "generation")
        memory = {name: value for name, value in services.memory.line().items() if value is not None}
        yield _family("gauge", "memory", "The byte budget, as `status` has it", memory, "figure")
        storage = {k: v for k, v in services.durable.status().items() if isinstance(v, int | float)}
        yield _family("gauge", "storage", "The journal, as `status` has it", storage, "figure")
        for figure in ("running", "waiting", "sent", "failed"):
            by_channel = {line["name"]: line[figure] for line in services.outbox.figures()}
            yield _family("gauge", f"outbox_{figure}", f"Deliveries: {figure}", by_channel, "channel")
        refused = {"rate": services.inbound.refused, "spend": services.spending.refused}
        refused["memory"] = services.memory.refused
        yield _family("counter", "refusals", "Refused by rate, budget of money, memory", refused, "why")
        yield _one("gauge", "quarantined", "Sessions that can't be opened", len(host.parking.quarantined()))
        trouble = {name: n for name, n in services.log.counts.items() if grade(name) != "note"}
        yield _family("counter", "trouble", "Warnings and errors by event", trouble, "event")

    def _server(self) -> Iterator[Metric]:
        serving = self._serving
        yield _family("counter", "http_answers", "Answers by status class", serving.answered, "status")
        yield _one("gauge", "streams", "Open event streams", serving.hub.streams)
        yield _one("counter", "streams_lagged", "Event streams ended for a slow reader", serving.hub.lagged)
        yield _one("gauge", "draining", "1 while the host is stopping", serving.draining)


def _one(kind: str, name: str, told: str, value: float) -> Metric:
    family = CounterMetricFamily if kind == "counter" else GaugeMetricFamily
    return family(f"perdure_{name}", told, value=value)


def _family(kind: str, name: str, told: str, values: Mapping[str, float], label: str) -> Metric:
    family = CounterMetricFamily if kind == "counter" else GaugeMetricFamily
    found = family(f"perdure_{name}", told, labels=(label,))
    for key, value in values.items():
        found.add_metric((key,), value)
    return found

"""When the next heartbeat of each session comes: its own instants on a grid, as the configuration says.

Nothing of it is written down: where a session's instants lie follows from its key, so that a restart, however
often, neither loses nor repeats one, and many sessions are spread over the interval.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from perdure.edges.schedule import DAY, Hours, duration, hours, next_beat
from perdure.edges.settings import Settings
from perdure.edges.settings_timers import Heartbeat


@dataclass(frozen=True, slots=True)
class Rule:
    """One session's heartbeat: every so many ms, in these hours, by these settings."""

    key: str
    every: int
    active: Hours | None
    told: Heartbeat


class Beats:
    """The heap of what comes next. Failures of a session double its interval, up to a day."""

    def __init__(
        self, rules: Iterable[Rule], now: int = 0, failures: Mapping[str, int] | None = None
    ) -> None:
        self.rules = {rule.key: rule for rule in rules}
        self._failures = {key: n for key, n in (failures or {}).items() if key in self.rules}
        self._heap = [(self._after(rule, now), key) for key, rule in self.rules.items()]
        heapq.heapify(self._heap)

    @classmethod
    def of(cls, settings: Settings, now: int, before: Beats | None = None) -> Beats:
        """By the configuration; of what was there before only the failures count."""
        return cls(rules(settings), now, before._failures if before is not None else None)

    @property
    def next(self) -> int | None:
        """When the earliest comes."""
        return self._heap[0][0] if self._heap else None

    def due(self, now: int, most: int) -> list[tuple[int, str]]:
        """What has come, at most so many; the next instant of each is after now, whatever was missed."""
        found: list[tuple[int, str]] = []
        while self._heap and self._heap[0][0] <= now and len(found) < most:
            at, key = self._heap[0]
            found.append((at, key))
            heapq.heapreplace(self._heap, (self._after(self.rules[key], now), key))
        return found

    def soon(self, most: int) -> list[tuple[int, str]]:
        """The next ones."""
        return heapq.nsmallest(most, self._heap)

    def went(self, key: str, *, well: bool, now: int) -> None:
        """How a heartbeat went."""
        if well:
            self._failures.pop(key, None)
            return
        self._failures[key] = self._failures.get(key, 0) + 1
        if key in self.rules:
            self._heap = [(self._after(self.rules[key], now) if k == key else at, k) for at, k in self._heap]
            heapq.heapify(self._heap)

    def _after(self, rule: Rule, now: int) -> int:
        wait = rule.every * (2 ** min(self._failures.get(rule.key, 0), 12) - 1)
        return next_beat(rule.key, rule.every, rule.active, now + min(wait, max(DAY, rule.every)))


def rules(settings: Settings) -> list[Rule]:
    """The heartbeats of a configuration: each agent's own, over what holds for all."""
    general = settings.heartbeat
    found = {key: _rule(key, general) for key in general.sessions if general.every}
    for agent in settings.agents:
        told = agent.heartbeat.over(general)
        for key in agent.heartbeat.sessions or tuple(k for k in general.sessions if _of(k, agent.name)):
            found.pop(key, None)
            if told.every and told.every != "off":
                found[key] = _rule(key, told)
    return [rule for _, rule in sorted(found.items())]


def _of(key: str, agent: str) -> bool:
    return key.startswith(f"agent:{agent}:")


def _rule(key: str, told: Heartbeat) -> Rule:
    return Rule(key, duration(told.every), hours(told.active_hours, told.timezone), told)

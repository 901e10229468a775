"""Who answers where a model can't: the chain of `[models] fallback`, by agent too.

A model that failed for good, in a way that another would not share, is left alone for a while, by all
sessions: they go on with the first of their chain that can be called, and come back when that time is over.
"""

from __future__ import annotations

from typing import Any, Protocol

from perdure.actors.prompting import agent_settings
from perdure.edges.log import Log
from perdure.edges.settings import Settings
from perdure.errors import ConfigError, ModelError
from perdure.kernel.clock import Clock
from perdure.records import ModelInfo

ELSEWHERE = frozenset(
    {"auth", "billing", "not_found", "rate_limit", "overloaded", "server", "transport", "timeout", "cut"}
)
LONGEST = 86_400.0  # seconds that a provider may ask to be left alone


class Models(Protocol):
    """What is used of the resolver."""

    def model_info(self, ref: str) -> ModelInfo: ...
    def lacks(self, info: ModelInfo) -> str: ...


class Fallbacks:
    """One for a host. `taken`: how often a turn went on with another model."""

    def __init__(self, clock: Clock, models: Models, settings: Settings, log: Log) -> None:
        self._clock, self._models, self._settings, self._log = clock, models, settings, log
        self._alone: dict[str, tuple[float, str]] = {}  # reference: until when, and why
        self._wrong: set[str] = set()  # references of the configuration that are none, told once
        self.taken = 0

    def adopt(self, settings: Settings) -> None:
        """From now on."""
        self._settings = settings

    def choose(self, key: str, first: ModelInfo) -> ModelInfo:
        """`first`, or who stands in for it now. Where nobody can, `first` says why itself."""
        if self._ready(first):
            return first
        return next(filter(self._ready, self._chain(key)), first)

    def failed(self, key: str, model: ModelInfo, error: ModelError) -> bool:
        """A call came to nothing for good: whether another model can go on with the turn."""
        chain = self._chain(key)
        if not chain or error.kind not in ELSEWHERE:
            return False
        after = max(self._settings.models.cooldown_seconds, min(error.retry_after or 0.0, LONGEST))
        self._alone[model.ref] = self._clock.now() + after, f"{error.kind}: {error}"
        found = any(self._ready(info) for info in chain)
        self.taken += found
        return found

    def why(self, model: ModelInfo) -> str:
        """Why it is left alone, in words."""
        lacking = self._models.lacks(model)
        return lacking or self._alone.get(model.ref, (0.0, ""))[1]

    def lines(self) -> list[dict[str, Any]]:
        """For `status`: who is left alone, for how long, and why."""
        now = self._clock.now()
        return [
            {"model": ref, "seconds": round(until - now, 1), "why": why[:300]}
            for ref, (until, why) in self._alone.items()
            if until > now
        ]

    def _ready(self, info: ModelInfo) -> bool:
        return self._alone.get(info.ref, (0.0, ""))[0] <= self._clock.now() and not self._models.lacks(info)

    def _chain(self, key: str) -> list[ModelInfo]:
        own = agent_settings(self._settings, key).fallback
        found = []
        for ref in self._settings.models.fallback if own is None else own:
            try:
                found.append(self._models.model_info(ref))
            except ConfigError as error:
                if ref not in self._wrong:
                    self._wrong.add(ref)
                    self._log.warning("model.no_fallback", model=ref, error=str(error))
        return found

"""What a session's requests are made under: model, prompt, tools, pins, knowledge; and when it changes.

Every change costs a cached prefix, so the workspace's files are read anew only where that costs none, or
it is lost anyway.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

from perdure.actors.view import Ranking
from perdure.context.environment import Environment
from perdure.context.prompt.pins import marked, with_pins
from perdure.edges.session.facts import Settings
from perdure.records import Item, ModelInfo, Pinned

if TYPE_CHECKING:
    from perdure.actors.session import Session

Refresh: TypeAlias = Literal[
    "woken", "cold", "compaction", "model", "thinking", "engine", "settings", "pins", "request", "overflow"
]  # fmt: skip
"""Why a session's environment was resolved anew."""


class Surroundings:
    """Owns the environment. `refreshed` says why it was last resolved anew."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.environment: Environment
        self.refreshed = ""
        self._bare: Environment  # the same without what the user pinned
        self._adopted = Settings()
        self._ranked = Ranking()
        self.first: ModelInfo  # the session's own choice
        self._told = ""  # who stands in for it, as the user knows

    def follow(self) -> None:
        """Another program, a new view or the user's pins may have changed what holds."""
        t = self.session.transcript
        if t.settings != self._adopted:
            self.adopt(t.settings, "settings")
        elif self._ranked.changes(t.generation, t.items) and self.environment.knowledge_tokens:
            self.adopt(t.settings, "request")
        elif marked(t.pins) != self.environment.pins:
            self.carry_pins()

    def adopt(
        self,
        chosen: Settings,
        why: Refresh,
        pins: tuple[Pinned, ...] | None = None,
        items: Sequence[Item] | None = None,
    ) -> None:
        """Run with what the transcript says: model and thinking level, chosen here or by another program.

        `pins`, `items`: those of the view, where there is no transcript yet.
        """
        session, resolver = self.session, self.session.services.resolver
        ref = f"{chosen.provider}/{chosen.model}" if chosen.provider and chosen.model else None
        self.first = resolver.model_for(session.key, ref)
        info = session.services.fallbacks.choose(session.key, self.first)
        fresh = why in ("cold", "compaction", "model") or session.turns.cold
        query = self._ranked.by(session.transcript.items if items is None else items)
        kept = not self._ranked.given_up
        self._bare = resolver.environment(
            session.key, info, chosen.thinking, fresh=fresh, query=query, knowledge=kept, engine=chosen.engine
        )
        self._adopted = chosen
        self._take(with_pins(self._bare, session.transcript.pins if pins is None else pins), why)

    def reconsider(self) -> bool:
        """Between turns, or where the model failed: the session's choice, or who stands in for it now.

        True: the view is made smaller for it first.
        """
        session, before = self.session, self.environment
        if session.services.fallbacks.choose(session.key, self.first).ref != before.model.ref:
            self.adopt(session.transcript.settings, "model")
        session.transcript.stand_in = self.environment.model.ref != self.first.ref
        self._tell(before.model.ref)
        limits = self.environment.limits
        smaller = limits.window < before.limits.window and session.scales.tokens > limits.threshold
        return smaller and session.compacting.consider("model_switch")

    def _tell(self, before: str) -> None:
        """Once, in whatever direction it changed."""
        model, first = self.environment.model.ref, self.first.ref
        stands_in = model if model != first else ""
        if stands_in == self._told:
            return
        if stands_in:
            why = self.session.services.fallbacks.why(self.first)
            text = f"{first} can't answer ({why}): {model} does, and reads the context anew, uncached"
        else:
            text = f"{first} answers again, and reads the context anew, uncached"
        self._told = stands_in
        self.session.notice("fallback", text)

    def carry_pins(self) -> None:
        """Every request from the next one on holds what the user has pinned by now."""
        self._take(with_pins(self._bare, self.session.transcript.pins), "pins")

    def give_up_knowledge(self) -> bool:
        """The last thing to go where a request fits in no other way; whether there was any."""
        had = self.environment.knowledge_tokens
        if had:
            self._ranked.given_up = True
            self.adopt(self.session.transcript.settings, "overflow")
            self.session.notice("knowledge", f"left out of the prompt, for want of room: {had:,} tokens")
        return had > 0

    def refresh(self) -> None:
        """After a compaction the cache is cold anyway, and there is room again."""
        self._ranked.given_up = False
        self.adopt(self.session.transcript.settings, "compaction")

    def _take(self, found: Environment, why: Refresh) -> None:
        if not hasattr(self, "environment"):
            self.environment = found
        elif found != self.environment:
            self.session.services.log("context.refreshed", session=self.session.key, why=why)
            self.environment, self.refreshed = found, why

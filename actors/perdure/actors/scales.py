"""How large a session's requests are: one estimator for trigger, budget and display, taught by usage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.actors.messages import Append, Overflowed
from perdure.context.compaction.size import limited
from perdure.context.tokens.budget import Budget, measure_budget
from perdure.context.tokens.estimator import Estimator, Measure, estimator_of
from perdure.context.tokens.floor import owners
from perdure.records import Assistant, Item

if TYPE_CHECKING:
    from perdure.actors.session import Session


class Scales:
    """Weighs the view. What was learned is the transcript's, and survives with it."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._sent: tuple[int, int, Measure] | None = None  # generation, items then, size of the request

    @property
    def estimator(self) -> Estimator:
        """What the transcript has learned about the model in use."""
        return estimator_of(self.session.transcript.learned, self.session.environment.model.ref)

    def weigh(self, item: Item) -> Measure:
        """An item's size; a single result counts at its limited size, for more is never sent."""
        size = self.session.turns.scratch.gauge.measure(item)
        return limited(item, size, self.session.environment.limits)

    @property
    def tokens(self) -> int:
        """The unguarded request: view, system prompt and tools.

        Of an engine that owns compaction what it assembled last, and what came since: the view is not what
        it sends, and its own compaction doesn't make that smaller.
        """
        t, env = self.session.transcript, self.session.environment
        size = t.size
        if self._sent is not None and self._sent[0] == t.generation and self._owns:
            size = sum(map(self.weigh, t.items[self._sent[1] :]), self._sent[2])
        return self.estimator.whole(size, env.fixed_tokens)

    @property
    def _owns(self) -> bool:
        return self.session.services.engines.of(self.session.environment.engine).info.owns_compaction

    def accepted(self, request: Measure) -> None:
        """A model took a request of this size, whose answer is the newest item."""
        t = self.session.transcript
        self._sent = t.generation, len(t.items) - 1, request

    @property
    def budget(self) -> Budget:
        """The same by source."""
        env = self.session.environment
        items = tuple(self.session.transcript.items)
        return measure_budget(items, env, self.estimator, env.fixed_tokens, guarded=False)

    @property
    def owners(self) -> dict[str, int]:
        """The same by owner. Looks at every message."""
        t, env = self.session.transcript, self.session.environment
        return owners(
            tuple(t.items),
            [self.estimator.chars(self.weigh(item)) for item in t.items],
            fixed_tokens=env.fixed_tokens,
            tool_tokens=env.tool_tokens,
            total=self.tokens,
        )

    def learned(self, mail: Append) -> Estimator | None:
        """What an answer's usage teaches about its request; it is kept with the answer."""
        usage = mail.message.usage if isinstance(mail.message, Assistant) else None
        if usage is None or not usage.prompt or mail.request is None:
            return None
        return self.estimator.learn(mail.request, mail.fixed_tokens, usage.prompt)

    def refused(self, overflow: Overflowed) -> None:
        """A refusal that names its size teaches like an answer."""
        size, fixed = overflow.request, overflow.fixed_tokens
        if size is not None and overflow.real > self.estimator.forecast(size, fixed):
            self.session.transcript.learn(self.estimator.refused(size, fixed, overflow.real))

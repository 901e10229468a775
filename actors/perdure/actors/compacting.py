"""The session's side of compaction: ask the coordinator, send the worker, prove and commit, truncate."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from perdure.actors import coordinator
from perdure.actors.coordinator import Coordinator, Reason, Refuse, Start
from perdure.actors.messages import (
    Append,
    Compact,
    Compacted,
    CompactionFailed,
    Idle,
    Overflowed,
    Truncate,
    Truncated,
)
from perdure.context.budget import Budget, measure_budget
from perdure.context.compaction.proof import Refusal
from perdure.context.compaction.size import limited
from perdure.context.tokens import Estimator, Measure, estimator_of
from perdure.edges.session.rewrite import discard
from perdure.errors import PerdureError
from perdure.kernel.deadlines import Timer
from perdure.kernel.waiter import Waiter
from perdure.records import Assistant, Item, Items

if TYPE_CHECKING:
    from perdure.actors.session import Session


class Compacting:
    """Owns the coordinator's state, and what waits for a compaction's end."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.state = Coordinator()
        self._asked: Waiter[str] | None = None
        self._staged: Compacted | None = None
        self._truncating = False
        self._timer: Timer | None = None

    # --- sizes ------------------------------------------------------------------------------------

    def weigh(self, item: Item) -> Measure:
        """An item's size; a single result counts at its limited size, for more is never sent."""
        size = self.session.turns.scratch.gauge.measure(item)
        return limited(item, size, self.session.environment.limits)

    @property
    def tokens(self) -> int:
        """The unguarded request: view, system prompt and tools."""
        return self.estimator.whole(self.session.transcript.size, self.session.environment.fixed_tokens)

    @property
    def budget(self) -> Budget:
        """The same by source."""
        env = self.session.environment
        items = tuple(self.session.transcript.items)
        return measure_budget(items, env, self.estimator, env.fixed_tokens, guarded=False)

    @property
    def estimator(self) -> Estimator:
        """What the transcript has learned about the model in use."""
        return estimator_of(self.session.transcript.learned, self.session.environment.model.ref)

    @property
    def at_rest(self) -> bool:
        """Nothing is under way that a sleep would disturb."""
        return self.state.running is None and not self._truncating

    def accepted(self) -> None:
        """A model took a request: the count of attempts is over."""
        self.state = coordinator.accepted(self.state)

    def learned(self, mail: Append) -> Estimator | None:
        """What an answer's usage teaches about its request; it is kept with the answer."""
        usage = mail.message.usage if isinstance(mail.message, Assistant) else None
        if usage is None or not usage.prompt or mail.request is None:
            return None
        return self.estimator.learn(mail.request, mail.fixed_tokens, usage.prompt)

    # --- triggers ---------------------------------------------------------------------------------

    def consider(self, reason: Reason | None = None) -> None:
        """Start one in the background if a line is passed; the turn, if any, goes on meanwhile."""
        wanted = reason or self._wanted()
        if wanted is not None and isinstance(self._ask(wanted), Start):
            self._begin(wanted)

    def _wanted(self) -> Reason | None:
        limits, t = self.session.environment.limits, self.session.transcript
        if self.tokens > limits.threshold:
            return "threshold"
        if len(t.items) > limits.size_entries or t.view_bytes > limits.size_bytes:
            return "size"
        return None

    def rested(self) -> None:
        """A large view whose cache will be cold is compacted while nobody waits for it."""
        self.stop_timer()
        if self.tokens > self.session.environment.limits.idle_line and self.session.services.compacts_idle:
            post = self.session.ref.post
            services = self.session.services
            self._timer = services.clock.call_after(services.cache_life, lambda: post(Idle()))

    def stop_timer(self) -> None:
        """A new turn, or sleep: the idle trigger is off."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def overflowed(self, overflow: Overflowed) -> None:
        """A request did not fit: the turn waits for a smaller view, or ends with the typed overflow."""
        if self._staged is not None:  # it came while the turn ran, and the turn is between batches now
            self.switch()
            return
        match self._ask("overflow"):
            case Start():
                self._begin("overflow")
            case Refuse(why):
                self._no_room(f"{overflow.why}; {why}")
            case _:
                self.session.notice("compaction", "waiting for the compaction that is under way")

    def commanded(self, focus: str, done: Waiter[str]) -> None:
        """`/compact`: the answer comes when it is done."""
        match self._ask("manual"):
            case Start():
                self._asked = done
                self._begin("manual", focus)
            case Refuse(why):
                done.set(f"Nothing was compacted: {why}.")
            case _:
                done.set("A compaction is under way already.")

    def _ask(self, reason: Reason) -> coordinator.Verdict:
        services, leaf = self.session.services, self.session.transcript.leaf or ""
        policy: coordinator.Policy = "manual" if services.trigger == "manual" else "auto"
        return coordinator.ask(self.state, reason, leaf=leaf, now=services.clock.now(), policy=policy)

    def _begin(self, reason: Reason, focus: str = "") -> None:
        self.stop_timer()
        self.state = coordinator.begin(self.state, reason)
        if not self.session.submit("compaction", Compact(self.session.snapshot(), reason, focus)):
            self._ended("crashed", "too many compactions wait already")

    # --- ends -------------------------------------------------------------------------------------

    def compacted(self, mail: Compacted) -> None:
        """A summary is ready. The view is switched between tool batches only, so it may have to wait."""
        if self.state.running is None:
            return  # asked for by one that crashed, or for the session before `/new`
        if self.session.state == "running":
            self._staged = mail
        else:
            self._commit(mail)

    def switch(self) -> None:
        """Between batches: commit what is ready."""
        staged, self._staged = self._staged, None
        if staged is not None:
            self._commit(staged)

    def failed(self, mail: CompactionFailed) -> None:
        """The worker found no summary."""
        if self.state.running is not None:
            self._ended(mail.kind, mail.why)

    def crashed(self, pool: str, why: str) -> None:
        """A worker died of its message: for the session that is a failure like any other."""
        if pool == "compaction" and self.state.running is not None:
            self._ended("crashed", why)
        elif pool == "truncation":
            self._truncating = False

    def _commit(self, mail: Compacted) -> None:
        t = self.session.transcript
        done = mail.done
        if mail.generation != t.generation or (done is not None and not _begins(t.items, done.plan.before)):
            self.state = coordinator.dropped(self.state)
            self._answer("Nothing was compacted: the session changed meanwhile. Try again.")
            self._go_on()
            return
        if done is None:  # an engine that owns compaction has made its own store smaller
            self.state = coordinator.committed(self.state)
            self._tell("The context engine has compacted its view.")
            return
        grown = tuple(t.items[len(done.plan.before) :])
        limits = self.session.environment.limits
        proof = done.prove_again(grown, limits=limits, estimator=self.estimator)
        if isinstance(proof, Refusal):
            self._ended("hopeless", f"{proof.reason}: {proof.detail}")
            return
        before = self.tokens
        try:
            t.compact(done.summary, proof.first_kept, proof.tokens_before, msgspec.json.encode(proof))
        except PerdureError as error:
            self.session.not_written(error)
            self._ended("storage", str(error))
            return
        self.state = coordinator.committed(self.state)
        self.session.refresh_environment()
        self._tell(f"Compacted {proof.entries} messages ({proof.rung}): {before:,} → {self.tokens:,} tokens")
        self._truncate()

    def _ended(self, kind: str, why: str) -> None:
        now, was = self.session.services.clock.now(), self.state.running
        hopeless = self.session.transcript.leaf if kind in ("hopeless", "nothing") else None
        self.state = coordinator.failed(self.state, now=now, hopeless=hopeless)
        self.session.services.log.warning("compaction.failed", session=self.session.key, kind=kind, why=why)
        self._answer(f"Nothing was compacted: {why}.")
        if self.session.state == "settling" and was not in ("overflow", None):
            self._ask_again(why)  # a background attempt gives up sooner than one that a turn waits for
        elif self.session.state == "settling":
            self._no_room(f"the context can't be made smaller: {why}")

    def _no_room(self, why: str) -> None:
        """Neither results nor early turns can give way: workspace knowledge does, then the turn ends."""
        if self.session.give_up_knowledge():
            self._go_on()
        else:
            self.session.turns.end_badly("overflow", why)

    def _ask_again(self, why: str) -> None:
        match self._ask("overflow"):
            case Start():
                self._begin("overflow")
            case _:
                self._no_room(f"the context can't be made smaller: {why}")

    def _tell(self, text: str) -> None:
        self._answer(text)
        self.session.notice("compaction", text)
        self._go_on()

    def _answer(self, text: str) -> None:
        asked, self._asked = self._asked, None
        if asked is not None:
            asked.set(text)

    def let_go(self) -> None:
        """The session leaves its file: what is under way is for nobody any more."""
        self._answer("Nothing was compacted: the session was closed meanwhile.")

    def _go_on(self) -> None:
        if self.session.state == "settling":
            self.session.turns.run()

    # --- truncation -------------------------------------------------------------------------------

    def _truncate(self) -> None:
        services = self.session.services
        enough = self.session.transcript.covered_bytes >= services.truncate_after
        if enough and services.truncates and not self._truncating:
            self._truncating = self.session.submit(
                "truncation", Truncate(self.session.key, self.session.held)
            )

    def truncated(self, mail: Truncated) -> None:
        """The rewritten file is ready: put it in place, appends since then included."""
        if not self._truncating:  # for the session before `/new`, or for one that crashed
            if mail.prepared is not None:
                discard(mail.prepared)
            return
        self._truncating = False
        log, key = self.session.services.log, self.session.key
        if mail.prepared is None:
            log("truncation.skipped", session=key, why=mail.why)
            return
        try:
            report = self.session.transcript.truncate(mail.prepared)
        except PerdureError as error:
            log("truncation.failed", session=key, error=str(error))
            return
        if report.done:
            self.session.notice("truncation", report.line())
        else:
            log("truncation.skipped", session=key, why=report.reason)


def _begins(items: list[Item], before: Items) -> bool:
    """Whether the view still begins with what a summary was made of."""
    return len(items) >= len(before) and all(a.entry == b.entry for a, b in zip(before, items, strict=False))

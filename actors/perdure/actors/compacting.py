"""The session's side of compaction: ask trigger and coordinator, flush memory, send the worker, prove and
commit, tell the user once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from perdure.actors import coordinator
from perdure.actors.coordinator import Coordinator, Reason, Refuse, Start, Wait
from perdure.actors.messages import (
    Compact,
    Compacted,
    CompactionFailed,
    Flush,
    Flushed,
    Idle,
    Overflowed,
    Snapshot,
)
from perdure.actors.urgency import slack
from perdure.actors.view import begins_with
from perdure.context.compaction.proof import Refusal
from perdure.context.text.plural import counted
from perdure.context.tokens.floor import floor_of, in_words
from perdure.contracts import Pressure
from perdure.errors import PerdureError
from perdure.events import Overflow
from perdure.kernel.deadlines import Timer
from perdure.kernel.outcome import Cancelled, Outcome, describe
from perdure.kernel.waiter import Waiter
from perdure.records import Pinned

if TYPE_CHECKING:
    from perdure.actors.session import Session

Moment = Literal["step", "rest", "idle", "overflow", "model_switch"]
Cause = Literal["floor", "summariser", "trigger", "attempts"]
STOPPED = "Nothing was compacted: it was stopped, and nothing was changed."
CLOSED = "Nothing was compacted: the session was closed meanwhile."
CHANGED = "Nothing was compacted: the session changed meanwhile. Try again."
WHAT_TO_DO = {
    "floor": "say less at once or put it into a file, offer fewer tools, or choose a larger model",
    "summariser": "send it again later, begin anew with /new, or choose a larger model",
    "trigger": "send /compact, begin anew with /new, or choose a larger model",
    "attempts": "begin anew with /new, or choose a larger model",
}


class Compacting:
    """Owns the coordinator's state, and what waits for a compaction's end.

    `state` is that of the session before its sleep; where a new file begins (`/new`) only the number of
    runs goes on, so that no late report passes for a new one.
    """

    def __init__(self, session: Session, state: Coordinator) -> None:
        self.session, self.state = session, state
        self.told = ""  # why the latest attempt led nowhere; empty after a commit
        self._noted = ""  # the last entry that memory has seen
        self._shown: Snapshot | None = None  # to memory's flush
        self._floor_told = False  # that system and tools alone are over the threshold
        self._soft = False  # the flush under way was begun ahead of a compaction
        self._asked: list[Waiter[str]] = []
        self._focus = ""
        self._overflow: Overflowed | None = None  # what the turn that settles waits for
        self._tried: str | None = None  # the leaf of the view that is being compacted
        self._doubted = False  # what was learned was forgotten, and no model has accepted a request since
        self._staged: Compacted | None = None
        self._timer: Timer | None = None

    def status(self) -> dict[str, object]:
        """For `status --deep`; `told` is why the latest attempt led nowhere."""
        state, limits = self.state, self.session.environment.limits
        return {
            "running": state.running,
            "attempts": state.attempts,
            "failures": state.failures,
            "told": self.told,
            "threshold": limits.threshold,
            "owners": self.session.scales.owners if self.told else {},
        }

    @property
    def _slack(self) -> float:
        limits = self.session.environment.limits
        return slack(self.session.scales.tokens, limits.threshold, limits.overflow)

    @property
    def at_rest(self) -> bool:
        """Nothing is under way that a sleep would disturb."""
        return self.state.running is None and self.state.flush != "under way"

    @property
    def comes_first(self) -> bool:
        """A smaller window was chosen: the next request waits until the view is made for it."""
        return self.state.running == "model_switch"

    def accepted(self) -> None:
        """A model took a request: the count of attempts is over."""
        self.state, self._doubted = coordinator.accepted(self.state), False

    # --- triggers ---------------------------------------------------------------------------------

    def consider(self, moment: Moment) -> bool:
        """Start one in the background if the trigger wants it; the turn, if any, goes on meanwhile."""
        wanted = self._wanted(moment)
        if wanted is not None and isinstance(self._ask(wanted), Start):
            self._begin(wanted)
            return True
        if self.session.services.flushes:
            soft = self.session.environment.limits.soft_line
            if coordinator.wants_flush(self.state, self.session.scales.tokens, soft):
                self._flush()
        return False

    def _wanted(self, moment: Moment) -> Reason | None:
        limits, t = self.session.environment.limits, self.session.transcript
        pressure = Pressure(
            moment=moment,
            tokens=self.session.scales.tokens,
            window=limits.window,
            threshold=self._line,
            idle_line=limits.idle_line,
            entries=len(t.items),
            view_bytes=t.view_bytes,
            size_entries=limits.size_entries,
            size_bytes=limits.size_bytes,
        )
        return self.session.services.wanted(self.session.key, pressure)

    @property
    def _line(self) -> int:
        """The threshold, or what a compaction leaves at best where that is more: below it every turn would
        compact again. Where system and tools alone are over the threshold, the user is told so once.
        """
        env, limits = self.session.environment, self.session.environment.limits
        if env.fixed_tokens > limits.threshold and not self._floor_told:
            self._floor_told = True
            self._tell("system and tools alone are over the threshold", told=False)
        return max(limits.threshold, min(env.fixed_tokens + limits.kept_tail, limits.overflow))

    def rested(self) -> None:
        """A large view whose cache will be cold is compacted while nobody waits for it."""
        self.stop_timer()
        services, limits = self.session.services, self.session.environment.limits
        if services.compacts_idle and self.session.scales.tokens > limits.idle_line:
            post = self.session.ref.post
            self._timer = services.clock.call_after(services.cache_life, lambda: post(Idle()))

    def stop_timer(self) -> None:
        """A new turn, or sleep: the idle trigger is off."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def overflowed(self, overflow: Overflowed) -> None:
        """A request did not fit: the turn waits for a smaller view, or ends with the typed overflow."""
        self._overflow = overflow
        self.session.scales.refused(overflow)
        if self._staged is not None:  # it came while the turn ran, and the turn is between batches now
            self.switch()
        else:
            self._make_room()

    def _make_room(self, instead: str = "") -> None:
        """Begin or await a compaction for the turn that overflowed, or end it: `instead` says better why."""
        if self.state.running is None and self._wanted("overflow") is None:
            self._give_up("trigger", instead or "nothing compacts by itself here")
            return
        match self._ask("overflow"):
            case Start(reason):
                self._begin(reason)
            case Wait(running):
                self.session.services.log("compaction.awaited", session=self.session.key, reason=running)
            case Refuse(why, cause):
                self._give_up(cause, instead or self.told or why)

    def commanded(self, focus: str, done: Waiter[str]) -> None:
        """`/compact`: the answer comes when it is done."""
        if self.state.running is not None and focus:
            done.set("A compaction is under way already: send /compact with its focus again behind it.")
            return
        self._asked.append(done)
        if self.state.running is None:
            self._begin("manual", focus)

    def _ask(self, reason: Reason) -> coordinator.Verdict:
        leaf = self.session.transcript.leaf or ""
        return coordinator.ask(self.state, reason, leaf=leaf, now=self.session.services.clock.now())

    # --- flush, then compact ----------------------------------------------------------------------

    def _begin(self, reason: Reason, focus: str = "") -> None:
        self.stop_timer()
        self._focus = focus
        under_way, services = self.state.flush == "under way", self.session.services
        if not services.flushes:
            services.log("flush.absent", session=self.session.key)
        self.state = coordinator.begin(self.state, reason, flushes=services.flushes)
        if self.state.phase == "summary":
            self._summarise()
        elif not under_way:
            self._flush()

    def _flush(self) -> None:
        self.state, self._soft = coordinator.flushing(self.state), self.state.running is None
        self._shown = self.session.snapshot()
        mail = Flush(self._shown, self._noted, self.state.running, self._slack)
        if not self.session.submit("flush", mail, lambda _outcome: Flushed(False)):
            self.flushed(Flushed(False))

    def flushed(self, mail: Flushed) -> None:
        """Memory has noted what it wanted, or could not: what waited for it goes on."""
        if self.state.flush != "under way":
            return  # of the session before `/new`
        waited, self._noted = self.state.phase == "flush", mail.upto or self._noted
        self.state = coordinator.flushed(self.state, well=mail.well, soft=self._soft)
        if waited and self._soft:
            self._flush()
        elif waited:
            self._summarise(self._shown)  # and nothing that came since: memory has not seen it

    def _summarise(self, shown: Snapshot | None = None) -> None:
        run, reason = self.state.run, self.state.running
        assert reason is not None
        stands = shown is not None and shown.generation == self.session.transcript.generation
        view = shown if shown is not None and stands else self.session.snapshot()
        mail, self._tried = Compact(run, view, reason, self._focus, self._slack), view.leaf

        def instead(outcome: Outcome) -> CompactionFailed:
            stopped = isinstance(outcome, Cancelled)
            return CompactionFailed(run, "aborted" if stopped else "crashed", describe(outcome))

        if not self.session.submit("compaction", mail, instead):
            self._ended("crashed", "too many compactions wait already")

    # --- ends -------------------------------------------------------------------------------------

    def compacted(self, mail: Compacted) -> None:
        """A summary is ready. The view is switched between tool batches only, so it may have to wait."""
        if self.state.running is None or mail.run != self.state.run:
            return  # asked for by one that was stopped, or for the session before `/new`
        if self.session.state == "running":
            self._staged = mail
        else:
            self._commit(mail)

    def turn_over(self) -> None:
        """The agent rests: nothing waits any more, and what is ready is committed."""
        self._overflow = None
        self.switch()

    def switch(self) -> None:
        """Between batches: commit what is ready."""
        staged, self._staged = self._staged, None
        if staged is not None:
            self._commit(staged)

    def failed(self, mail: CompactionFailed) -> None:
        """The worker found no summary."""
        if self.state.running is not None and mail.run == self.state.run:
            self._ended(mail.kind, mail.why)

    def abort(self) -> bool:
        """Stop the compaction under way; nothing of it is committed. Whether there was one."""
        if self.state.running is None:
            return False
        self._stop_workers()
        self.state = coordinator.dropped(self.state)
        self.session.services.log("compaction.aborted", session=self.session.key)
        if not self._answer(STOPPED):
            self.session.notice("compaction", STOPPED)
        return True

    def stops_with(self, *, turn: bool) -> bool:
        """Whether an abort means the compaction, too: it was commanded, is waited for, or is alone."""
        return self.state.running in ("manual", "overflow", "model_switch") or not turn

    def let_go(self) -> None:
        """The session leaves its file: what is under way is for nobody any more."""
        self._stop_workers()
        self._answer(CLOSED)

    def _stop_workers(self) -> None:
        self._staged = None
        for pool in ("flush", "compaction"):
            self.session.services.pools[pool].cancel(self.session.key)

    def _commit(self, mail: Compacted) -> None:
        t, done = self.session.transcript, mail.done
        if mail.generation != t.generation or (
            done is not None and not begins_with(t.items, done.plan.before)
        ):
            self.state = coordinator.dropped(self.state)
            self._answer(CHANGED)
            self._go_on()
            return
        if done is None:  # an engine that owns compaction has made its own store smaller
            self._committed("The context engine has compacted its view.")
            return
        grown = tuple(t.items[len(done.plan.before) :])
        limits = self.session.environment.limits
        proof = done.prove_again(grown, limits=limits, estimator=self.session.scales.estimator)
        if isinstance(proof, Refusal):
            self._ended("hopeless", f"{proof.reason}: {proof.detail}")
            return
        before = self.session.scales.tokens
        try:
            running = () if self.session.state == "idle" else done.plan.pins
            asked = [Pinned(pin.entry, pin.text, "request", pin.entry) for pin in running]
            t.compact(done.summary, proof.first_kept, proof.tokens_before, msgspec.json.encode(proof), asked)
        except PerdureError as error:
            self.session.not_written(error)
            self._ended("storage", str(error))
            return
        self.session.refresh_environment()
        after = self.session.scales.tokens
        self._committed(
            f"Compacted {counted(proof.entries, 'message')} ({proof.rung}): {before:,} → {after:,} tokens"
        )
        self.session.truncating.consider()

    def _committed(self, text: str) -> None:
        self.state, self.told = coordinator.committed(self.state), ""
        self._answer(text)
        self.session.notice("compaction", text)
        self.session.turns.tidy()
        self._go_on()

    def _ended(self, kind: str, why: str) -> None:
        now, was = self.session.services.clock.now(), self.state.running
        final = kind in ("hopeless", "nothing", "declined")
        hopeless = self._tried if final else None  # not the view that it has become
        self.state = coordinator.failed(self.state, now=now, hopeless=hopeless)
        self.session.services.log.warning("compaction.failed", session=self.session.key, kind=kind, why=why)
        answered = self._answer(f"Nothing was compacted: {why}.")
        quiet = kind == "declined" or (final and was == "idle")
        self._tell(why, told=answered or quiet or self._overflow is not None)
        if self.session.state == "settling" and self._overflow is None:
            self._go_on()
        elif self.session.state == "settling" and was == "overflow":
            self._give_up("floor" if final else "summariser", why)
        elif self.session.state == "settling":  # a background attempt gives up sooner than this one
            self._make_room(why)

    def _tell(self, why: str, *, told: bool) -> None:
        """A failure is told once, however often it comes again; its end is told by the next commit."""
        first, self.told = not self.told, why
        if first and not told:
            floor = in_words(floor_of(self.session.scales.owners).items())
            line = self.session.environment.limits.threshold
            text = f"Nothing could be compacted: {why}; what no compaction takes away is {floor}"
            self.session.notice("compaction", f"{text}, the threshold is {line:,}")

    def _answer(self, text: str) -> bool:
        asked, self._asked = self._asked, []
        for waiter in asked:
            self.session.services.durable.settle(waiter, text)
        return bool(asked)

    def _go_on(self) -> None:
        self._overflow = None
        if self.session.state == "settling":
            self.session.turns.run()

    # --- the overflow that is left ----------------------------------------------------------------

    def _doubts(self, cause: Cause) -> bool:
        """Where only our own estimate stands against a request, and nothing can be made smaller: a usage
        that lied must not close the session. What was learned is forgotten once; the provider decides.
        """
        learned = bool(self.session.scales.estimator.samples)
        only_estimated = self._overflow is not None and self._overflow.said_by == "guard"
        if self._doubted or cause != "floor" or not (learned and only_estimated):
            return False
        self._doubted = True
        self.session.transcript.forget(self.session.environment.model.ref)
        self.session.services.log.warning("estimate.doubted", session=self.session.key)
        return True

    def _give_up(self, cause: Cause, why: str) -> None:
        """Neither results nor early turns can give way: workspace knowledge does, else the turn ends with
        the typed overflow: both numbers, who takes what, and what to do.
        """
        if cause != "trigger" and (self.session.surroundings.give_up_knowledge() or self._doubts(cause)):
            self._go_on()
            return
        overflow, self._overflow = self._overflow, None
        assert overflow is not None
        tokens, limit, window = overflow.tokens, overflow.limit, self.session.environment.limits.window
        said = f"the request is about {tokens:,} tokens, the line is {limit:,} of {window:,}"
        if overflow.said_by == "provider":
            said = f"the provider refuses the request, about {tokens:,} of {window:,} tokens"
        parts = in_words(overflow.owners)
        text = f"{said} ({parts}), and it can't be made smaller: {why}; {WHAT_TO_DO[cause]}"
        typed = Overflow(cause, tokens, limit, overflow.owners)
        self.session.turns.end_badly("overflow", " ".join(text.split()), typed)

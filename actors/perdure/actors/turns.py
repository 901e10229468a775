"""The session's side of its turns: begin one, take its reports, end it well or badly.

One at most runs. Its number fences its reports: those of an older turn are refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from perdure.actors.capture import turn_over
from perdure.actors.messages import (
    AfterTurn,
    AfterTurnDone,
    Append,
    FellBack,
    NextStep,
    Overflowed,
    Rested,
    TurnEnded,
    Wake,
)
from perdure.actors.pictures import Pictures
from perdure.actors.tally import Tally
from perdure.actors.turn import Turn
from perdure.actors.view import answered_at, at_rest
from perdure.context.cache.watch import Watch
from perdure.context.pipeline import Scratch
from perdure.edges.session.facts import Delivered, Opened
from perdure.errors import Closed, PerdureError, StorageFailed
from perdure.events import Overflow, Reply, TurnFinished, TurnStarted
from perdure.kernel.deadlines import Timer
from perdure.kernel.errors import Closed as KernelClosed
from perdure.kernel.jobs import Job
from perdure.kernel.outcome import Cancelled, Failed, Returned, describe, trace_of
from perdure.records import Assistant, Text, ToolCall, ToolResult

if TYPE_CHECKING:
    from perdure.actors.session import Session

NOT_WRITTEN = "the answer could not be written; your message is kept: make room, and the turn is taken up"
STORAGE_PAUSE = 5.0  # seconds until letters that wait try a disk again that took nothing


class Stale(PerdureError):
    """A report of a turn that is over: refused."""


class Turns:
    """The running turn, if any, and what its restarts share (`tally`) and all turns (`scratch`)."""

    def __init__(self, session: Session, number: int = 0) -> None:
        self.session, self.number = session, number
        self.called: set[str] = set()  # ids of the calls that the running turn has on record
        self.job: Job | None = None
        self.aborted = False  # somebody asked for the running turn's end
        self.tally = Tally()
        self.scratch = Scratch()
        self.watch = Watch() if session.services.watches_cache else None
        self.pictures = Pictures(session.services.blobs)
        self.answered = 0  # wall ms of the latest answer, for the cache's age; 0: none is known
        self.after_due = False  # the hooks of the last turn have not reported yet
        self.compacted = False  # since the engine's hooks ran last
        self._pause: Timer | None = None  # turns wait for a disk that takes something again

    def anew(self) -> Turns:
        """For the same session, whose file was opened again: the provider's cache is what it was."""
        turns = Turns(self.session, self.number)
        turns.answered = self.answered
        return turns

    # --- begin ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin a turn from the transcript as it stands; letters wait in it or in the inbox."""
        session = self.session
        session.stop_timers()
        if self.answered and self.cold:  # what has changed in the workspace is shown when it costs nothing
            self._refresh()
        session.surroundings.reconsider()
        self.tally = Tally()
        session.services.events.publish(TurnStarted(session.key, self.number + 1))
        if session.compacting.comes_first:
            session.state = "settling"
        else:
            self.run()

    def _refresh(self) -> None:
        session = self.session
        try:
            session.surroundings.adopt(session.transcript.settings, "cold")
        except Exception as error:  # what can't be read now was read before: the turn goes on with that
            session.services.log.error("context.not_refreshed", session=session.key, error=repr(error))

    def run(self) -> None:
        """Run, or go on after the view has shrunk, under a new number."""
        session = self.session
        self.number += 1
        self.aborted = False
        self.called.clear()
        session.state = "running"
        number, post = self.number, session.ref.post
        turn = Turn(
            session.key,
            number,
            session.ref,
            session.services,
            self.tally,
            self.scratch,
            self.watch,
            self.pictures,
        )
        try:
            self.job = session.services.kernel.start(
                f"{session.key}#{number}", turn.run, on_end=lambda _job, out: post(TurnEnded(number, out))
            )
        except KernelClosed:
            session.state = "idle"
            session.letters.refuse(Closed("the host is stopping"))

    def woken(self, opened: Opened) -> None:
        """What the file tells of the call before: when a model answered, and what it was sent."""
        self.answered = min(answered_at(opened.items), self.session.services.clock.wall_ms())
        if self.watch is not None:
            self.watch.waking(opened.items, opened.sent)

    def first_woken(self) -> None:
        """The model is known now. One inside this process was never asked by a session of an earlier one."""
        model = self.session.services.resolver.model(self.session.environment.model)
        if self.watch is not None and not self.number and getattr(model, "cache_is_here", False):
            self.watch.forgotten()

    @property
    def cache_age(self) -> float | None:
        """Seconds since a model last read this view; None: never, as far as is known."""
        return (self.session.services.clock.wall_ms() - self.answered) / 1000 if self.answered else None

    @property
    def cold(self) -> bool:
        """Whether nothing is lost by a change at the front of the next request."""
        age = self.cache_age
        return age is None or age >= self.session.services.cache_life

    @property
    def unfinished(self) -> bool:
        """Whether letters wait, or the last message waits for an answer."""
        transcript = self.session.transcript
        return bool(transcript.pending) or any(not at_rest(last) for last in transcript.items[-1:])

    def take_up(self) -> None:
        """A turn that a crash cut off is taken up once per ownership; waiting letters start one."""
        session = self.session
        transcript, log = session.transcript, session.services.log
        last = transcript.items[-1] if transcript.items else None
        if transcript.pending:
            self.start()
        elif last is not None and not at_rest(last) and not transcript.already_resumed(last.entry):
            try:
                transcript.mark_resumed(last.entry)
            except PerdureError as error:
                log("session.not_resumed", session=session.key, error=str(error))
                return
            log("session.resumed", session=session.key, entry=last.entry)
            self.start()

    # --- its reports ------------------------------------------------------------------------------

    def _is_stale(self, number: int) -> bool:
        return number != self.number or self.session.state != "running"

    def next_step(self, mail: NextStep) -> None:
        """Between batches: switch the view if a summary is ready, let letters in, hand out a snapshot."""
        session = self.session
        if self._is_stale(mail.turn):
            mail.view.fail(Stale("this turn is over"))
            return
        try:
            session.compacting.switch()
            session.letters.enter()
        except PerdureError as error:
            session.not_written(error)
            mail.view.fail(error)
            return
        session.compacting.consider("step")
        mail.view.set(session.snapshot())

    def append(self, mail: Append) -> None:
        """Write an entry of the turn; the receipt is its item."""
        session = self.session
        if self._is_stale(mail.turn):
            mail.done.fail(Stale("this turn is over"))
            return
        if isinstance(mail.message, ToolResult) and mail.message.call_id not in self.called:
            session.services.log.error("turn.stray_result", session=session.key, call=mail.message.call_id)
            mail.done.fail(Stale(f"no call {mail.message.call_id} of this turn is on record"))
            return
        transcript = session.transcript
        learned = session.scales.learned(mail)
        try:
            item = transcript.append(
                mail.message,
                decisions=mail.decisions,
                evidence=mail.evidence,
                sent=mail.sent,
                learned=learned,
            )
        except PerdureError as error:
            session.not_written(error)
            mail.done.fail(error)
            return
        if mail.request is not None:
            self.answered = session.services.clock.wall_ms()
            session.compacting.accepted()
            session.scales.accepted(mail.request)
            self._tell_pruned(mail)
        session.services.durable.settle(mail.done, item)  # no tool runs before its call is durable
        if isinstance(item.message, Assistant):
            self.called.update(block.id for block in item.message.content if isinstance(block, ToolCall))

    def _tell_pruned(self, mail: Append) -> None:
        pruned = sum(decision.form == "pruned" for decision in mail.decisions)
        if pruned:
            self.session.notice(
                "pruning", f"{pruned} old tool results are no longer shown whole: recall reads them"
            )

    def ended(self, mail: TurnEnded) -> None:
        """The turn's job is over, however."""
        session = self.session
        if self._is_stale(mail.turn):
            return
        self.job = None
        match mail.outcome:
            case Returned(Rested() as rested):
                self.finish(rested)
            case Returned(FellBack()):
                if session.surroundings.reconsider():
                    session.state = "settling"
                else:
                    self.run()
            case Returned(Overflowed() as overflow):
                session.state = "settling"
                session.compacting.overflowed(overflow)
            case Cancelled() if session.leaving.closing:
                session.leaving.finish_close()
            case Cancelled() if self.aborted:
                self.end_badly("aborted", "aborted by the user")
            case Cancelled() if session.subagents.cut_off():
                self.end_badly("error", "the turn's task was killed")
            case Cancelled():  # by the host's end, not by a user
                session.leaving.finish_close()
            case Failed(StorageFailed() as error):
                self._wait_for_the_disk()
                session.services.log.error("turn.not_written", session=session.key, error=str(error))
                self.end_badly("error", f"{NOT_WRITTEN} ({error})", failure="storage")
            case outcome:
                trace = trace_of(outcome)
                session.services.log.error("turn.crashed", session=session.key, turn=mail.turn, trace=trace)
                self.end_badly(
                    "error", f"the turn failed inside the host: {describe(outcome)}", failure="host"
                )

    def after(self, mail: AfterTurnDone) -> None:
        """The hooks of the last turn have run: the agent really rests."""
        self.after_due = False
        session = self.session
        self._told(mail.told)
        if session.leaving.closing and session.state == "idle":
            session.leaving.finish_close()
            return
        if session.state == "idle":
            session.compacting.consider("rest")
            session.compacting.rested()
            session.keeping.rested()
            session.alarms.told()

    def _told(self, told: Delivered | None) -> None:
        """How far the engine was told stands in the file, so that a restart goes on from there."""
        t = self.session.transcript
        if told is None or t.delivered.get(told.engine) == told.entry or t.leaf == t.compaction:
            return  # nothing of ours stands directly behind a compaction: the next turn tells
        try:
            t.told_engine(told)
        except PerdureError as error:  # told again after a restart: engines know entries by their ids
            self.session.not_written(error)

    def idle(self) -> None:
        """It has rested for as long as a cache lives."""
        if self.session.state == "idle" and self.cold:
            self.session.compacting.consider("idle")
        elif self.session.state == "idle":  # the cache was kept alive meanwhile
            self.session.compacting.rested()

    # --- end --------------------------------------------------------------------------------------

    @property
    def stoppable(self) -> bool:
        """There is a turn that an abort would end."""
        state = self.session.state
        return state == "settling" or (state == "running" and self.job is not None)

    def abort(self) -> bool:
        """Stop the turn, if any; the end of one that runs comes as `TurnEnded`."""
        if self.session.state == "settling":
            self.end_badly("aborted", "aborted by the user")
            return True
        if self.job is None or self.session.state != "running":
            return False
        self.aborted = True
        self.job.cancel()
        return True

    def end_badly(
        self,
        stop: Literal["error", "aborted", "overflow"],
        why: str,
        overflow: Overflow | None = None,
        failure: str = "",
    ) -> None:
        """Close the turn in the transcript with what the model had said so far."""
        session, info = self.session, self.session.environment.model
        partial = (Text(self.tally.partial),) if self.tally.partial.strip() else ()
        kind: Literal["error", "aborted"] = "aborted" if stop == "aborted" else "error"
        now = session.services.clock.wall_ms()
        message = Assistant(partial, kind, info.provider, info.api, info.id, error=why, timestamp=now)
        try:
            self.tally.entries.append(session.transcript.append(message).entry)
        except PerdureError as error:
            session.not_written(error)
            session.services.log.error("turn.end_not_written", session=session.key, error=str(error))
        if stop != "aborted":
            self.tally.errors.append(why)
        self.finish(Rested(self.tally.partial, stop, why, overflow, failure))

    def finish(self, rested: Rested) -> None:
        """The agent rests: tell who waits, run the hooks, and take up what has come meanwhile."""
        session, t = self.session, self.tally
        key = session.key
        ends = (tuple(t.entries), tuple(t.errors), rested.overflow)
        reply = Reply(key, rested.text, rested.stop, t.steps, t.usage, *ends, rested.kind)
        session.state = "idle"
        session.transcript.turn_ended()
        session.compacting.turn_over()
        session.letters.answer(reply)
        session.sending.want()
        session.services.events.publish(TurnFinished(key, reply))
        session.alarms.turn_over(rested)
        session.subagents.turn_over(rested)
        self.hooks(rested.stop)
        turn_over(session)
        if session.leaving.closing:
            session.leaving.finish_close()
        elif session.opening.renewing is not None:
            session.leaving.begin_anew()
        elif session.transcript.pending and self._pause is None and not session.subagents.stopping:
            self.start()

    def tidy(self) -> None:
        """A compaction was committed: the engine may tidy up, now or behind the turn that runs."""
        self.compacted = True
        if self.session.state == "idle" and not self.after_due:
            self.hooks()

    def hooks(self, stop: str = "") -> None:
        """The engine's hooks behind a turn that ended as `stop`, or a compaction, by a worker.

        Their end comes as `AfterTurnDone`.
        """
        session, done = self.session, AfterTurnDone(self.number)
        compacted, self.compacted = self.compacted, False
        if session.services.engines.of(session.environment.engine).info.passive:
            self.after_due = True
            session.ref.post(done)
        else:
            due = AfterTurn(session.snapshot(), self.number, stop, compacted)
            self.after_due = session.submit("after_turn", due, lambda _outcome: done)

    def _wait_for_the_disk(self) -> None:
        """The disk takes nothing: letters that wait try again in a while, not at once and for ever."""
        self.stop_pause()
        post = self.session.ref.post
        self._pause = self.session.services.clock.call_after(STORAGE_PAUSE, lambda: post(Wake()))

    def stop_pause(self) -> None:
        """A turn starts, or the session leaves."""
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None

"""The session actor: a state machine with a mailbox, and the only writer of its file.

`handle` decides and never waits: whatever waits (opening the file, the turn, the workers) is a job or a
worker's message that comes back as mail. States and what moves them:

    opening ──Woken──► idle ──Deliver──► running ──rested──► idle
                        │                  │ overflowed
                        │                  ▼
                        │               settling ──Compacted──► running (the same turn goes on)
                        └─Sleep, Close──► closed      └─failed──► idle (typed overflow to the caller)

Its parts: `opening` (its file), `letters` (its inbox), `surroundings` (its prompt and model), `turns` (its
turn), `scales` and `compacting` (its size) and `truncating` (its disk). While a job has the file to itself
(`opening.with_file`), mail waits in any state.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, TypeAlias

from perdure.actors import commands
from perdure.actors.compacting import Compacting
from perdure.actors.coordinator import Coordinator, asleep
from perdure.actors.keeping import Keeping
from perdure.actors.letters import Letters
from perdure.actors.messages import (
    Abort,
    AfterTurnDone,
    Append,
    Changing,
    Close,
    Command,
    Compacted,
    CompactionFailed,
    Deliver,
    Flushed,
    Idle,
    KeepAlive,
    Kept,
    Known,
    Mail,
    NextStep,
    Note,
    Rejoined,
    Sleep,
    Snapshot,
    Truncated,
    TurnEnded,
    Wake,
    Woken,
)
from perdure.actors.opening import Change, Opening
from perdure.actors.pictures import Pictures
from perdure.actors.scales import Scales
from perdure.actors.services import Services
from perdure.actors.surroundings import Surroundings
from perdure.actors.transcript import Transcript
from perdure.actors.truncating import Truncating
from perdure.actors.turns import Turns
from perdure.actors.view import unseen
from perdure.context.environment import Environment
from perdure.context.pipeline import Scratch
from perdure.edges.session.files import Held
from perdure.errors import Busy, Closed, Fenced, PerdureError
from perdure.events import Notice
from perdure.kernel.mailbox import Ref
from perdure.kernel.outcome import Failed, Outcome, Returned, describe
from perdure.kernel.waiter import Waiter

State: TypeAlias = Literal["opening", "idle", "running", "settling", "closed"]


class Session:
    """One awake session. `release` gives its place back when it closes or falls asleep."""

    def __init__(
        self,
        key: str,
        ref: Ref,
        services: Services,
        release: Callable[[str], None],
        known: Known = Known(),  # noqa: B008  # frozen
    ) -> None:
        self.key, self.ref, self.services, self.release = key, ref, services, release
        self.state: State = "opening"
        self.closing: list[Waiter[None]] = []  # who waits for the session's end
        self.lost = False  # the file has another owner now
        self.opening = Opening(self)
        self.letters = Letters(self)
        self.turns = Turns(self, known.turn)
        self.compacting = Compacting(self, known.coordinator)
        self.truncating = Truncating(self)
        self.keeping = Keeping(self)
        self.held: Held
        self.transcript: Transcript
        self.surroundings, self.scales = Surroundings(self), Scales(self)
        self.opening.begin()

    # --- mail -------------------------------------------------------------------------------------

    def handle(self, mail: Mail) -> None:
        """Decide on one message. Never waits, never raises for a user's mistake."""
        if (self.opening.apart or self.state == "opening") and not isinstance(mail, Woken | Rejoined):
            self.opening.wait(mail)
            return
        self._decide(mail)
        if self.lost and self.state != "closed" and not self.opening.apart:
            self._lose()
        elif self.at_ease:
            self.services.on_idle(self.key)

    def _decide(self, mail: Mail) -> None:
        match mail:
            case Deliver():
                self.letters.deliver(mail)
            case NextStep():
                self.turns.next_step(mail)
            case Append():
                self.turns.append(mail)
            case TurnEnded():
                self.turns.ended(mail)
            case Command():
                commands.run(self, mail)
            case Note():
                self.letters.note(mail)
            case Abort(done):
                stopped = self.abort()
                if done is not None:
                    done.set(stopped)
            case Flushed():
                self.compacting.flushed(mail)
            case Compacted():
                self.compacting.compacted(mail)
            case CompactionFailed():
                self.compacting.failed(mail)
            case Truncated():
                self.truncating.ready(mail)
            case AfterTurnDone():
                self.turns.after_due = False
                if self.state == "idle":
                    self.compacting.consider("rest")
                    self.compacting.rested()
                    self.keeping.rested()
            case Idle():
                if self.state == "idle" and self.turns.cold:
                    self.compacting.consider("idle")
                elif self.state == "idle":  # the cache was kept alive meanwhile
                    self.compacting.rested()
            case KeepAlive():
                self.keeping.due()
            case Kept():
                self.keeping.kept(mail)
            case Rejoined():
                self.opening.rejoined(mail)
            case Changing(make, done):
                self.change(make, done)
            case Sleep(done):
                self._sleep(done)
            case Close():
                self._close(mail)
            case Woken(held, error):
                self._woken(held, error)
            case Wake():
                if self.state == "idle" and self.transcript.pending:
                    self.turns.start()

    def not_written(self, error: PerdureError) -> None:
        """Whoever tried tells its own caller; a file that another one owns now is let go besides."""
        self.lost = self.lost or isinstance(error, Fenced)

    def abort(self) -> bool:
        """Stop the turn, and a compaction that it waits for, that was commanded, or that runs alone."""
        turn = self.turns.stoppable
        compaction = self.compacting.stops_with(turn=turn) and self.compacting.abort()
        return (turn and self.turns.abort()) or compaction

    # --- what its parts share ---------------------------------------------------------------------

    @property
    def environment(self) -> Environment:
        """What its requests are made under."""
        return self.surroundings.environment

    @property
    def known(self) -> Known:
        """What the next waking begins with."""
        return Known(self.turns.number, asleep(self.compacting.state))

    @property
    def at_ease(self) -> bool:
        """Nothing is under way here, and nothing waits: it may sleep."""
        resting = self.state == "idle" and not self.turns.after_due and not self.opening.apart
        work = self.truncating.under_way or self.keeping.under_way or self.transcript.pending
        return resting and not work and self.compacting.at_rest

    def snapshot(self) -> Snapshot:
        """The view as it stands, immutable: for a step, or for a worker."""
        t = self.transcript
        self.surroundings.follow()
        running = self.state in ("running", "settling")
        return Snapshot(
            key=self.key,
            session_id=t.session_id,
            file=str(t.file.path),
            generation=t.generation,
            leaf=t.leaf or "",
            items=tuple(t.items),
            decisions=dict(t.decisions),
            environment=self.environment,
            unseen=unseen(t.items),
            estimator=self.scales.estimator,
            pinned=t.requests if running else {},
            running=running,
            cache_age=self.turns.cache_age,
            refreshed=self.surroundings.refreshed,
        )

    def submit(
        self, pool: str, mail: Mail, instead: Callable[[Outcome], Mail | None] = lambda _outcome: None
    ) -> bool:
        """Give a worker something to do; its answer, or `instead` of a bad end, comes as mail."""

        def back(outcome: Outcome) -> None:
            if not isinstance(outcome, Returned):
                log = self.services.log.error if isinstance(outcome, Failed) else self.services.log
                log("worker.failed", session=self.key, pool=pool, outcome=describe(outcome))
            answer = outcome.value if isinstance(outcome, Returned) else instead(outcome)
            if isinstance(answer, Mail):
                self.ref.post(answer)

        accepted = self.services.pools[pool].submit(self.key, mail, back)
        if not accepted:
            self.services.log.warning("worker.full", session=self.key, pool=pool)
        return accepted

    def refresh_environment(self) -> None:
        """After a compaction the cache is cold anyway: bootstrap files are read again."""
        self.surroundings.refresh()
        self.turns.scratch = Scratch()
        self.turns.pictures = Pictures(self.services.blobs)

    def notice(self, kind: str, text: str) -> None:
        """Tell the user, once, what happened to the session."""
        self.services.log(f"session.{kind}", session=self.key, text=text)
        self.services.events.publish(Notice(self.key, kind, text))

    # --- waking -----------------------------------------------------------------------------------

    def _woken(self, held: Held | None, error: BaseException | None) -> None:
        if held is None:
            self._not_woken(error or Closed("the session could not be opened"))
            return
        try:
            self.turns.woken(held.opened)
            opened = held.opened
            self.surroundings.adopt(opened.settings, "woken", opened.pins, opened.items)
        except Exception as failure:  # a workspace that can't be read, a configuration that can't work
            held.close(handover=False)
            self._not_woken(failure)
            return
        self.held, upkeep = held, self.services.upkeep
        upkeep.woke(held)
        wall_ms, weigh = self.services.clock.wall_ms, self.scales.weigh
        told = partial(self.services.recorded, self.key)
        self.transcript = Transcript(held, upkeep, wall_ms=wall_ms, weigh=weigh, told=told)
        self.state = "idle"
        self.opening.done()
        self.turns.take_up()
        self.opening.hand_over()

    def _not_woken(self, error: BaseException) -> None:
        self.services.log.error("session.not_opened", session=self.key, error=str(error))
        self.state = "closed"
        self.release(self.key)
        self._tell_closed()
        self.opening.turn_away(error)

    def change(self, make: Change, done: Waiter[Any]) -> None:
        """Leave the file, let `make` change it while a job has it to itself, and open it as it is then."""
        if not self.at_ease:
            done.fail(Busy(f"{self.key}: something is under way: ask again when the agent rests"))
            return
        self.opening.changing, self.opening.asked = make, done

        def left() -> None:
            answered, self.turns = self.turns.answered, Turns(self, self.turns.number)
            self.turns.answered = answered
            self.state = "opening"
            self.opening.begin()

        self._leave_file(left)

    def begin_anew(self) -> None:
        """Leave the file and open the one that follows it."""

        def left() -> None:
            self.letters.refuse(Closed("a new session was begun before this was answered"))
            self.letters, self.truncating = Letters(self), Truncating(self)
            self.keeping = Keeping(self)
            self.compacting = Compacting(self, Coordinator(run=self.compacting.state.run))
            self.turns = Turns(self, self.turns.number)
            self.state = "opening"
            self.opening.begin()

        self._leave_file(left)

    # --- sleep and end ----------------------------------------------------------------------------

    def _sleep(self, done: Waiter[bool] | None) -> None:
        can = self.at_ease

        def left() -> None:
            self._let_go()
            self.opening.send_on()
            if done is not None:
                done.set(True)

        if can:
            self._leave_file(left)
        elif done is not None:
            done.set(False)

    def _close(self, mail: Close) -> None:
        self.closing.append(mail.done)
        if self.state in ("idle", "settling"):
            self.finish_close()
        elif mail.now and self.turns.job is not None:
            self.turns.job.cancel()

    def finish_close(self) -> None:
        """The turn, if there was one, has ended: leave the file whole and tell who waits."""

        def left() -> None:
            self._let_go()
            self.opening.turn_away(Closed("the session was closed"))
            self.letters.refuse(Closed("the session was closed before it answered"))
            self._tell_closed()

        self._leave_file(left)

    def _tell_closed(self) -> None:
        for done in self.closing:
            done.set(None)

    def _let_go(self) -> None:
        self.state = "closed"
        self.release(self.key)

    def _leave_file(self, then: Callable[[], None]) -> None:
        """Write what a waking needs, let a job make the file durable and close it, then go on."""
        self.stop_timers()
        self.compacting.let_go()
        held, unfinished = self.held, self.turns.unfinished
        try:
            self.transcript.leave()
        except PerdureError as error:
            self._not_left_whole(error)

        def left(outcome: Outcome) -> None:
            if not isinstance(outcome, Returned):
                self._not_left_whole(outcome.error if isinstance(outcome, Failed) else describe(outcome))
                held.close(handover=False)
            self.services.upkeep.slept(self.key, held, unfinished=unfinished)
            then()

        self.opening.with_file(partial(held.close, handover=True), left)

    def _not_left_whole(self, error: object) -> None:
        self.services.log.error("session.not_left_whole", session=self.key, error=str(error))

    def stop_timers(self) -> None:
        """A turn starts, or the session leaves."""
        self.compacting.stop_timer()
        self.keeping.stop()
        self.turns.stop_pause()

    def abandon(self, error: BaseException) -> None:
        """This object is broken (a bug): let go of everything; the session begins anew from its file."""
        opened, self.state = self.state not in ("opening", "closed"), "closed"
        self.opening.give_up()
        if self.turns.job is not None:
            self.turns.job.cancel()
        self.stop_timers()
        self.compacting.let_go()
        self.letters.refuse(error)
        self._tell_closed()
        self.opening.turn_away(error)
        if opened:
            self.held.close(handover=False)
            self.services.upkeep.slept(self.key, self.held, unfinished=True)

    def _lose(self) -> None:
        """Another owner has the file, or it is gone: whoever waits is told, the next mail opens it anew."""
        self.services.log.error("session.lost", session=self.key)
        self.release(self.key)
        self.abandon(Fenced(f"{self.key}: another owner took the session's file: send again"))

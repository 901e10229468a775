"""The session actor: a state machine with a mailbox, and the only writer of its file.

`handle` decides and never waits: whatever waits (opening the file, the turn, the workers) is a job or a
worker's message that comes back as mail. States and what moves them:

    opening ──Woken──► idle ──Deliver──► running ──rested──► idle
                        │                  │ overflowed
                        │                  ▼
                        │               settling ──Compacted──► running (the same turn goes on)
                        └─Sleep, Close──► closed      └─failed──► idle (typed overflow to the caller)

Its parts: `opening` (its file), `letters` (its inbox), `surroundings` (its prompt and model), `turns` (its
turn), `scales` and `compacting` (its size), `truncating` (its disk), `subagents` (its parent and
children) and `leaving` (its end). While a job has
the file to itself (`opening.with_file`), mail waits in any state.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal, TypeAlias

from perdure.actors import commands
from perdure.actors.alarms import Alarms
from perdure.actors.compacting import Compacting
from perdure.actors.coordinator import asleep
from perdure.actors.keeping import Keeping
from perdure.actors.leaving import Leaving
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
    OutboxMail,
    Rejoined,
    Rewrite,
    Sleep,
    Snapshot,
    Timely,
    Truncated,
    TurnEnded,
    Wake,
    Woken,
)
from perdure.actors.opening import Opening
from perdure.actors.pictures import Pictures
from perdure.actors.scales import Scales
from perdure.actors.sending import Sending
from perdure.actors.services import Services
from perdure.actors.subagents.mail import KinMail
from perdure.actors.subagents.part import Subagents
from perdure.actors.surroundings import Surroundings
from perdure.actors.transcript import Transcript
from perdure.actors.truncating import Truncating
from perdure.actors.turns import Turns
from perdure.actors.view import unseen
from perdure.context.environment import Environment
from perdure.context.pipeline import Scratch
from perdure.edges.session.facts import bare
from perdure.edges.session.files import Held
from perdure.errors import Closed, Fenced, PerdureError
from perdure.events import Notice
from perdure.kernel.mailbox import Ref
from perdure.kernel.outcome import Outcome, Returned, describe

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
        self.lost = False  # the file has another owner now
        self.opening = Opening(self)
        self.letters = Letters(self)
        self.turns = Turns(self, known.turn)
        self.compacting = Compacting(self, known.coordinator)
        self.truncating = Truncating(self)
        self.sending = Sending(self)
        self.keeping = Keeping(self, known.kept)
        self.alarms = Alarms(self)
        self.leaving = Leaving(self)
        self.subagents = Subagents(self)
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
            self.leaving.lose()
        elif self.state != "closed":
            self.services.memory.handled(self)

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
                self.turns.after(mail)
            case Rewrite(make, done):
                self.opening.change(make, done, by_engine=True)
            case Idle():
                self.turns.idle()
            case Timely():
                self.alarms.handle(mail)
            case KeepAlive():
                self.keeping.due()
            case Kept():
                self.keeping.kept(mail)
            case KinMail():
                self.subagents.handle(mail)
            case OutboxMail():
                self.sending.handle(mail)
            case Rejoined():
                self.opening.rejoined(mail)
            case Changing(make, done):
                self.opening.change(make, done)
            case Sleep(done):
                self.leaving.sleep(done)
            case Close():
                self.leaving.close(mail)
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
        return Known(self.turns.number, asleep(self.compacting.state), self.keeping.kept_alive)

    @property
    def at_ease(self) -> bool:
        """Nothing is under way here, and nothing waits: it may sleep."""
        resting = self.state == "idle" and not self.turns.after_due and not self.opening.apart
        parts = (self.truncating, self.keeping, self.alarms, self.sending, self.subagents)
        aside = any(part.under_way for part in parts) or bool(self.transcript.pending)
        return resting and not aside and self.compacting.at_rest

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
            delivered=t.delivered,
        )

    def submit(
        self, pool: str, mail: Mail, instead: Callable[[Outcome], Mail | None] = lambda _outcome: None
    ) -> bool:
        """Give a worker something to do; its answer, or `instead` of a bad end, comes as mail."""

        def back(outcome: Outcome) -> None:
            if not isinstance(outcome, Returned):
                self.services.log.warning(
                    "worker.failed", session=self.key, pool=pool, outcome=describe(outcome)
                )
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
        self.services.log.graded(f"session.{kind}", session=self.key, text=text)
        self.services.events.publish(Notice(self.key, kind, text))

    # --- waking -----------------------------------------------------------------------------------

    def _woken(self, held: Held | None, error: BaseException | None) -> None:
        if held is None:
            self.leaving.not_woken(error or Closed("the session could not be opened"))
            return
        try:
            self.turns.woken(held.opened)
            opened = held.opened
            self.surroundings.adopt(opened.settings, "woken", opened.pins, opened.items)
            self.turns.first_woken()
        except Exception as failure:  # a workspace that can't be read, a configuration that can't work
            held.close(handover=False)
            self.leaving.not_woken(failure)
            return
        self.held, upkeep = held, self.services.upkeep
        upkeep.woke(held)
        wall_ms, weigh = self.services.clock.wall_ms, self.scales.weigh
        told = partial(self.services.recorded, self.key)
        self.transcript = Transcript(held, upkeep, wall_ms=wall_ms, weigh=weigh, told=told)
        held.opened = bare(opened)
        self.state = "idle"
        self.services.on_opened(self.key)
        self.opening.done()
        self.sending.woken()
        self.subagents.woken()
        self.turns.take_up()
        self.alarms.woken()
        self.opening.hand_over()

    def ask_to_sleep(self) -> None:
        """By mail, so that whatever came before is handled before."""
        self.ref.post(Sleep())

    def stop_timers(self) -> None:
        """A turn starts, or the session leaves."""
        self.compacting.stop_timer()
        self.keeping.stop()
        self.turns.stop_pause()

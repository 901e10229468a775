"""The session actor: a state machine with a mailbox, and the only writer of its file.

`handle` decides and never waits: whatever waits (opening the file, the turn, the workers) is a job or a
worker's message that comes back as mail. States and what moves them:

    opening ──Woken──► idle ──Deliver──► running ──rested──► idle
                        │                  │ overflowed
                        │                  ▼
                        │               settling ──Compacted──► running (the same turn goes on)
                        └─Sleep, Close──► closed      └─failed──► idle (typed overflow to the caller)

Its parts: `opening` (its file), `letters` (its inbox), `turns` (its turn), `compacting` (its size).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

from perdure.actors import commands
from perdure.actors.compacting import Compacting
from perdure.actors.keeping import Keeping
from perdure.actors.letters import Letters
from perdure.actors.messages import (
    Abort,
    AfterTurnDone,
    Append,
    Close,
    Command,
    Compacted,
    CompactionFailed,
    Deliver,
    Idle,
    KeepAlive,
    Kept,
    Mail,
    NextStep,
    Note,
    Sleep,
    Snapshot,
    Truncated,
    TurnEnded,
    Wake,
    Woken,
)
from perdure.actors.opening import Opening
from perdure.actors.services import Services
from perdure.actors.transcript import Transcript
from perdure.actors.turns import Turns
from perdure.actors.undoing import undone
from perdure.actors.view import Ranking, unseen
from perdure.context.environment import Environment
from perdure.context.pipeline import Scratch
from perdure.contracts import Notice
from perdure.edges.session.facts import Settings
from perdure.edges.session.files import Held
from perdure.errors import Busy, Closed, Fenced, PerdureError
from perdure.kernel.mailbox import Ref
from perdure.kernel.outcome import Returned, describe
from perdure.kernel.waiter import Waiter
from perdure.records import Item

State: TypeAlias = Literal["opening", "idle", "running", "settling", "closed"]
Refresh: TypeAlias = Literal[
    "woken", "cold", "compaction", "model", "thinking", "settings", "request", "overflow"
]  # fmt: skip
"""Why a session's environment was resolved anew."""


class Session:
    """One awake session. `release` gives its place back when it closes or falls asleep."""

    def __init__(
        self, key: str, ref: Ref, services: Services, release: Callable[[str], None], turn: int = 0
    ) -> None:
        self.key, self.ref, self.services, self.release = key, ref, services, release
        self.state: State = "opening"
        self.closing: list[Waiter[None]] = []  # who waits for the session's end
        self.lost = False  # the file has another owner now
        self.opening = Opening(self)
        self.letters = Letters(self)
        self.turns = Turns(self, turn)
        self.compacting = Compacting(self)
        self.keeping = Keeping(self)
        self.held: Held
        self.transcript: Transcript
        self.environment: Environment
        self.refreshed = ""  # why the environment was last resolved anew
        self._adopted = Settings()
        self._ranked = Ranking()
        self.opening.begin()

    # --- mail -------------------------------------------------------------------------------------

    def handle(self, mail: Mail) -> None:
        """Decide on one message. Never waits, never raises for a user's mistake."""
        if self.state == "opening" and not isinstance(mail, Woken):
            self.opening.wait(mail)
            return
        self._decide(mail)
        if self.lost and self.state != "closed":
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
                self._note(mail)
            case Abort(done):
                running = self.turns.abort()
                if done is not None:
                    done.set(running)
            case Compacted():
                self.compacting.compacted(mail)
            case CompactionFailed():
                self.compacting.failed(mail)
            case Truncated():
                self.compacting.truncated(mail)
            case AfterTurnDone():
                self.turns.after_due = False
                if self.state == "idle":
                    self.compacting.consider()
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
            case Sleep(done):
                self._sleep(done)
            case Close():
                self._close(mail)
            case Woken(held, error):
                self._woken(held, error)
            case Wake():
                if self.state == "idle" and self.transcript.pending:
                    self.turns.start()

    def _note(self, mail: Note) -> None:
        """Between turns only: a message in the middle of a tool batch would break it."""
        if self.state != "idle":
            mail.done.fail(Busy("a turn is running: record it when the agent rests"))
            return
        try:
            mail.done.set(self.transcript.append(mail.message).entry)
        except PerdureError as error:
            self.not_written(error)
            mail.done.fail(error)

    def not_written(self, error: PerdureError) -> None:
        """Whoever tried tells its own caller; a file that another one owns now is let go besides."""
        self.lost = self.lost or isinstance(error, Fenced)

    # --- what its parts share ---------------------------------------------------------------------

    @property
    def at_ease(self) -> bool:
        """Nothing is under way here, and nothing waits: it may sleep."""
        resting = self.state == "idle" and not self.turns.after_due
        busy = self.transcript.pending or self.keeping.under_way
        return resting and not busy and self.compacting.at_rest

    def snapshot(self) -> Snapshot:
        """The view as it stands, immutable: for a step, or for a worker."""
        t = self.transcript
        if t.settings != self._adopted:  # another program has changed them
            self.adopt(t.settings, "settings")
        elif self._ranked.changes(t.generation, t.items) and self.environment.knowledge_tokens:
            self.adopt(t.settings, "request")
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
            estimator=self.compacting.estimator,
            running=self.state in ("running", "settling"),
            cache_age=self.turns.cache_age,
            refreshed=self.refreshed,
        )

    def submit(self, pool: str, mail: Mail) -> bool:
        """Give a worker something to do; its answer comes back as mail of ours."""

        def back(outcome: object) -> None:
            match outcome:
                case Returned(Mail() as answer):
                    self.ref.post(answer)
                case Returned(None):
                    pass
                case _:
                    self.services.log.error(
                        "worker.failed", session=self.key, pool=pool, outcome=repr(outcome)
                    )
                    self.turns.after_due = self.turns.after_due and pool != "after_turn"
                    self.compacting.crashed(pool, describe(outcome))

        accepted = self.services.pools[pool].submit(self.key, mail, back)
        if not accepted:
            self.services.log.warning("worker.full", session=self.key, pool=pool)
        return accepted

    def adopt(self, chosen: Settings, why: Refresh, items: Sequence[Item] | None = None) -> None:
        """Run with what the transcript says: model and thinking level, chosen here or by another program.

        The workspace's files are read anew only where that costs no cached prefix, or it is lost anyway.
        `items`: the view, where there is no transcript yet.
        """
        resolver = self.services.resolver
        ref = f"{chosen.provider}/{chosen.model}" if chosen.provider and chosen.model else None
        info = resolver.model_for(self.key, ref)
        fresh = why in ("cold", "compaction", "model") or self.turns.cold
        query = self._ranked.by(self.transcript.items if items is None else items)
        kept = not self._ranked.given_up
        found = resolver.environment(
            self.key, info, chosen.thinking, fresh=fresh, query=query, knowledge=kept
        )
        self._adopted = chosen
        if not hasattr(self, "environment"):
            self.environment = found
        elif found != self.environment:
            self.services.log("context.refreshed", session=self.key, why=why)
            self.environment, self.refreshed = found, why

    def give_up_knowledge(self) -> bool:
        """The last thing to go where a request fits in no other way; whether there was any."""
        had = self.environment.knowledge_tokens
        if had:
            self._ranked.given_up = True
            self.adopt(self.transcript.settings, "overflow")
            self.notice("knowledge", f"left out of the prompt, for want of room: {had:,} tokens")
        return had > 0

    def refresh_environment(self) -> None:
        """After a compaction the cache is cold anyway: bootstrap files are read again."""
        self._ranked.given_up = False
        self.adopt(self.transcript.settings, "compaction")
        self.turns.scratch = Scratch()

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
            self.adopt(held.opened.settings, "woken", held.opened.items)
        except Exception as failure:  # a workspace that can't be read, a configuration that can't work
            held.close(handover=False)
            self._not_woken(failure)
            return
        self.held, upkeep = held, self.services.upkeep
        upkeep.woke(held)
        wall_ms, weigh = self.services.clock.wall_ms, self.compacting.weigh
        self.transcript = Transcript(held, upkeep, wall_ms=wall_ms, weigh=weigh)
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

    def renew(self, done: Waiter[str]) -> None:
        """`/new`: end the turn, put the file aside and begin another; mail that comes meanwhile waits."""
        if self.opening.renewing is not None:
            done.fail(Busy(f"{self.key}: a new session is being made already"))
            return
        self.opening.renewing = done
        if self.state == "idle":
            self.begin_anew()
        else:
            self.turns.abort()

    def undo(self, done: Waiter[str]) -> None:
        """`/undo`: leave the file, take the latest compaction back, and open it as it is then."""
        if not self.at_ease:
            done.fail(Busy(f"{self.key}: something is under way: /undo when the agent rests"))
            return
        env, estimator = self.environment, self.compacting.estimator
        self.opening.changing = lambda held, now: undone(held, now, env, estimator)
        self.opening.asked = done
        self._leave_file()
        answered, self.turns = self.turns.answered, Turns(self, self.turns.number)
        self.turns.answered = answered
        self.state = "opening"
        self.opening.begin()

    def begin_anew(self) -> None:
        """Leave the file and open the one that follows it."""
        self._leave_file()
        self.letters.refuse(Closed("a new session was begun before this was answered"))
        self.letters, self.compacting, self.keeping = Letters(self), Compacting(self), Keeping(self)
        self.turns = Turns(self, self.turns.number)
        self.state = "opening"
        self.opening.begin()

    # --- sleep and end ----------------------------------------------------------------------------

    def _sleep(self, done: Waiter[bool] | None) -> None:
        can = self.at_ease
        if can:
            self._let_go()
        if done is not None:
            done.set(can)

    def _close(self, mail: Close) -> None:
        self.closing.append(mail.done)
        if self.state in ("idle", "settling"):
            self.finish_close()
        elif mail.now and self.turns.job is not None:
            self.turns.job.cancel()

    def finish_close(self) -> None:
        """The turn, if there was one, has ended: leave the file whole and tell who waits."""
        self._let_go()
        self.letters.refuse(Closed("the session was closed before it answered"))
        self._tell_closed()

    def _tell_closed(self) -> None:
        for done in self.closing:
            done.set(None)

    def _let_go(self) -> None:
        self._leave_file()
        self.state = "closed"
        self.release(self.key)
        self.opening.turn_away(Closed("the session was closed"))

    def _leave_file(self) -> None:
        self.stop_timers()
        self.compacting.let_go()
        try:
            self.transcript.leave()
            self.held.close(handover=True)
        except PerdureError as error:
            self.services.log.error("session.not_left_whole", session=self.key, error=str(error))
            self.held.close(handover=False)
        self.services.upkeep.slept(self.key, self.held, unfinished=self.turns.unfinished)

    def stop_timers(self) -> None:
        """A turn starts, or the session leaves."""
        self.compacting.stop_timer()
        self.keeping.stop()
        self.turns.stop_pause()

    def abandon(self, error: BaseException) -> None:
        """This object is broken (a bug): let go of everything; the session begins anew from its file."""
        opened, self.state = self.state not in ("opening", "closed"), "closed"
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

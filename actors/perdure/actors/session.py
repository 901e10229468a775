"""The session actor: a state machine with a mailbox, and the only writer of its file.

`handle` decides and never waits: whatever waits (opening the file, the turn, the workers) is a job or a
worker's message that comes back as mail. States and what moves them:

    opening ──Woken──► idle ──Deliver──► running ──rested──► idle
                        │                  │ overflowed
                        │                  ▼
                        │               settling ──Compacted──► running (the same turn goes on)
                        └─Sleep, Close──► closed      └─failed──► idle (typed overflow to the caller)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Literal, TypeAlias

from perdure.actors import commands
from perdure.actors.compacting import Compacting
from perdure.actors.letters import Letters
from perdure.actors.messages import (
    Abort,
    AfterTurn,
    AfterTurnDone,
    Append,
    Close,
    Command,
    Compacted,
    CompactionFailed,
    Deliver,
    Idle,
    Ingest,
    Mail,
    NextStep,
    Note,
    Overflowed,
    Rested,
    Sleep,
    Snapshot,
    Tally,
    Truncated,
    TurnEnded,
    Wake,
    Woken,
)
from perdure.actors.services import Services
from perdure.actors.transcript import Transcript
from perdure.actors.turn import Turn
from perdure.context.environment import Environment
from perdure.context.pipeline import Scratch
from perdure.contracts import Notice, Reply, TurnFinished, TurnStarted
from perdure.edges.session.files import Held
from perdure.errors import Busy, Closed, Fenced, PerdureError, StorageFailed
from perdure.kernel.deadlines import Timer
from perdure.kernel.errors import Closed as KernelClosed
from perdure.kernel.jobs import Job
from perdure.kernel.mailbox import Ref
from perdure.kernel.outcome import Cancelled, Failed, Returned, describe
from perdure.kernel.waiter import Waiter
from perdure.records import Assistant, Item, Items, Text, ToolResult, User

STORAGE_PAUSE = 5.0  # seconds until letters that wait try a disk again that took nothing
MOST_STASHED = 256  # mail that waits while the file is being opened

State: TypeAlias = Literal["opening", "idle", "running", "settling", "closed"]


class Stale(PerdureError):
    """A report of a turn that is over: refused."""


class Session:
    """One awake session. `release` gives its place back when it closes or falls asleep."""

    def __init__(
        self, key: str, ref: Ref, services: Services, release: Callable[[str], None], turn: int = 0
    ) -> None:
        self.key, self.ref, self.services, self.release = key, ref, services, release
        self.state: State = "opening"
        self.turn = turn
        self.job: Job | None = None
        self.aborted = False  # somebody asked for the running turn's end
        self.tally = Tally()
        self.scratch = Scratch()
        self.started = 0  # wall ms of the latest model call's end, for the cache's age
        self.stash: deque[Mail] = deque()
        self.closing: list[Waiter[None]] = []  # who waits for the session's end
        self.renewing: Waiter[str] | None = None  # who waits for the new session file
        self.lost = False  # the file has another owner now
        self.paused: Timer | None = None  # turns wait for a disk that takes something again
        self.after_due = False  # the hooks of the last turn have not reported yet
        self.letters = Letters(self)
        self.compacting = Compacting(self)
        self.held: Held
        self.transcript: Transcript
        self.environment: Environment
        services.kernel.start(f"{key}#open", self._open, on_end=self._opened)

    # --- opening ----------------------------------------------------------------------------------

    async def _open(self) -> Woken:
        return Woken(await self.services.io.run(self._hold))

    def _hold(self) -> Held:
        files, now = self.services.files, self.services.clock.wall_ms()
        if self.renewing is None and files.exists(self.key):
            return files.open(self.key, now)
        workspace = self.services.resolver.shown_workspace(self.key)
        return (files.create if self.renewing is None else files.renew)(self.key, workspace, now)

    def _opened(self, _job: Job, outcome: object) -> None:
        match outcome:
            case Returned(Woken() as woken):
                self.ref.post(woken)
            case Failed(error):
                self.ref.post(Woken(None, error))
            case _:
                self.ref.post(Woken(None, Closed("the host stopped while the session was opening")))

    def _woken(self, held: Held) -> None:
        clock, resolver, opened = self.services.clock, self.services.resolver, held.opened
        chosen = opened.settings
        ref = f"{chosen.provider}/{chosen.model}" if chosen.provider and chosen.model else None
        info = resolver.model_for(self.key, ref)
        try:
            self.environment = resolver.environment(self.key, info, chosen.thinking)
        except Exception as error:  # a workspace that can't be read, a configuration that can't work
            held.close(handover=False)
            self._not_woken(error)
            return
        self.held = held
        self.services.upkeep.woke(held)
        self.transcript = Transcript(
            held, self.services.upkeep, wall_ms=clock.wall_ms, weigh=self.compacting.weigh
        )
        self.state = "idle"
        renewing, self.renewing = self.renewing, None
        if renewing is not None:
            renewing.set("A new session has begun; the old one is kept beside it.")
        self._take_up()
        self._unstash()

    def _unstash(self) -> None:
        while self.stash and self.state not in ("opening", "closed"):
            mail = self.stash.popleft()
            try:
                self.handle(mail)
            except BaseException as error:
                refuse(
                    mail, PerdureError(f"{self.key}: the session broke ({error!r}): send the same id again")
                )
                raise

    def _take_up(self) -> None:
        """A turn that a crash cut off is taken up once per ownership; waiting letters start one."""
        items = self.transcript.items
        if self.transcript.pending:
            self.start_turn()
        elif items and not at_rest(items[-1]) and not self.transcript.already_resumed(items[-1].entry):
            try:
                self.transcript.mark_resumed(items[-1].entry)
            except PerdureError as error:
                self.services.log("session.not_resumed", session=self.key, error=str(error))
                return
            self.services.log("session.resumed", session=self.key, entry=items[-1].entry)
            self.start_turn()

    def _not_woken(self, error: BaseException) -> None:
        self.services.log("session.not_opened", session=self.key, error=str(error))
        self.state = "closed"
        self.release(self.key)
        if self.renewing is not None:
            self.renewing.fail(error)
        for done in self.closing:
            done.set(None)
        self._turn_away(error)

    def _turn_away(self, error: BaseException) -> None:
        """Whatever still waits to be handled won't be."""
        while self.stash:
            mail = self.stash.popleft()
            if isinstance(mail, Close):
                mail.done.set(None)
            else:
                refuse(mail, error)

    # --- mail -------------------------------------------------------------------------------------

    def handle(self, mail: Mail) -> None:
        """Decide on one message. Never waits, never raises for a user's mistake."""
        if self.state == "opening" and not isinstance(mail, Woken):
            if len(self.stash) < MOST_STASHED or isinstance(mail, Close):
                self.stash.append(mail)
            else:
                refuse(mail, Busy(f"{self.key}: too many messages wait for it to open: send it again later"))
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
                self._next_step(mail)
            case Append():
                self._append(mail)
            case TurnEnded():
                self._turn_ended(mail)
            case Command():
                commands.run(self, mail)
            case Note():
                self._note(mail)
            case Abort(done):
                running = self.abort()
                if done is not None:
                    done.set(running)
            case Compacted():
                self.compacting.compacted(mail)
            case CompactionFailed():
                self.compacting.failed(mail)
            case Truncated():
                self.compacting.truncated(mail)
            case AfterTurnDone():
                self.after_due = False
                if self.state == "idle":
                    self.compacting.consider()
                    self.compacting.rested()
            case Idle():
                if self.state == "idle":
                    self.compacting.consider("idle")
            case Sleep(done):
                self._sleep(done)
            case Close():
                self._close(mail)
            case Woken(held, error):
                if held is None:
                    self._not_woken(error or Closed("the session could not be opened"))
                else:
                    self._woken(held)
            case Wake():
                if self.state == "idle" and self.transcript.pending:
                    self.start_turn()

    @property
    def at_ease(self) -> bool:
        """Nothing is under way here, and nothing waits: it may sleep."""
        resting = self.state == "idle" and not self.after_due
        return resting and not self.transcript.pending and self.compacting.at_rest

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

    # --- the turn ---------------------------------------------------------------------------------

    def start_turn(self) -> None:
        """Begin a turn from the transcript as it stands; letters wait in it or in the inbox."""
        self.compacting.stop_timer()
        self._stop_pause()
        self.tally = Tally()
        self.services.events.publish(TurnStarted(self.key, self.turn + 1))
        self._run_turn()

    def _run_turn(self) -> None:
        self.turn += 1
        self.aborted = False
        self.state = "running"
        number = self.turn
        turn = Turn(self.key, number, self.ref, self.services, self.tally, self.scratch)
        try:
            self.job = self.services.kernel.start(
                f"{self.key}#{number}",
                turn.run,
                on_end=lambda _job, out: self.ref.post(TurnEnded(number, out)),
            )
        except KernelClosed:
            self.state = "idle"
            self.letters.refuse(Closed("the host is stopping"))

    def snapshot(self) -> Snapshot:
        """The view as it stands, immutable: for a step, or for a worker."""
        t = self.transcript
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
            calibration=t.calibration,
            running=self.state in ("running", "settling"),
            cache_age=(self.services.clock.wall_ms() - self.started) / 1000 if self.started else None,
        )

    def _next_step(self, mail: NextStep) -> None:
        if mail.turn != self.turn or self.state != "running":
            mail.view.fail(Stale("this turn is over"))
            return
        try:
            self.compacting.switch()
            self.letters.enter()
        except PerdureError as error:
            self.not_written(error)
            mail.view.fail(error)
            return
        self.compacting.consider()
        mail.view.set(self.snapshot())

    def _append(self, mail: Append) -> None:
        if mail.turn != self.turn or self.state != "running":
            mail.done.fail(Stale("this turn is over"))
            return
        try:
            item = self.transcript.append(mail.message, decisions=mail.decisions, evidence=mail.evidence)
        except PerdureError as error:
            self.not_written(error)
            mail.done.fail(error)
            return
        if mail.accepted:
            self.started = self.services.clock.wall_ms()
            self.compacting.accepted(mail)
        self.submit(
            "ingest", Ingest(self.key, str(self.transcript.file.path), self.transcript.session_id, (item,))
        )
        mail.done.set(item)

    def _turn_ended(self, mail: TurnEnded) -> None:
        if mail.turn != self.turn or self.state != "running":
            return
        self.job = None
        match mail.outcome:
            case Returned(Rested() as rested):
                self.finish(rested)
            case Returned(Overflowed() as overflow):
                self.state = "settling"
                self.compacting.overflowed(overflow)
            case Cancelled() if self.closing or not self.aborted:  # by the host's end, not by a user
                self._finish_close()
            case Cancelled():
                self.end_badly("aborted", "aborted by the user")
            case Failed(StorageFailed() as error):
                self._pause()
                self.end_badly("error", str(error))
            case outcome:
                self.services.log("turn.crashed", session=self.key, turn=mail.turn, outcome=repr(outcome))
                self.end_badly("error", f"the turn failed inside the host: {describe(outcome)}")

    def resume_turn(self) -> None:
        """The view has shrunk: the same turn goes on, under a new number that fences the old one."""
        self._run_turn()

    def end_badly(self, stop: Literal["error", "aborted", "overflow"], why: str) -> None:
        """Close the turn in the transcript with what the model had said so far."""
        info = self.environment.model
        partial = (Text(self.tally.partial),) if self.tally.partial else ()
        kind: Literal["error", "aborted"] = "aborted" if stop == "aborted" else "error"
        message = Assistant(
            partial,
            kind,
            info.provider,
            info.api,
            info.id,
            error=why,
            timestamp=self.services.clock.wall_ms(),
        )
        try:
            self.tally.entries.append(self.transcript.append(message).entry)
        except PerdureError as error:
            self.not_written(error)
            self.services.log("turn.end_not_written", session=self.key, error=str(error))
        if stop != "aborted":
            self.tally.errors.append(why)
        self.finish(Rested(self.tally.partial, stop, why))

    def finish(self, rested: Rested) -> None:
        """The agent rests: tell who waits, run the hooks, and take up what has come meanwhile."""
        t = self.tally
        reply = Reply(self.key, rested.text, rested.stop, t.steps, t.usage, tuple(t.entries), tuple(t.errors))
        self.state = "idle"
        self.compacting.switch()
        self.letters.answer(reply)
        self.services.events.publish(TurnFinished(self.key, reply))
        self.after_due = self.submit("after_turn", AfterTurn(self.snapshot(), self.turn))
        if self.closing:
            self._finish_close()
        elif self.renewing is not None:
            self._begin_anew()
        elif self.transcript.pending and self.paused is None:
            self.start_turn()

    def _pause(self) -> None:
        """The disk takes nothing: letters that wait try again in a while, not at once and for ever."""
        self._stop_pause()
        post = self.ref.post
        self.paused = self.services.clock.call_after(STORAGE_PAUSE, lambda: post(Wake()))

    def _stop_pause(self) -> None:
        if self.paused is not None:
            self.paused.cancel()
            self.paused = None

    def renew(self, done: Waiter[str]) -> None:
        """`/new`: end the turn, put the file aside and begin another; mail that comes meanwhile waits."""
        if self.renewing is not None:
            done.fail(Busy(f"{self.key}: a new session is being made already"))
            return
        self.renewing = done
        if self.state == "idle":
            self._begin_anew()
        else:
            self.abort()

    def _begin_anew(self) -> None:
        self._leave_file()
        self.letters.refuse(Closed("a new session was begun before this was answered"))
        self.letters, self.compacting = Letters(self), Compacting(self)
        self.tally, self.scratch, self.started, self.after_due = Tally(), Scratch(), 0, False
        self.state = "opening"
        self.services.kernel.start(f"{self.key}#open", self._open, on_end=self._opened)

    def abort(self) -> bool:
        """Stop the running turn, if any; its end comes as `TurnEnded`."""
        if self.state == "settling":
            self.end_badly("aborted", "aborted by the user")
            return True
        if self.job is None or self.state != "running":
            return False
        self.aborted = True
        self.job.cancel()
        return True

    # --- the workers ------------------------------------------------------------------------------

    def submit(self, pool: str, mail: Mail) -> bool:
        """Give a worker something to do; its answer comes back as mail of ours."""

        def back(outcome: object) -> None:
            match outcome:
                case Returned(Mail() as answer):
                    self.ref.post(answer)
                case Returned(None):
                    pass
                case _:
                    self.services.log("worker.failed", session=self.key, pool=pool, outcome=repr(outcome))
                    self.after_due = self.after_due and pool != "after_turn"
                    self.compacting.crashed(pool, describe(outcome))

        accepted = self.services.pools[pool].submit(self.key, mail, back)
        if not accepted:
            self.services.log("worker.full", session=self.key, pool=pool)
        return accepted

    # --- sleep and end ----------------------------------------------------------------------------

    def _sleep(self, done: object) -> None:
        can = self.at_ease
        if can:
            self._let_go()
        if done is not None:
            done.set(can)  # type: ignore[attr-defined]

    def _close(self, mail: Close) -> None:
        self.closing.append(mail.done)
        if self.state in ("idle", "settling"):
            self._finish_close()
        elif mail.now and self.job is not None:
            self.job.cancel()

    def _finish_close(self) -> None:
        self._let_go()
        self.letters.refuse(Closed("the session was closed before it answered"))
        for done in self.closing:
            done.set(None)

    def refresh_environment(self) -> None:
        """After a compaction the cache is cold anyway: bootstrap files are read again."""
        env = self.environment
        self.environment = self.services.resolver.environment(self.key, env.model, env.thinking)
        self.scratch = Scratch()

    def abandon(self, error: BaseException) -> None:
        """This object is broken (a bug): let go of everything; the session begins anew from its file."""
        opened, self.state = self.state not in ("opening", "closed"), "closed"
        if self.job is not None:
            self.job.cancel()
        self._stop_timers()
        self.letters.refuse(error)
        if self.renewing is not None:
            self.renewing.fail(error)
        for done in self.closing:
            done.set(None)
        self._turn_away(error)
        if opened:
            self.held.close(handover=False)

    def _lose(self) -> None:
        """Another owner has the file, or it is gone: whoever waits is told, the next mail opens it anew."""
        self.services.log("session.lost", session=self.key)
        self.release(self.key)
        self.abandon(Fenced(f"{self.key}: another owner took the session's file: send again"))

    def _let_go(self) -> None:
        self._leave_file()
        self.state = "closed"
        self.release(self.key)
        self._turn_away(Closed("the session was closed"))

    def _leave_file(self) -> None:
        self._stop_timers()
        try:
            self.transcript.leave()
            self.held.close(handover=True)
        except PerdureError as error:
            self.services.log("session.not_left_whole", session=self.key, error=str(error))
            self.held.close(handover=False)
        self.services.upkeep.slept(self.key, self.held)

    def _stop_timers(self) -> None:
        self.compacting.stop_timer()
        self._stop_pause()

    def notice(self, kind: str, text: str) -> None:
        """Tell the user, once, what happened to the session."""
        self.services.log(f"session.{kind}", session=self.key, text=text)
        self.services.events.publish(Notice(self.key, kind, text))


# --- small pure questions -------------------------------------------------------------------------


def at_rest(last: Item) -> bool:
    """Whether a view that ends in `last` waits for nobody but the user."""
    message = last.message
    if isinstance(message, Assistant):
        return message.stop != "toolUse"
    return not isinstance(message, User | ToolResult)


def unseen(items: list[Item]) -> frozenset[str]:
    """Entries of tool results that no accepted model call has shown yet: those behind the last answer."""
    fresh: list[str] = []
    for item in reversed(items):
        message = item.message
        if isinstance(message, Assistant) and message.stop not in ("error", "aborted"):
            break
        if isinstance(message, ToolResult):
            fresh.append(item.entry)
    return frozenset(fresh)


def refuse(mail: Mail, error: BaseException) -> None:
    """Tell the sender of `mail`, if it waits, that its session could not take it."""
    for name in ("ack", "done", "view", "reply"):
        waiter = getattr(mail, name, None)
        if waiter is not None:
            waiter.fail(error)


__all__ = ["Items", "Session", "at_rest", "unseen"]

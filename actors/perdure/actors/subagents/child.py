"""A session as somebody's child: it runs under its grant, ends once, and owes its parent the result.

It ends when its turn is over, nothing waits for it, and its own children have ended; a cause from outside
(deadline, a stop, a killed task) ends its turn first. The ending is on record before anybody is told, and it
is told again and again, with a pause that doubles, until the parent's file has it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from perdure.actors.messages import Deliver, Rested
from perdure.actors.subagents import engine
from perdure.actors.subagents.account import Account
from perdure.actors.subagents.ending import frozen, of_record, of_turn, text_of
from perdure.actors.subagents.mail import Begin, Ended, Halt, Told
from perdure.actors.subagents.parent import Parent
from perdure.actors.subagents.spawning import Refused
from perdure.edges.session.kin import ChildState, Ending, Fact, Kin
from perdure.edges.spend import Amount
from perdure.errors import PerdureError
from perdure.kernel.errors import Closed as KernelClosed
from perdure.kernel.intensity import Backoff
from perdure.kernel.jobs import Job
from perdure.kernel.outcome import Outcome, Returned, describe
from perdure.kernel.waiter import Waiter
from perdure.records import Item

if TYPE_CHECKING:
    from perdure.actors.session import Session

AGAIN = Backoff(first=1.0, factor=2.0, cap=300.0)  # seconds between attempts to tell the parent
PATIENCE = 60_000  # ms that a child which was stopped waits for its own children
RESUME = "resume"  # the timer of a turn that a provider told to wait


class Child:
    """One session's own grant, if it has any. `children`: those below it."""

    def __init__(self, session: Session, children: Parent) -> None:
        self.session, self._children = session, children
        self._account: Account | None = None
        self._cause: tuple[ChildState, str, bool] | None = None  # why it is to end, whatever its turn says
        self._last: tuple[ChildState, str] | None = None  # how its last turn ended
        self._patience = 0  # until when (wall ms) a stopped one waits for its children
        self._job: Job | None = None
        self._tries, self._again = 0, 0
        self._going = False  # it is being deleted

    # --- what it is -------------------------------------------------------------------------------

    @property
    def own(self) -> Kin | None:
        """Its grant and what became of it; `None`: nobody's child."""
        return self.session.transcript.relatives.own

    @property
    def running(self) -> Kin | None:
        """The same, while it has not ended."""
        own = self.own
        return own if own is not None and own.ending is None else None

    @property
    def account(self) -> Account | None:
        """What its calls are counted against."""
        return self._account if self.running is not None else None

    @property
    def stopping(self) -> bool:
        """It is to end, and begins nothing new."""
        return self._cause is not None and self.running is not None

    @property
    def under_way(self) -> bool:
        """Its parent is being told."""
        return self._job is not None

    @property
    def due(self) -> int | None:
        """When it acts by itself (wall ms): at its deadline, to tell again, to go for good."""
        own = self.own
        if own is None:
            return None
        if own.ending is None:
            return self._again if self._tries else self._patience or own.grant.deadline
        if not own.told:
            return None if self._job is not None else self._again
        if self._going:
            return None
        kept = self.session.services.family.settings.archive_minutes
        return own.ending.at + int(kept * 60_000) if kept else None

    # --- its life ---------------------------------------------------------------------------------

    def woken(self) -> None:
        """The file is open: its calls count from where they were."""
        own, t = self.own, self.session.transcript
        if own is None:
            return
        account = self._account = Account(own.grant.amount, own.spent, self._below)
        t.spent = lambda: account.own
        if own.ending is None:
            self.session.services.family.opened(self.session.key, own.grant.parent)

    def _below(self) -> Amount:
        relatives = self.session.transcript.relatives
        return sum((kin.grant.amount for kin in relatives.open), relatives.ended_spent)

    def begin(self, mail: Begin) -> None:
        """The task comes, with the model and the thinking level that it is to run with."""
        session = self.session
        try:
            if self.running is None or self.stopping:
                raise Refused("time", "it was stopped before it began")
            if mail.model:
                info = session.services.resolver.model_info(mail.model)
                session.transcript.choose_model(info.provider, info.id)
            if mail.thinking:
                session.transcript.choose_thinking(mail.thinking)
            if mail.model or mail.thinking:
                session.surroundings.adopt(session.transcript.settings, "model")
            session.services.gates.admit(session.key, session.environment.model.provider)
        except PerdureError as error:
            session.not_written(error)
            mail.ack.fail(error)
            return
        session.letters.deliver(Deliver(mail.letter, mail.ack))
        session.alarms.told()

    def turn_over(self, rested: Rested) -> None:
        """A turn has ended, which may be its last."""
        if self.running is not None:
            exhausted = self._account is not None and self._account.exhausted
            self._last = of_turn(rested, exhausted=exhausted)
            self.settle()

    def settle(self) -> None:
        """End, if there is nothing left to wait for."""
        session, t, own = self.session, self.session.transcript, self.running
        if own is None or session.state != "idle":
            return
        now = session.services.clock.wall_ms()
        if self._cause is None and (t.pending or RESUME in t.timers):
            return
        if self._children.busy and not (self._patience and now >= self._patience):
            return
        state, why, quiet = self._cause or (*(self._last or self._on_record(own)), False)
        self._end(own, state, why, quiet=quiet)

    def _on_record(self, own: Kin) -> tuple[ChildState, str]:
        begun = (own.grant.parent, own.grant.run) in self.session.transcript.recent
        return of_record(self.session.transcript.items) if begun else ("lost", "it had not begun")

    def _since_task(self, own: Kin) -> list[Item]:
        """What is its own doing: a forked child's view begins with its parent's."""
        t = self.session.transcript
        task = t.recent.get((own.grant.parent, own.grant.run))
        at = next((n for n, item in enumerate(t.items) if item.entry == task), None)
        if at is None:  # covered by a summary, or it never came
            return t.items if task is not None else []
        return t.items[at:]

    def halt(self, mail: Halt) -> bool:
        """Stop: its turn, its children, itself. False: it has ended already, or runs under another grant."""
        own = self.running
        if own is None or mail.run not in ("", own.grant.run):
            return False
        self._stop(mail.state, mail.why, quiet=mail.quiet)
        return True

    def cut_off(self) -> bool:
        """Its turn's task was killed, and not by us. Whether that ends it: not where the host stops."""
        if self.running is None or self.session.services.kernel.closing:
            return False
        self._cause = self._cause or ("lost", "its task was killed", False)
        return True

    def _stop(self, state: ChildState, why: str, *, quiet: bool = False) -> None:
        session = self.session
        if self._cause is None:
            self._cause = (state, why, quiet)
            self._patience = session.services.clock.wall_ms() + PATIENCE
        self._children.halt(f"its parent {session.key} was stopped")
        session.abort()
        self.settle()
        session.alarms.told()

    # --- its end ----------------------------------------------------------------------------------

    def _end(self, own: Kin, state: ChildState, why: str, *, quiet: bool) -> None:
        session, t = self.session, self.session.transcript
        now = session.services.clock.wall_ms()
        spent = self._account.taken if self._account is not None else own.spent
        text = frozen(text_of(self._since_task(own), state))
        ending = Ending(state, now, spent, frozen(why, 2_000), text, quiet)
        try:
            t.kin(Fact(own.grant.run, own=True, ending=ending))
        except PerdureError as error:
            session.not_written(error)
            self._retry(error)
            return
        self._tries = 0
        session.services.family.closed(session.key, state)
        session.services.log("subagent.ended", session=session.key, run=own.grant.run, state=state)
        self._put_away_letters()
        self.tell()

    def _put_away_letters(self) -> None:
        """Reports of its own children that came too late are history: no turn begins for them."""
        t = self.session.transcript
        if not t.pending or any(p.letter.kind != "inter_session" for p in t.pending.values()):
            return
        try:
            t.never_resume(t.take()[-1].entry)
        except PerdureError as error:  # then the next waking answers them
            self.session.not_written(error)

    def tell(self) -> None:
        """Bring the ending to the parent, in a job; its end comes as `Told`."""
        session, own = self.session, self.own
        if own is None or own.ending is None or own.told or self._job is not None:
            return
        post = session.ref.post
        work = partial(self._told_parent, own, own.ending)
        try:
            self._job = session.services.kernel.start(
                f"{session.key}#result", work, on_end=lambda _job, outcome: post(Told(outcome))
            )
        except KernelClosed:
            return  # it stands in the file: the next start tells it
        session.alarms.told()

    async def _told_parent(self, own: Kin, ending: Ending) -> str:
        """`taken`, or why nobody takes it any more: `other` file, `gone`."""
        services = self.session.services
        done: Waiter[str] = services.clock.waiter(f"{own.grant.parent}: the result of {own.grant.child}")
        if not services.family.post(own.grant.parent, Ended(own.grant, ending, done)):
            return "gone"
        return await services.clock.wait(done, services.timing.ask)

    def told(self, outcome: Outcome) -> None:
        """The attempt is over."""
        self._job, own = None, self.own
        if own is None or own.ending is None or own.told:
            return
        if not isinstance(outcome, Returned):
            self._retry(outcome)
            return
        try:
            self.session.transcript.kin(Fact(own.grant.run, own=True, told=True))
        except PerdureError as error:
            self.session.not_written(error)
            self._retry(error)
            return
        if outcome.value != "taken":
            self.session.services.log.warning(
                "subagent.not_wanted", session=self.session.key, parent=own.grant.parent, why=outcome.value
            )
        if own.grant.cleanup == "delete":
            self._go()
        self.session.alarms.told()

    def _retry(self, why: object) -> None:
        session = self.session
        if session.services.family.closing:  # it stands in the file: the next start tells it
            return
        self._tries += 1
        pause = AGAIN.delay(self._tries)
        self._again = session.services.clock.wall_ms() + int(pause * 1000)
        told = str(why) if isinstance(why, BaseException) else describe(why)
        session.services.log.warning(
            "subagent.not_told", session=session.key, tries=self._tries, again_s=pause, error=told
        )
        session.alarms.told()

    def _go(self, swept: Kin | None = None) -> None:
        """Delete the session: a job of the host's, which closes it first. `swept`: its engine is told so."""
        services, key, self._going = self.session.services, self.session.key, True
        file, id = self.session.transcript.file.path, self.session.environment.engine

        async def work() -> None:
            try:
                await services.family.delete(key)
            except PerdureError as error:
                services.log.warning("subagent.not_deleted", session=key, error=str(error))
                return
            if swept is not None:
                await engine.ended(services, id, swept.grant, file, "swept")

        try:
            services.kernel.start("subagents", work)
        except KernelClosed:
            return

    # --- time -------------------------------------------------------------------------------------

    def ring(self, now: int) -> None:
        """What is due: the deadline, the next attempt, the archive."""
        own = self.own
        if own is None:
            return
        if own.ending is None:
            if now >= own.grant.deadline and self._cause is None and not self._tries:
                self._stop("timeout", "")
            else:
                self.settle()
        elif not own.told:
            if now >= self._again:
                self.tell()
        elif (due := self.due) is not None and now >= due and session_idle(self.session):
            self._go(swept=own)

    def leave_behind(self) -> None:
        """`/new`: the file is put aside, and with it what it was to do."""
        own = self.running
        if own is not None:
            self._end(own, "killed", "a new session was begun in its place", quiet=False)


def session_idle(session: Session) -> bool:
    """Nobody talks to it just now."""
    return session.state == "idle" and not session.transcript.pending

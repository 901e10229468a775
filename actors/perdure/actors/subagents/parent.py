"""A session as a parent: it begins children, and takes each one's result once.

The letter stands in its file before the ending does, and both before the child is told so; whatever is cut
off between is made up for by the same result, which comes again. A child whose file is gone is closed here.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from perdure.actors.messages import Deliver
from perdure.actors.subagents import engine
from perdure.actors.subagents.beginning import begin
from perdure.actors.subagents.ending import FROZEN, letter
from perdure.actors.subagents.mail import Ended, Halt, Look, Spawn, Spawned
from perdure.actors.subagents.spawning import Asker, Refused, granted
from perdure.contracts import Letter, SpawnEnd
from perdure.edges.session.kin import ChildGrant, Ending, Fact
from perdure.errors import ConfigError, MessageTooLarge, PerdureError
from perdure.events import SubagentEnded, SubagentStarted
from perdure.kernel.errors import Closed as KernelClosed
from perdure.kernel.outcome import Cancelled, Failed, Outcome, Returned, describe
from perdure.records import Assistant, Item, ToolCall

if TYPE_CHECKING:
    from perdure.actors.session import Session

AGAIN = 5_000  # ms until a record that the disk did not take is tried again
GRACE = 120_000  # ms that a child has behind its deadline to say how it ended
SHORTEST = 256  # bytes of a result that are worth trying where a larger one does not fit


class Parent:
    """One session's children."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.spawning: dict[str, Spawn] = {}  # by run: the file says that they begin, a job begins them
        self._doomed: set[str] = set()  # of those: to be stopped as soon as they have begun
        self._early: dict[str, Ended] = {}  # of those: what came before we know whether they have begun
        self._unwritten: dict[str, Ending] = {}  # of those that did not begin: the disk took no record
        self._again = 0  # when it is tried again (wall ms)
        self._late: list[Ended] = []  # results that no turn is to begin for, until this one ends

    @property
    def busy(self) -> bool:
        """A child is open."""
        return bool(self.session.transcript.relatives.open)

    @property
    def under_way(self) -> bool:
        """A child is being begun, or a result waits for the turn's end."""
        return bool(self.spawning or self._late)

    @property
    def due(self) -> int | None:
        """When an open child will have had time enough (wall ms)."""
        found = [kin.grant.deadline + GRACE for kin in self.session.transcript.relatives.open]
        return min((*found, *([self._again] if self._unwritten else ())), default=None)

    # --- beginning --------------------------------------------------------------------------------

    def spawn(self, mail: Spawn) -> None:
        """Decide, write it down, and let a job begin the child."""
        session, t, services = self.session, self.session.transcript, self.session.services
        try:
            if session.subagents.child.stopping or session.leaving.closing:
                raise Refused("time", "this session is being stopped")
            if mail.wish.model:
                services.resolver.model_info(mail.wish.model)
            account = session.subagents.child.account
            asker = Asker(session.key, t.session_id, mail.call, t.relatives)
            if account is not None:
                asker = replace(asker, cap=account.cap, left=account.left)
            here, now = len(services.family.open), services.clock.wall_ms()
            grant = granted(mail.wish, asker, services.family.settings, here, now)
            leaf = _before_call(t.items, mail.call) if grant.mode == "forked" else ""
            t.kin(Fact(grant.run, grant=grant))
        except PerdureError as error:
            session.not_written(error)
            mail.done.fail(refusal(error))
            return
        self.spawning[grant.run] = mail
        services.family.opened(grant.child, session.key)
        recorded = services.clock.waiter("the record of a subagent")
        services.durable.settle(recorded)
        post, run = session.ref.post, grant.run
        work = partial(begin, services, session.snapshot(), leaf, mail.wish, grant, recorded)
        try:
            services.kernel.start(
                f"{session.key}#spawn", work, on_end=lambda _job, outcome: post(Spawned(run, outcome))
            )
        except KernelClosed as error:
            self.spawned(Spawned(run, Failed(Refused("storage", str(error)))))
        session.alarms.told()

    def spawned(self, mail: Spawned) -> None:
        """The child has begun, or there is none."""
        asked, early = self.spawning.pop(mail.run, None), self._early.pop(mail.run, None)
        kin = self.session.transcript.relatives.child(mail.run)
        match mail.outcome:
            case Cancelled():  # the host stops: the next start looks what became of it
                return
            case Returned(ChildGrant() as grant):
                self._begun(grant, asked, wanted=kin is not None and mail.run not in self._doomed)
            case outcome if kin is not None:
                self._not_begun(kin.grant, outcome, asked)
        self._doomed.discard(mail.run)
        if early is not None:
            self.ended(early)

    def _begun(self, grant: ChildGrant, asked: Spawn | None, *, wanted: bool) -> None:
        session = self.session
        session.services.family.begun += 1
        session.services.log("subagent.begun", session=session.key, child=grant.child, run=grant.run)
        what = (grant.child, grant.run, grant.label, grant.mode, grant.depth)
        session.services.events.publish(SubagentStarted(session.key, *what))
        if not wanted:  # a stop, or `/new`, came between
            stop = Halt("its parent was stopped", run=grant.run, quiet=True)
            session.services.family.tell(grant.child, stop)
        if asked is not None:
            asked.done.set(grant)

    def _not_begun(self, grant: ChildGrant, outcome: Outcome, asked: Spawn | None) -> None:
        error = outcome.error if isinstance(outcome, Failed) else None
        refused = error if isinstance(error, Refused) else Refused("storage", describe(outcome))
        self._rejected(grant, refused)
        if asked is not None:
            asked.done.fail(refused)
        self.session.subagents.child.settle()

    def _rejected(self, grant: ChildGrant, refused: Refused) -> None:
        """The call's own result tells of it: no letter comes."""
        now = self.session.services.clock.wall_ms()
        ending = Ending("rejected", now, why=str(refused)[:500])
        try:
            self.session.transcript.kin(Fact(grant.run, ending=ending))
        except PerdureError as error:  # open on record, without a file
            self.session.not_written(error)
            self._unwritten[grant.run], self._again = ending, now + AGAIN
            self.session.alarms.told()
        self.session.services.family.closed(grant.child, "rejected")

    # --- results ----------------------------------------------------------------------------------

    def ended(self, mail: Ended) -> None:
        """A child's result. Answered once it is in the file; of an earlier file's child, at once."""
        session = self.session
        kin = session.transcript.relatives.child(mail.grant.run)
        if kin is None or kin.ending is not None:  # no letter stands behind its record
            mail.done.set("other" if kin is None else "taken")
            return
        if mail.grant.run in self.spawning:
            self._early[mail.grant.run] = mail
            return
        if self._quietly(mail.ending) and session.state != "idle":
            self._late.append(mail)
            return
        try:
            self._take(mail.grant, mail.ending)
        except PerdureError as error:
            session.not_written(error)
            mail.done.fail(error)
        else:
            session.services.durable.settle(mail.done, "taken")

    def turn_over(self) -> None:
        """The turn has ended: results that waited for that enter, and begin no other."""
        late, self._late = self._late, []
        for mail in late:
            self.ended(mail)

    def _quietly(self, ending: Ending) -> bool:
        """Nobody is to react: the tree was stopped, or this session has ended itself."""
        child = self.session.subagents.child
        return ending.quiet or child.stopping or (child.own is not None and child.running is None)

    def _take(self, grant: ChildGrant, ending: Ending) -> None:
        """Letter, then record; each only where it is not there yet. Raises what an append raises."""
        session, t = self.session, self.session.transcript
        if t.seen(Letter(grant.parent, grant.child, grant.run, ())) is None:
            self._enter(grant, ending)
        known = t.relatives.child(grant.run)
        if known is None or known.ending is not None:
            return
        t.kin(Fact(grant.run, ending=replace(ending, text="")))
        services = session.services
        services.family.closed(grant.child)
        seconds = max(0, ending.at - grant.began) / 1000
        told = SubagentEnded(session.key, grant.child, grant.run, ending.state, ending.spent.tokens, seconds)
        services.events.publish(told)
        self.tell_engine(grant, "deleted" if grant.cleanup == "delete" else "completed")
        session.subagents.child.settle()
        session.alarms.told()

    def _enter(self, grant: ChildGrant, ending: Ending) -> None:
        session, most = self.session, FROZEN
        now = session.services.clock.wall_ms()
        if self._quietly(ending):
            self._note(letter(grant, ending, now))
            return
        while True:
            try:
                self._deliver(letter(grant, ending, now, most))
                return
            except MessageTooLarge:  # more than this window holds: its beginning, and where the rest is
                if most <= SHORTEST:
                    raise
                most = max(SHORTEST, min(most, len(ending.text.encode())) // 2)

    def _deliver(self, each: Letter) -> None:
        if self.session.subagents.child.own is not None:  # its own answer goes to its parent alone
            each = replace(each, deliver=False)
        ack = self.session.services.clock.waiter("a subagent's letter")
        self.session.letters.deliver(Deliver(each, ack))
        if ack.done:  # else it waits for the journal: the line is in the file all the same
            ack.result()

    def _note(self, each: Letter) -> None:
        """Into the view without a turn: the next one reads it."""
        t = self.session.transcript
        receipt = t.receive(replace(each, deliver=False))
        t.never_resume(receipt.entry)

    def tell_engine(self, grant: ChildGrant, end: SpawnEnd) -> None:
        """In a job: the engine may take its time."""
        services, file = self.session.services, self.session.transcript.file.path
        id = self.session.environment.engine
        try:
            services.kernel.start("subagents", partial(engine.ended, services, id, grant, file, end))
        except KernelClosed:
            return

    # --- looking after them -----------------------------------------------------------------------

    def look(self) -> None:
        """Open children go on; one that has no file any more has ended."""
        session, family = self.session, self.session.services.family
        for kin in session.transcript.relatives.open:
            grant = kin.grant
            if grant.run in self.spawning or grant.run in self._unwritten:
                continue
            family.opened(grant.child, session.key)
            if not family.tell(grant.child, Look(grant.run, session.key)):
                self._close(grant, "lost", "its session file is gone")

    def disowned(self, run: str) -> None:
        """The session there is another one."""
        kin = self.session.transcript.relatives.child(run)
        if kin is not None and kin.ending is None and run not in self.spawning:
            self._close(kin.grant, "lost", "its session was begun anew")

    def ring(self, now: int) -> None:
        """A child that is long past its deadline and says nothing is closed, whatever it does."""
        for kin in self.session.transcript.relatives.open:
            if (ending := self._unwritten.pop(kin.grant.run, None)) is not None:
                self._rejected(kin.grant, Refused("storage", ending.why))
        for kin in self.session.transcript.relatives.open:
            grant = kin.grant
            if now >= grant.deadline + GRACE and grant.run not in self.spawning:
                there = self.session.services.family.tell(
                    grant.child, Halt("it was given up", "swept", run=grant.run)
                )
                why = "it did not answer" if there else "its session file is gone"
                self._close(grant, "swept" if there else "lost", why)

    def _close(self, grant: ChildGrant, state: str, why: str) -> None:
        session, now = self.session, self.session.services.clock.wall_ms()
        ending = Ending("lost" if state == "lost" else "swept", now, grant.amount, why)
        if self._quietly(ending) and session.state != "idle":
            return  # at its own end it looks again
        try:
            self._take(grant, ending)
        except PerdureError as error:
            session.not_written(error)
            session.services.log.error("subagent.not_closed", session=session.key, error=str(error))
        else:
            session.services.family.ended[ending.state] += 1

    def halt(self, why: str) -> int:
        """Stop all open children, quietly; those that are being begun as soon as they have. How many."""
        family = self.session.services.family
        self._doomed |= set(self.spawning)
        found = self.session.transcript.relatives.open
        for kin in found:
            if kin.grant.run not in self.spawning:
                family.tell(kin.grant.child, Halt(why, run=kin.grant.run, quiet=True))
        return len(found)

    def leave_behind(self) -> None:
        """`/new`: nobody will look into this file again."""
        for kin in self.session.transcript.relatives.open:
            self.tell_engine(kin.grant, "released")
        self.halt("its parent began a new session")


def refusal(error: PerdureError) -> Refused:
    """Why there is no child, for the model."""
    if isinstance(error, Refused):
        return error
    return Refused("arguments" if isinstance(error, ConfigError) else "storage", str(error))


def _before_call(items: list[Item], call: str) -> str:
    """The entry that a fork ends with: the one before the answer that asks for the child."""
    for at in range(len(items) - 1, 0, -1):
        message = items[at].message
        if isinstance(message, Assistant) and any(
            isinstance(block, ToolCall) and block.id == call for block in message.content
        ):
            return items[at - 1].entry
    raise Refused("arguments", "there is no history to fork yet: use mode isolated")

"""The session's part that has to do with subagents: what it is to its parent, and to its children."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.actors.messages import Rested
from perdure.actors.subagents.account import Account
from perdure.actors.subagents.child import Child
from perdure.actors.subagents.mail import (
    Begin,
    Ended,
    Halt,
    Kindred,
    KinMail,
    Look,
    Spawn,
    Spawned,
    Told,
    Unknown,
)
from perdure.actors.subagents.parent import Parent
from perdure.context.text.plural import counted
from perdure.edges.session.kin import of_key

if TYPE_CHECKING:
    from perdure.actors.session import Session


class Subagents:
    """Both roles of one session. Nothing here waits."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.parent = Parent(session)
        self.child = Child(session, self.parent)

    def handle(self, mail: KinMail) -> None:
        """One letter."""
        match mail:
            case Spawn():
                self.parent.spawn(mail)
            case Spawned():
                self.parent.spawned(mail)
            case Ended():
                self.parent.ended(mail)
            case Begin():
                self.child.begin(mail)
            case Told(outcome):
                self.child.told(outcome)
            case Halt():
                self._halt(mail)
            case Look():
                self._look(mail)
            case Unknown(run):
                self.parent.disowned(run)
            case Kindred(done):
                done.set(self.session.transcript.relatives)

    def _halt(self, mail: Halt) -> None:
        stopped = self.child.halt(mail)
        if not stopped and not mail.run:
            stopped = self.stop_tree(mail.why) if mail.tree else self.session.abort()
        if mail.done is not None:
            mail.done.set(stopped)

    def stop_all(self) -> str:
        """`/stop all`: its turn and every session below it; the answer for a person."""
        below = len(self.session.transcript.relatives.open)
        stopped = self.stop_tree("stopped by the user")
        if not stopped:
            return "Nothing is running."
        return f"Stopping, and {counted(below, 'subagent')} with all below." if below else "Stopping."

    def stop_tree(self, why: str) -> bool:
        """Whether there was anything to stop."""
        if self.child.halt(Halt(why)):
            return True
        below = self.parent.halt(why)
        return self.session.abort() or bool(below)

    def _look(self, mail: Look) -> None:
        own = self.child.own
        if mail.run and (own is None or own.grant.run != mail.run):
            self.session.services.family.tell(mail.parent, Unknown(mail.run))
        self.parent.look()
        self.child.settle()
        self.child.tell()

    # --- told by the session ----------------------------------------------------------------------

    def woken(self) -> None:
        """The file is open. What is to be looked after is, once the mail that came meanwhile is handled."""
        t = self.session.transcript
        relatives = t.relatives = of_key(t.relatives, self.session.key)
        self.child.woken()
        if relatives.owes:
            self.session.ref.post(Look())

    def lost(self) -> None:
        """The file is another's, or gone: a parent that waits looks what became of its child."""
        own = self.child.running
        if own is not None:
            self.session.services.family.tell(own.grant.parent, Look())

    def turn_over(self, rested: Rested) -> None:
        """A turn has ended, however."""
        self.parent.turn_over()
        self.child.turn_over(rested)

    def cut_off(self) -> bool:
        """The turn's task was killed by nobody we know; True: that is the end of this child."""
        return self.child.cut_off()

    @property
    def account(self) -> Account | None:
        """What this session's model calls are counted against, where it is a child."""
        return self.child.account

    @property
    def stopping(self) -> bool:
        """It begins no turn any more."""
        return self.child.stopping

    @property
    def under_way(self) -> bool:
        """It can't sleep yet."""
        return self.child.under_way or self.parent.under_way

    @property
    def due(self) -> int | None:
        """When it is to be woken (wall ms)."""
        return min((due for due in (self.child.due, self.parent.due) if due is not None), default=None)

    def ring(self, now: int) -> None:
        """What is due."""
        self.parent.ring(now)
        self.child.ring(now)

    def leave_behind(self) -> None:
        """`/new`."""
        self.parent.leave_behind()
        self.child.leave_behind()

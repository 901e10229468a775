"""How a session leaves its file: it falls asleep, closes, begins anew, breaks, or loses it to another owner.

Whatever the reason, the file is left whole and let go before anybody else may open it: there are never two
activations that write one file. Mail that comes meanwhile waits, and is handled in order by the next one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from perdure.actors.compacting import Compacting
from perdure.actors.coordinator import Coordinator
from perdure.actors.keeping import Keeping
from perdure.actors.letters import Letters
from perdure.actors.messages import Close, Rejoined
from perdure.actors.truncating import Truncating
from perdure.actors.turns import Turns
from perdure.errors import Closed, Fenced, PerdureError
from perdure.kernel.outcome import Failed, Lost, Outcome, Returned, describe
from perdure.kernel.waiter import Waiter

if TYPE_CHECKING:
    from perdure.actors.session import Session

WITHIN = 30.0  # seconds that a disk has to take the last bytes; then the file is let go as it is


class Leaving:
    """The ways out of one session. `closing`: who waits for its end."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.closing: list[Waiter[None]] = []
        self._at_once = False

    # --- for a while ------------------------------------------------------------------------------

    def sleep(self, done: Waiter[bool] | None) -> None:
        """Give the place in memory back, if nothing is under way; `done` gets whether it did."""

        def left() -> None:
            self._let_go()
            self.session.opening.send_on()
            if done is not None:
                done.set(True)

        if self.session.at_ease:
            self.leave_file(left)
        elif done is not None:
            done.set(False)

    def begin_anew(self) -> None:
        """Leave the file and open the one that follows it."""
        session = self.session
        session.sending.leave_behind()
        session.subagents.leave_behind()

        def left() -> None:
            session.letters.refuse(Closed("a new session was begun before this was answered"))
            session.letters, session.truncating = Letters(session), Truncating(session)
            session.keeping = Keeping(session)
            session.compacting = Compacting(session, Coordinator(run=session.compacting.state.run))
            session.turns = Turns(session, session.turns.number)
            session.state = "opening"
            session.opening.begin()

        self.leave_file(left)

    # --- for good ---------------------------------------------------------------------------------

    def close(self, mail: Close) -> None:
        """After the running turn, or (`now`) instead of it."""
        self.closing.append(mail.done)
        self._at_once |= mail.now
        if mail.now:
            self.session.sending.stop(now=True)
        if self.session.state in ("idle", "settling"):
            self.finish_close()
        elif mail.now and self.session.turns.job is not None:
            self.session.turns.job.cancel()

    def finish_close(self) -> None:
        """The turn, if there was one, has ended, its answer is out: leave the file whole, tell who waits."""
        session = self.session
        if session.sending.holds_up or (session.turns.after_due and not self._at_once):
            return
        session.sending.stop()

        def left() -> None:
            self._let_go()
            session.opening.turn_away(Closed("the session was closed"))
            session.letters.refuse(Closed("the session was closed before it answered"))
            self._tell_closed()

        self.leave_file(left)

    def not_woken(self, error: BaseException) -> None:
        """There is no file to leave: it could not be opened."""
        session = self.session
        session.services.log.error("session.not_opened", session=session.key, error=str(error))
        session.services.on_not_opened(session.key, error)
        self._let_go()
        self._tell_closed()
        session.opening.turn_away(error)

    def abandon(self, error: BaseException) -> None:
        """This object is broken (a bug): let go of everything; the session begins anew from its file."""
        session = self.session
        opened, session.state = session.state not in ("opening", "closed"), "closed"
        session.opening.give_up()
        if session.turns.job is not None:
            session.turns.job.cancel()
        session.stop_timers()
        session.compacting.let_go()
        session.letters.refuse(error)
        self._tell_closed()
        session.opening.turn_away(error)
        if opened:
            session.held.close(handover=False)
            session.services.upkeep.slept(
                session.key, session.held, unfinished=True, due=session.alarms.leave()
            )

    def lose(self) -> None:
        """Another owner has the file, or it is gone: whoever waits is told, the next mail opens it anew."""
        session = self.session
        session.services.log.error("session.lost", session=session.key)
        session.release(session.key)
        session.subagents.lost()
        self.abandon(Fenced(f"{session.key}: another owner took the session's file: send again"))

    # --- the file ---------------------------------------------------------------------------------

    def leave_file(self, then: Callable[[], None]) -> None:
        """Write what a waking needs, let a job make the file durable and close it, then go on."""
        session = self.session
        due = session.alarms.leave()
        session.stop_timers()
        session.compacting.let_go()
        held = session.held
        owing = session.sending.unfinished or session.transcript.relatives.owes
        unfinished = owing or session.turns.unfinished
        try:
            session.transcript.leave()
        except PerdureError as error:
            self._not_left_whole(error)

        def left(outcome: Outcome) -> None:
            overdue.cancel()
            if not isinstance(outcome, Returned):
                self._not_left_whole(outcome.error if isinstance(outcome, Failed) else describe(outcome))
                held.close(handover=False)  # also of a job that hangs: whatever it does, it can't append
            session.services.upkeep.slept(session.key, held, unfinished=unfinished, due=due)
            then()

        overdue = session.services.clock.call_after(WITHIN, lambda: session.ref.post(Rejoined(left, Lost())))
        leave = partial(session.services.upkeep.leave, session.key, held, due, owing=owing)
        session.opening.with_file(leave, left)

    def _not_left_whole(self, error: object) -> None:
        self.session.services.log.error("session.not_left_whole", session=self.session.key, error=str(error))

    def _let_go(self) -> None:
        self.session.state = "closed"
        self.session.services.engines.left(self.session.key)
        self.session.release(self.session.key)

    def _tell_closed(self) -> None:
        for done in self.closing:
            done.set(None)

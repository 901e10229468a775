"""How a session gets its file, and lends it: to a job that opens, makes, renews, swaps or closes it.

Mail waits meanwhile: no handler does what may block, and nothing is appended behind a job's back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from perdure.actors.messages import Changing, Close, Command, Deliver, Mail, Note, Rejoined, Woken
from perdure.edges.session import branching
from perdure.edges.session.files import Held
from perdure.edges.session.tail import open_session
from perdure.errors import Busy, Closed, PerdureError, StorageFailed
from perdure.kernel.errors import Closed as KernelClosed
from perdure.kernel.jobs import Job
from perdure.kernel.outcome import Failed, Outcome, Returned, at_once
from perdure.kernel.waiter import Waiter

if TYPE_CHECKING:
    from perdure.actors.session import Session

Change: TypeAlias = Callable[[Held, int], Any]  # the file in our hands, wall ms; what to tell the caller
MOST_STASHED = 256  # mail that waits while the file is in a job's hands
OUTSIDE = (Deliver, Command, Changing, Note)


class Opening:
    """The way into the state `idle`. `renewing`: who waits for a new session file (`/new`).

    `changing`: what is to be done to the file before it is opened (`/undo`); its answer goes to `asked`.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.stash: deque[Mail] = deque()
        self.renewing: Waiter[str] | None = None
        self._then: Callable[[Outcome], None] | None = None  # what follows on the job that has the file
        self.changing: Change | None = None
        self.asked: Waiter[Any] | None = None
        self._answer: Any = None

    def begin(self) -> None:
        """Open the file in a job; its end comes as `Woken`."""
        kernel = self.session.services.kernel
        kernel.start(f"{self.session.key}#open", self._open, on_end=self._ended)

    async def _open(self) -> Woken:
        return Woken(await self.session.services.io.run(self._hold))

    def _hold(self) -> Held:
        key, services = self.session.key, self.session.services
        files, now = services.files, services.clock.wall_ms()
        if self.renewing is None and files.exists(key):
            held = files.open(key, now)
            try:
                return self._changed(self._completed(held, now), now)
            except BaseException:
                held.close(handover=False)
                raise
        workspace = services.resolver.shown_workspace(key)
        if self.renewing is None:
            return files.create(key, workspace, now)
        return files.renew(key, workspace, now, self.session.alarms.carried)

    def _completed(self, held: Held, now: int) -> Held:
        """Another program may have gone on behind an entry whose view needs what truncation moved out."""
        log, key = self.session.services.log, self.session.key
        try:
            if back := branching.complete(held, now):
                log("session.restored", session=key, entries=back)
        except (PerdureError, OSError) as error:  # the view is what the other program showed
            log.warning("session.not_restored", session=key, error=str(error))
        return held

    def _changed(self, held: Held, now: int) -> Held:
        if self.changing is not None:
            try:
                self._answer = self.changing(held, now)
            except (PerdureError, OSError) as error:  # the session goes on with the file as it is
                self._answer = error if isinstance(error, PerdureError) else StorageFailed(str(error))
                held.opened = open_session(held.file.path)
        return held

    def _ended(self, _job: Job, outcome: object) -> None:
        match outcome:
            case Returned(Woken() as woken):
                self.session.ref.post(woken)
            case Failed(error):
                self.session.ref.post(Woken(None, error))
            case _:
                self.session.ref.post(Woken(None, Closed("the host stopped while the session was opening")))

    # --- the file in a job's hands ----------------------------------------------------------------

    @property
    def apart(self) -> bool:
        """A job has the file to itself: nothing is appended, and mail waits."""
        return self._then is not None

    def with_file(self, work: Callable[[], object], then: Callable[[Outcome], None]) -> None:
        """Let a job do blocking work on the file; `then` is told its outcome, before any other mail."""
        key, services, post = self.session.key, self.session.services, self.session.ref.post
        try:
            services.kernel.start(
                f"{key}#file", services.io.run, work, on_end=lambda _job, out: post(Rejoined(then, out))
            )
        except KernelClosed:  # the host stops: nobody is held up any more
            then(at_once(work))
        else:
            self._then = then

    def rejoined(self, mail: Rejoined) -> None:
        """The job is over: what was to follow, then the mail that came meanwhile."""
        if self._then is not mail.then:
            return  # of a session that broke meanwhile
        self._then = None
        mail.then(mail.outcome)
        if self.session.state != "closed":
            self.hand_over()

    def give_up(self) -> None:
        """The session is broken: whatever a job does to the file is no business of it any more."""
        self._then = None

    # --- mail that waits --------------------------------------------------------------------------

    def wait(self, mail: Mail) -> None:
        """Keep mail until the file is ours alone, what comes from outside within bounds."""
        if len(self.stash) < MOST_STASHED or not isinstance(mail, OUTSIDE):
            self.stash.append(mail)
        else:
            key = self.session.key
            refuse(mail, Busy(f"{key}: too many messages wait for it to open: send it again later"))

    def done(self) -> None:
        """The file is open: tell who waited for it."""
        renewing, self.renewing = self.renewing, None
        settle = self.session.services.durable.settle
        if renewing is not None:
            settle(renewing, "A new session has begun; the old one is kept beside it.")
        asked, self.asked, self.changing = self.asked, None, None
        if asked is None:
            return
        if isinstance(self._answer, PerdureError):
            asked.fail(self._answer)
        else:
            settle(asked, self._answer)

    def hand_over(self) -> None:
        """Handle what has waited."""
        session = self.session
        while self.stash and session.state not in ("opening", "closed") and not self.apart:
            mail = self.stash.popleft()
            try:
                session.handle(mail)
            except BaseException as error:
                if isinstance(mail, OUTSIDE) and isinstance(error, Exception):
                    session.services.kernel.park(session.ref, mail, error)
                broke = f"{session.key}: the session broke ({error!r}): send the same id again"
                refuse(mail, PerdureError(broke))
                raise

    def send_on(self) -> None:
        """The session has left, and may be woken again by what came while it did."""
        while self.stash:
            self.session.ref.handler(self.stash.popleft())

    def renew(self, done: Waiter[str]) -> None:
        """`/new`: end the turn, put the file aside and begin another; mail that comes meanwhile waits."""
        if self.renewing is not None:
            done.fail(Busy(f"{self.session.key}: a new session is being made already"))
            return
        self.renewing = done
        if self.session.state == "idle":
            self.session.leaving.begin_anew()
        else:
            self.session.abort()

    def change(self, make: Change, done: Waiter[Any], *, by_engine: bool = False) -> None:
        """Leave the file, let `make` change it while a job has it to itself, and open it as it is then.

        `by_engine`: the hooks behind a turn ask for it, so that these are no reason to wait.
        """
        session = self.session
        session.turns.after_due &= not by_engine
        if not session.at_ease:
            done.fail(Busy(f"{session.key}: something is under way: ask again when the agent rests"))
            return
        self.changing, self.asked = make, done

        def left() -> None:
            session.turns = session.turns.anew()
            session.state = "opening"
            self.begin()

        session.leaving.leave_file(left)

    def turn_away(self, error: BaseException) -> None:
        """Whatever still waits won't be handled."""
        for waiter in (self.renewing, self.asked):
            if waiter is not None:
                waiter.fail(error)
        while self.stash:
            mail = self.stash.popleft()
            if isinstance(mail, Close):
                mail.done.set(None)
            else:
                refuse(mail, error)


def refuse(mail: Mail, error: BaseException) -> None:
    """Tell the sender of `mail`, if it waits, that its session could not take it."""
    for name in ("ack", "done", "view", "reply"):
        waiter = getattr(mail, name, None)
        if isinstance(waiter, Waiter):
            waiter.fail(error)

"""How a session gets its file: by a job that opens, makes or renews it, while its mail waits."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from perdure.actors.messages import Close, Mail, Woken
from perdure.edges.session import branching
from perdure.edges.session.files import Held
from perdure.edges.session.tail import open_session
from perdure.errors import Busy, Closed, PerdureError, StorageFailed
from perdure.kernel.jobs import Job
from perdure.kernel.outcome import Failed, Returned
from perdure.kernel.waiter import Waiter

if TYPE_CHECKING:
    from perdure.actors.session import Session

Change: TypeAlias = Callable[[Held, int], str]  # the file in our hands, wall ms; what to tell the user
MOST_STASHED = 256  # mail that waits while the file is being opened


class Opening:
    """The way into the state `idle`. `renewing`: who waits for a new session file (`/new`).

    `changing`: what is to be done to the file before it is opened (`/undo`); its text goes to `asked`.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.stash: deque[Mail] = deque()
        self.renewing: Waiter[str] | None = None
        self.changing: Change | None = None
        self.asked: Waiter[str] | None = None
        self._answer: str | PerdureError = ""

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
        return (files.create if self.renewing is None else files.renew)(key, workspace, now)

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

    def wait(self, mail: Mail) -> None:
        """Keep mail until the file is open, within bounds."""
        if len(self.stash) < MOST_STASHED or isinstance(mail, Close):
            self.stash.append(mail)
        else:
            key = self.session.key
            refuse(mail, Busy(f"{key}: too many messages wait for it to open: send it again later"))

    def done(self) -> None:
        """The file is open: tell who waited for it."""
        renewing, self.renewing = self.renewing, None
        if renewing is not None:
            renewing.set("A new session has begun; the old one is kept beside it.")
        asked, self.asked, self.changing = self.asked, None, None
        if asked is None:
            return
        if isinstance(self._answer, str):
            asked.set(self._answer)
        else:
            asked.fail(self._answer)

    def hand_over(self) -> None:
        """Handle what has waited."""
        session = self.session
        while self.stash and session.state not in ("opening", "closed"):
            mail = self.stash.popleft()
            try:
                session.handle(mail)
            except BaseException as error:
                broke = f"{session.key}: the session broke ({error!r}): send the same id again"
                refuse(mail, PerdureError(broke))
                raise

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

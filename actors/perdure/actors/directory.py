"""Which sessions exist for this host, and which are awake: the grain directory, with its collector.

A sleeping session is a `Ref` whose handler wakes it: no task, no descriptor, under a kilobyte. When more
are awake than the host allows, those that rest longest are asked to sleep; one that works never is.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import partial

from perdure.actors.messages import (
    Abort,
    Changing,
    Close,
    Command,
    Deliver,
    Known,
    Mail,
    Note,
    Sleep,
    Truncated,
    Wake,
    Woken,
)
from perdure.actors.opening import refuse
from perdure.actors.services import Services
from perdure.actors.session import Session
from perdure.edges.session.rewrite import discard
from perdure.errors import Closed, PerdureError
from perdure.kernel.errors import Closed as KernelClosed
from perdure.kernel.errors import DeadlineExceeded
from perdure.kernel.mailbox import Handler, Ref
from perdure.kernel.waiter import Waiter

NOTHING = Known()
WAKING = (
    Deliver,
    Command,
    Changing,
    Note,
    Wake,
)  # all else is for somebody awake: reports to one who is gone


class Directory:
    """Refs by key. `most_awake` bounds the sessions in memory; those at work are not counted out."""

    def __init__(self, services: Services, most_awake: int) -> None:
        self._services, self._most_awake = services, most_awake
        self._refs: dict[str, Ref] = {}
        self.awake: dict[str, Session] = {}
        self._resting: OrderedDict[str, None] = OrderedDict()
        self._leaving: set[str] = set()  # asked to sleep, and not gone yet
        self._known: dict[str, Known] = {}  # of those that slept, or broke: nothing late passes for new
        self.wakings = self.sleeps = 0

    def ref(self, key: str) -> Ref:
        """The session's address; it wakes with its first mail."""
        ref = self._refs.get(key)
        if ref is None:
            wake = partial(self._wake, key)
            ref = self._refs[key] = self._services.kernel.actor(
                key, wake, restart=partial(self._crashed, key)
            )
        return ref

    @property
    def known(self) -> int:
        """Sessions this host has heard of since it started."""
        return len(self._refs)

    def rested(self, key: str) -> None:
        """A session has come to rest: it is the last one to be put to sleep."""
        self._leaving.discard(key)
        self._resting.pop(key, None)
        self._resting[key] = None
        while len(self.awake) - len(self._leaving) > self._most_awake and self._resting:
            oldest, _ = self._resting.popitem(last=False)
            if oldest in self.awake:
                self._leaving.add(oldest)
                self._refs[oldest].post(Sleep())

    async def close(self, grace: float) -> None:
        """Let turns end within `grace` seconds, then stop them."""
        for now, within in ((not grace, grace or 5.0), (True, 10.0)):
            if await self._all_closed(self.ask_to_close(now=now), within):
                return

    def ask_to_close(self, *, now: bool) -> list[Waiter[None]]:
        """Every session that is awake, its turn ended (`now`) or awaited; what tells of each end."""
        ends = []
        for session in list(self.awake.values()):
            done: Waiter[None] = self._services.clock.waiter(f"the end of {session.key}")
            session.ref.post(Close(done, now=now))
            ends.append(done)
        return ends

    async def _all_closed(self, ends: list[Waiter[None]], within: float) -> bool:
        clock = self._services.clock
        until = clock.now() + within
        for done in ends:
            try:
                await clock.wait(done, max(0.001, until - clock.now()))
            except DeadlineExceeded:
                return False
        return True

    def _wake(self, key: str, mail: Mail) -> None:
        if not isinstance(mail, WAKING):
            turn_away(mail)
            return
        ref = self._refs[key]
        try:
            session = Session(key, ref, self._services, self._released, self._known.get(key, NOTHING))
        except KernelClosed:
            refuse(mail, Closed("the host is stopping"))
            return
        self.awake[key] = session
        self.wakings += 1
        ref.handler = session.handle
        session.handle(mail)

    def _released(self, key: str) -> None:
        session = self.awake.pop(key, None)
        if session is not None and session.known != NOTHING:
            self._known[key] = session.known
        self._resting.pop(key, None)
        self._leaving.discard(key)
        self.sleeps += 1
        self._refs[key].handler = partial(self._wake, key)

    def _crashed(self, key: str, error: BaseException) -> Handler | None:
        """A handler raised, which is a bug: the session begins anew from its file, its neighbours go on."""
        self._services.log.error("session.crashed", session=key, error=repr(error))
        session = self.awake.pop(key, None)
        if session is not None:
            self._known[key] = session.known
            told = f"{key}: the session broke ({error!r}) and begins anew: send the same id again"
            session.abandon(PerdureError(told))
            self._refs[key].post(Wake())  # what it had begun is taken up
        self._resting.pop(key, None)
        self._leaving.discard(key)
        return partial(self._wake, key)


def turn_away(mail: Mail) -> None:
    """Mail for a session that sleeps, and no reason to wake it."""
    match mail:
        case Sleep(done) if done is not None:
            done.set(True)
        case Abort(done) if done is not None:
            done.set(False)
        case Close(done):
            done.set(None)
        case Woken(held) if held is not None:  # opened for one that crashed meanwhile
            held.close(handover=False)
        case Truncated(prepared) if prepared is not None:
            discard(prepared)
        case _:
            refuse(mail, Closed("the session was closed"))

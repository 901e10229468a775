"""Which sessions exist for this host, and which are awake: the grain directory, with its collector.

A sleeping session is a `Ref` whose handler wakes it: no task, no descriptor, under a kilobyte. Who is put
to sleep is the business of `memory`.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import partial

from perdure.actors.messages import (
    Abort,
    Beat,
    Changing,
    Close,
    Command,
    Deliver,
    Known,
    Mail,
    Note,
    OutboxMail,
    Ring,
    Sleep,
    Timetable,
    Truncated,
    Wake,
    Woken,
)
from perdure.actors.opening import refuse
from perdure.actors.quarantine import Quarantine
from perdure.actors.services import Services
from perdure.actors.session import Session
from perdure.actors.subagents.account import Account
from perdure.actors.subagents.mail import WakingKinMail
from perdure.edges.session.rewrite import discard
from perdure.errors import Busy, Closed, PerdureError
from perdure.kernel.errors import Closed as KernelClosed
from perdure.kernel.errors import DeadlineExceeded
from perdure.kernel.mailbox import Handler, Ref
from perdure.kernel.waiter import Waiter

NOTHING = Known()
RUNG = 60.0  # seconds that a session has to open and act on what is due
WAKING = (
    Deliver,
    Command,
    Changing,
    Note,
    Wake,
    Ring,
    Beat,
    Timetable,
    OutboxMail,
    WakingKinMail,
)
"""All else is for somebody awake: reports to one who is gone."""


class Directory:
    """Refs by key."""

    def __init__(self, services: Services) -> None:
        self._services, self._memory = services, services.memory
        self._memory.on_rest = self._look_later
        self._refs: dict[str, Ref] = {}
        self.awake: dict[str, Session] = {}
        self._later: OrderedDict[str, None] = OrderedDict()  # to be looked at when there is room
        self._barred: set[str] = set()  # being deleted: mail is refused until that is over
        self._known: dict[str, Known] = {}  # of those that slept, or broke: nothing late passes for new
        self.quarantine = Quarantine()
        self.wakings = self.sleeps = 0

    def ref(self, key: str) -> Ref:
        """The session's address; it wakes with its first mail."""
        ref = self._refs.get(key)
        if ref is None:
            ref = self._refs[key] = self._services.kernel.actor(
                key, self._asleep(key), restart=partial(self._crashed, key)
            )
        return ref

    def _asleep(self, key: str) -> Handler:
        """What handles the mail of a session that isn't awake."""
        return partial(self._refuse if key in self._barred else self._wake, key)

    async def ring(self, key: str, since: int) -> int | None:
        """Wake a session for what is due; when its next timer comes. `since`: as `Ring` has it."""
        found: int | None = await self._services.kernel.ask(
            self.ref(key), lambda done: Ring(since, done), RUNG
        )
        return found

    async def beat(self, key: str, due: int) -> bool:
        """A heartbeat is due; whether it begins."""
        return bool(await self._services.kernel.ask(self.ref(key), lambda done: Beat(due, done), RUNG))

    @property
    def known(self) -> int:
        """Sessions this host has heard of since it started."""
        return len(self._refs)

    def not_opened(self, key: str, error: BaseException) -> None:
        """A session's file could not be opened: it alone is put aside for a while."""
        clock = self._services.clock
        case = self.quarantine.note(key, error, clock.now(), clock.wall_ms())
        if case is not None:
            self._services.log.warning(
                "session.quarantined", session=key, tries=case.tries, seconds=case.until - clock.now()
            )

    def opened(self, key: str) -> None:
        """A session's file could be opened."""
        self.quarantine.release(key)

    async def end(self, *, now: bool, within: float) -> bool:
        """Ask all to close, and wait so many seconds; whether all have."""
        return await self._all_closed(self.ask_to_close(now=now), within)

    @property
    def at_work(self) -> tuple[str, ...]:
        """Sessions whose turn has not ended."""
        return tuple(key for key, one in self.awake.items() if one.state in ("running", "settling"))

    def account(self, key: str) -> Account | None:
        """What the calls of an awake subagent are counted against."""
        session = self.awake.get(key)
        return session.subagents.account if session is not None and session.state != "opening" else None

    def reach(self, key: str, mail: Mail) -> bool:
        """Post to a session that has a file; False: it has none."""
        if key not in self.awake and not self._services.files.exists(key):
            return False
        self.ref(key).post(mail)
        return True

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

    async def bar(self, key: str, within: float) -> None:
        """Stop a session, its turn included, and refuse its mail until `unbar`. Raises `Busy`."""
        self._barred.add(key)
        ref, session = self.ref(key), self.awake.get(key)
        if session is None:
            ref.handler = self._asleep(key)
            return
        done: Waiter[None] = self._services.clock.waiter(f"the end of {key}")
        ref.post(Close(done, now=True))
        if not await self._all_closed([done], within):
            raise Busy(f"{key}: can't be stopped within {within:g} s: try again later")

    def unbar(self, key: str, *, gone: bool = False) -> None:
        """Let mail through again; after a deletion (`gone`) it begins a new session."""
        self._barred.discard(key)
        if gone:
            self._known.pop(key, None)
        if key not in self.awake:
            self._refs[key].handler = self._asleep(key)

    def _refuse(self, key: str, mail: Mail) -> None:
        if isinstance(mail, WAKING):
            refuse(mail, Busy(f"{key}: is being deleted: send it again to begin a new session"))
        else:
            turn_away(mail)

    def _wake(self, key: str, mail: Mail) -> None:
        if not isinstance(mail, WAKING):
            turn_away(mail)
            return
        if isinstance(mail, Wake) and self._memory.full:
            self._later[key] = None
            return
        ref = self._refs[key]
        refused = self.quarantine.refusal(key, self._services.clock.now())
        if refused is not None:
            refuse(mail, refused)
            return
        try:
            session = Session(key, ref, self._services, self._released, self._known.get(key, NOTHING))
        except KernelClosed:
            refuse(mail, Closed("the host is stopping"))
            return
        self.awake[key] = session
        self._memory.woke(key)
        self._later.pop(key, None)
        self.wakings += 1
        ref.handler = session.handle
        session.handle(mail)

    def _released(self, key: str) -> None:
        session = self.awake.pop(key, None)
        if session is not None and session.known != NOTHING:
            self._known[key] = session.known
        self._memory.gone(key)
        self.sleeps += 1
        self._refs[key].handler = self._asleep(key)
        self._look_later()

    def _look_later(self) -> None:
        """One more of those that nobody waits for, where there is room now."""
        if self._later and not self._memory.full:
            self._refs[self._later.popitem(last=False)[0]].post(Wake())

    def _crashed(self, key: str, error: BaseException) -> Handler | None:
        """A handler raised, which is a bug: the session begins anew from its file, its neighbours go on."""
        self._services.log.error("session.crashed", session=key, error=repr(error))
        session = self.awake.pop(key, None)
        if session is not None:
            self._known[key] = session.known
            told = f"{key}: the session broke ({error!r}) and begins anew: send the same id again"
            session.leaving.abandon(PerdureError(told))
            self._refs[key].post(Wake())  # what it had begun is taken up
        self._memory.gone(key)
        return self._asleep(key)


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

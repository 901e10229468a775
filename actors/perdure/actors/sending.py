"""The session's side of the outbox: one attempt at a time, in the order of its answers, each step on record.

Before an attempt the file says that it begins; its end comes as `Settled`. So a crash between the two is
seen at the next waking, and only a channel that can de-duplicate is given the same id again (RT12).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from perdure.actors import outgoing as outgoing_rules
from perdure.actors.messages import Due, OutboxAsk, OutboxMail, Settled
from perdure.actors.outbox import Lane, Outlet
from perdure.actors.outgoing import Ended
from perdure.actors.services import Services
from perdure.contracts import Delivered, Delivery
from perdure.edges.session.facts import Outgoing
from perdure.edges.session.history import History
from perdure.errors import DeliveryFailed, PerdureError, StorageFailed, UsageError
from perdure.kernel.errors import Closed as KernelClosed
from perdure.kernel.errors import DeadlineExceeded
from perdure.kernel.jobs import Job
from perdure.kernel.outcome import Failed, Outcome, Returned, describe
from perdure.kernel.waiter import Waiter
from perdure.records import Assistant

if TYPE_CHECKING:
    from perdure.actors.session import Session

AGAIN = 60.0  # seconds until an attempt whose record could not be written is tried again
UNROUTED_AGE = 72 * 3600.0  # for a channel that is configured no longer
TOLD = {
    "failed": "did not go out",
    "unknown": "may have gone out or not: it is not repeated by itself",
    "expired": "was not sent in time",
}


class Sending:
    """What goes out of one session. `stopped`: the session leaves now, nothing more is begun."""

    def __init__(self, session: Session) -> None:
        self.session, self.outbox = session, session.services.outbox
        self.stopped = False
        self._unwritten: Outgoing | None = None  # an end that the disk did not take: it is known all the same

    # --- its state --------------------------------------------------------------------------------

    @property
    def under_way(self) -> bool:
        """An attempt runs, or one is granted: the session stays awake to record it.

        One that stands in a lane may sleep: its turn wakes it.
        """
        return self.outbox.has(self.session.key) or self.outbox.granted(self.session.key)

    @property
    def holds_up(self) -> bool:
        """The session's end waits for it."""
        key = self.session.key
        return self.outbox.has(key) or (not self.stopped and self.outbox.wants(key))

    @property
    def unfinished(self) -> bool:
        """Something is still to be sent, now or later."""
        return any(each.under_way for each in self.session.transcript.outgoing.values())

    def woken(self) -> None:
        """The file is open: which way its answers go, and what an earlier life left of them."""
        outlet = self.outbox.route(self.session.key)
        self.session.transcript.channel = outlet.name if outlet is not None else ""
        self.want()

    def stop(self, *, now: bool = False) -> None:
        """The session ends; `now`: what runs is stopped."""
        self.stopped = True
        self.outbox.leave(self.session.key, now=now)

    def leave_behind(self) -> None:
        """`/new`: the file is put aside, and nobody will look into it."""
        self.outbox.leave(self.session.key)
        for each in list(self.session.transcript.outgoing.values()):
            if each.state == "waiting":
                self._record(replace(each, state="failed", why="a new session was begun"))

    # --- mail -------------------------------------------------------------------------------------

    def handle(self, mail: OutboxMail) -> None:
        """A grant, the end of an attempt, or somebody who asks."""
        match mail:
            case Due(to):
                self._begin(self.outbox.lanes[to])
            case Settled():
                self._settled(mail)
            case OutboxAsk(done, what, entry):
                try:
                    done.set(self._asked(what, entry))
                except PerdureError as error:
                    self.session.not_written(error)
                    done.fail(error)

    def want(self, after: float = 0.0) -> None:
        """Stand in the lane of the next answer's channel, if there is one."""
        session, first = self.session, self._unwritten if after else None
        first = first or self._next()
        if first is None or self.stopped or self.outbox.has(session.key):
            return
        lane = self.outbox.lanes.get(first.to)
        if lane is not None:
            lane.want(session.key, after)

    def _next(self) -> Outgoing | None:
        """The oldest answer to be attempted; what needs no attempt any more is recorded on the way."""
        waiting = self.session.transcript.outgoing
        if not waiting or self.outbox.has(self.session.key):
            return None
        late, self._unwritten = self._unwritten, None
        if late is not None and late.entry in waiting and not self._record(late):
            self._unwritten = late
            return None
        for old, new in outgoing_rules.too_many(list(waiting.values())):
            self._record(new, told=old.under_way)
        for each in list(waiting.values()):
            if not each.under_way:
                continue
            outlet = self._outlet(each)
            age = outlet.max_age if outlet is not None else UNROUTED_AGE
            same = outlet is not None and outlet.channel.idempotent
            now = self.session.services.clock.wall_ms()
            step = outgoing_rules.step(each, now, idempotent=same, max_age=age)
            if step == "attempt":
                return each
            if not self._record(replace(each, state=step)):
                return None
        return None

    def _outlet(self, each: Outgoing) -> Outlet | None:
        lane = self.outbox.lanes.get(each.to)
        return lane.outlet if lane is not None else None

    # --- one attempt ------------------------------------------------------------------------------

    def _begin(self, lane: Lane) -> None:
        session, first = self.session, self._next()
        if first is None or first.to != lane.outlet.name or self.stopped or session.state == "closed":
            lane.decline(session.key)
            self.want(AGAIN if self._unwritten is not None else 0.0)
            return
        if first.event not in lane.outlet.events:
            self._record(replace(first, state="dropped"))
            lane.decline(session.key)
            self.want()
            return
        first = outgoing_rules.begun(first)
        if not self._record(first):
            lane.decline(session.key)
            self.want(AGAIN)
            return
        self._start(lane, first)

    def _start(self, lane: Lane, first: Outgoing) -> None:
        session = self.session
        transcript, services = session.transcript, session.services
        shown = next((i.message for i in transcript.items if i.entry == first.entry), None)
        make = partial(outgoing_rules.delivery, session.key, transcript.session_id, first)
        path = transcript.file.path

        async def attempt() -> Ended:
            await _recorded(services)
            message = shown or await services.io.run(History(path).message, first.entry)
            if not isinstance(message, Assistant):
                raise UsageError("its text is no longer in the session's file")
            return await _sent(lane.outlet, make(message), services.clock.fail_after)

        def over(_job: Job, outcome: Outcome) -> None:
            end = _end_of(outcome)
            lane.land(session.key, end)
            session.ref.post(Settled(lane.outlet.name, first.entry, first.tries, end))

        try:
            job = services.kernel.start(f"{session.key}#out", attempt, on_end=over)
        except KernelClosed:  # surely not sent
            self._record(replace(first, state="waiting"))
            lane.decline(session.key)
        else:
            lane.begin(session.key, job)

    def _settled(self, mail: Settled) -> None:
        session, lane = self.session, self.outbox.lanes[mail.to]
        known = session.transcript.outgoing.get(mail.entry)
        wait = 0.0
        if known is not None and (known.state, known.tries) == ("begun", mail.n):
            same = lane.outlet.channel.idempotent
            after = outgoing_rules.ended(known, mail.end, idempotent=same)
            if after.state == "waiting":
                id = outgoing_rules.id_of(session.transcript.session_id, mail.entry)
                wait = outgoing_rules.pause(after, mail.end, id)
            if not self._record(after):
                self._unwritten, wait = after, max(wait, AGAIN)
        lane.recorded(session.key)
        self.want(wait)
        if session.leaving.closing and session.state in ("idle", "settling"):
            session.leaving.finish_close()

    def _record(self, each: Outgoing, *, told: bool = True) -> bool:
        """Write where a delivery stands; False where the disk takes nothing: then it stands as it did."""
        session = self.session
        try:
            session.transcript.delivering(each)
        except PerdureError as error:
            session.not_written(error)
            session.services.log.error("outbox.not_written", session=session.key, error=str(error))
            return False
        session.services.log(
            "outbox.moved", session=session.key, entry=each.entry, to=each.to, state=each.state
        )
        if told and each.state in TOLD:
            why = f" ({each.why})" if each.why else ""
            text = f"The answer {each.entry} {TOLD[each.state]} by {each.to}{why}; /outbox lists it."
            session.notice("outbox", text)
        return True

    # --- for operators ----------------------------------------------------------------------------

    def _asked(self, what: str, entry: str) -> tuple[Outgoing, ...]:
        found = tuple(self.session.transcript.outgoing.values())
        if what == "list":
            return found
        now, busy = self.session.services.clock.wall_ms(), self.outbox.has(self.session.key)
        moved = outgoing_rules.moved(found, what, entry, now, busy=busy)
        for each in moved:
            self.session.transcript.delivering(each)
        self.want()
        return moved

    def commanded(self, argument: str) -> str:
        """`/outbox`, `/outbox retry ENTRY|all`, `/outbox drop ENTRY|all`; the answer for a person."""
        what, _, entry = argument.strip().partition(" ")
        if what not in ("", "list", "retry", "drop") or (what in ("retry", "drop") and not entry.strip()):
            raise UsageError("/outbox takes nothing, or retry or drop with an entry's id or all")
        entry = entry.strip()
        found = self._asked(what or "list", "" if entry == "all" else entry)
        if what in ("retry", "drop"):
            return f"{len(found)} {'sent again' if what == 'retry' else 'dropped'}."
        if not found:
            return "Nothing is on its way out."
        return "\n".join(outgoing_rules.line_of(each) for each in found)


async def _recorded(services: Services) -> None:
    """What was begun is durable before its effect. Where it can't be, surely nothing was sent."""
    begun: Waiter[None] = services.clock.waiter("the record of an attempt")
    services.durable.settle(begun)
    try:
        await services.clock.wait(begun, services.timing.ask)
    except (StorageFailed, DeadlineExceeded) as error:
        raise DeliveryFailed("retryable", f"the attempt could not be recorded ({error})") from None


async def _sent(outlet: Outlet, delivery: Delivery, fail_after: Callable[[float], object]) -> Ended:
    with fail_after(outlet.timeout):  # type: ignore[attr-defined]
        found: Delivered = await outlet.channel.send(delivery)
        return Ended(ref=found.ref)


def _end_of(outcome: Outcome) -> Ended:
    """What is known after an attempt. Whatever a channel did not say is ambiguous; no text of it is kept."""
    match outcome:
        case Returned(Ended() as end):
            return end
        case Failed(DeliveryFailed() as error):
            return Ended(error)
        case Failed(PerdureError() as error):  # before anything was sent
            return Ended(DeliveryFailed("permanent", str(error)))
        case Failed(DeadlineExceeded()):
            return Ended(DeliveryFailed("ambiguous", "no answer in time"))
        case Failed(error):
            return Ended(DeliveryFailed("ambiguous", f"the channel broke ({type(error).__name__})"))
        case _:
            return Ended(DeliveryFailed("ambiguous", f"stopped: {describe(outcome)}"))

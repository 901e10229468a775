"""Mail of actors: a bounded lane for the outside, a reserved one that never refuses, nothing while idle.

Back-pressure is not answering: a sender waits for room, first come first served, until its deadline; then
nothing was accepted. The reserved lane is bounded by its protocol (a job waits for the receipt of each
report), so the cycle actor -> job -> actor can't deadlock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from perdure.kernel.clock import Clock
from perdure.kernel.errors import ActorParked, Closed
from perdure.kernel.waiter import Waiter

BOUND = 64  # letters that wait in one mailbox: a burst of a person, not a flood

Handler = Callable[[Any], None]


class Ref:
    """One actor as others see it. About 120 bytes while idle: no task, no descriptor, no container."""

    __slots__ = (
        "_boxes",
        "crashes",
        "handler",
        "inner",
        "key",
        "mail",
        "parked",
        "queued",
        "restart",
        "room",
    )

    def __init__(
        self,
        boxes: Mailboxes,
        key: str,
        handler: Handler,
        restart: Callable[[BaseException], Handler | None] | None,
    ) -> None:
        self._boxes = boxes
        self.key = key
        self.handler = handler
        self.restart = restart  # called after a crash, may give a new handler
        self.mail: deque[Any] | None = None
        self.inner: deque[Any] | None = None
        self.room: deque[tuple[Waiter[Any], Any]] | None = None  # senders that wait, with what they bring
        self.crashes: tuple[float, ...] = ()
        self.queued = False
        self.parked = False

    def tell(self, message: Any) -> bool:
        """Deliver to the bounded lane. False: full, parked or stopping; nothing was accepted."""
        boxes = self._boxes
        mail = self.mail
        if mail is None:
            if self.parked or boxes.closed:
                return False
            self.mail = mail = deque()
        elif len(mail) >= boxes.bound or self.parked or boxes.closed:
            boxes.refused += 1
            return False
        mail.append(message)
        if not self.queued:
            self.queued = True
            boxes.ready.append(self)
            if boxes.bell is not None:
                boxes.ring()
        return True

    def post(self, message: Any) -> None:
        """Deliver to the reserved lane: replies, reports, stop and cancel. Overtakes the other lane."""
        if self.inner is None:
            self.inner = deque()
        self.inner.append(message)
        if not self.queued:
            self._boxes.wake(self)


class Mailboxes:
    """What all mailboxes share: the run queue and its bell."""

    def __init__(self, clock: Clock, bound: int = BOUND) -> None:
        self._clock = clock
        self.bound = bound
        self.ready: deque[Ref] = deque()
        self.bell: Waiter[Any] | None = None
        self.closed = False
        self.refused = 0

    def ring(self) -> None:
        """Wake the dispatcher, once."""
        bell, self.bell = self.bell, None
        if bell is not None:
            bell.set()

    def wake(self, ref: Ref) -> None:
        """Put the actor on the run queue."""
        if not ref.queued:
            ref.queued = True
            self.ready.append(ref)
            if self.bell is not None:
                self.ring()

    def rest(self, ref: Ref) -> None:
        """After a slice: behind the others where mail is left, else nothing is kept."""
        if not ref.parked and (ref.mail or ref.inner):
            self.ready.append(ref)
            return
        ref.queued = False
        ref.mail = ref.mail or None
        ref.inner = ref.inner or None

    async def send(self, ref: Ref, message: Any, timeout: float) -> None:
        """Deliver to the bounded lane, waiting for room. Raises DeadlineExceeded, ActorParked or Closed.

        A sender that is cancelled just as its letter is admitted can't tell; the letter is delivered once.
        """
        if ref.tell(message):
            return
        self._refuse(ref)
        waiter = self._clock.waiter(f"room in the mailbox of {ref.key}")
        if ref.room is None:
            ref.room = deque()
        ref.room.append((waiter, message))
        try:
            await self._clock.wait(waiter, timeout)
        finally:
            waiter.set()  # whoever gave up is passed over

    def _refuse(self, ref: Ref) -> None:
        if self.closed:
            raise Closed(f"{ref.key}: the kernel is stopping, nothing was accepted")
        if ref.parked:
            raise ActorParked(f"{ref.key} crashed too often and is parked: retry or drop it")

    def admit(self, ref: Ref) -> None:
        """Room for one: the first sender still waiting gets it, letter and all, so nobody can slip in.

        Called after each letter taken out, so whoever waits, waits in front of a full mailbox.
        """
        room = ref.room
        while room and ref.mail is not None and len(ref.mail) < self.bound:
            waiter, message = room.popleft()
            if not waiter.done:
                ref.mail.append(message)
                waiter.set()
        if not room:
            ref.room = None

    def close(self) -> None:
        """Accept nothing more from outside; whoever waits for room is told."""
        self.closed = True
        for ref in self.ready:
            self.turn_away(ref, Closed(f"{ref.key}: the kernel is stopping, nothing was accepted"))

    def turn_away(self, ref: Ref, error: Exception) -> None:
        """Fail everyone who waits for room."""
        room, ref.room = ref.room, None
        for waiter, _ in room or ():
            waiter.fail(error)

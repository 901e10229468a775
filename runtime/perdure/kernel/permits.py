"""A number of things that may happen at once, given out fairly, with bounded waiting and a shared pause.

    async with permits.use("tenant", "session", timeout=60):
        ...

A permit that is granted in the tick in which its owner is cancelled, or runs out of time, goes to the next.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager

from perdure.kernel.clock import Clock
from perdure.kernel.deadlines import Timer
from perdure.kernel.errors import Full
from perdure.kernel.fair import Band, FairQueue, Ticket
from perdure.kernel.throttle import Throttle
from perdure.kernel.waiter import Waiter


class Permit:
    """One of them, while it is held. `give` is idempotent."""

    __slots__ = ("_given", "_permits", "_since", "_ticket", "band", "waited")

    def __init__(self, permits: FairPermits, ticket: Ticket[Waiter[Permit]] | None, band: Band) -> None:
        self._permits, self._ticket, self.band = permits, ticket, band
        self._given = False
        self._since = permits.clock.now()
        self.waited = False  # whether time may have passed since it was asked for

    def give(self) -> None:
        """Give it back; the next in line has it at once."""
        if not self._given:
            self._given = True
            self._permits.given(self, self._ticket, self._permits.clock.now() - self._since)


class FairPermits:
    """`limit` at once, of them `behind` (else three quarters) for the band behind; `bound` wait for a class.

    Shares are of time held: what a class held for longer than the mean is charged to it.
    """

    def __init__(
        self, name: str, clock: Clock, limit: int, *, bound: int = 1024, behind: int | None = None
    ) -> None:
        self.name, self.clock, self.limit = name, clock, limit
        self.throttle = Throttle(limit, name=name)
        self.used = self.behind = self.granted = 0
        self.queue: FairQueue[Waiter[Permit]] = FairQueue(bound)
        self._most_behind = behind or max(1, limit - limit // 4)
        self._mean = 0.0  # seconds that a permit is held
        self._timer: Timer | None = None

    def full(self, kind: str) -> bool:
        """Whether one more of this class would be refused now."""
        return self.queue.full(kind)

    async def acquire(
        self,
        kind: str,
        flow: Hashable,
        *,
        timeout: float,
        weight: float = 1.0,
        due: float = 0.0,
        band: Band = "front",
    ) -> Permit:
        """Wait for one. Raises `Full` (at once) or `DeadlineExceeded`: nothing is held then."""
        waiter: Waiter[Permit] = self.clock.waiter(f"a permit of {self.name}")
        ticket = self.queue.push(waiter, kind, flow, weight=weight, due=due, band=band)
        if ticket is None:
            raise Full(f"{self.name}: {self.queue.waiting(kind)} of {kind} wait already")
        self.pump()
        if waiter.ready():
            return waiter.result()
        try:
            permit = await self.clock.wait(waiter, timeout)
        except BaseException:
            if not self.queue.remove(ticket) and waiter.ready():  # granted to one who is gone
                waiter.result().give()
            raise
        permit.waited = True
        return permit

    @asynccontextmanager
    async def use(
        self, kind: str, flow: Hashable, *, timeout: float, weight: float = 1.0
    ) -> AsyncIterator[Permit]:
        """`acquire`, given back at the end."""
        permit = await self.acquire(kind, flow, timeout=timeout, weight=weight)
        try:
            yield permit
        finally:
            permit.give()

    def pump(self) -> None:
        """Grant what may be granted now; while it is paused, look again when the pause is over."""
        now = self.clock.now()
        while self.used < min(self.limit, self.throttle.allowed(now)):
            ticket = self.queue.pop(back=self.behind < self._most_behind)
            if ticket is None:
                return
            self.used += 1
            self.behind += ticket.band == "back"
            self.granted += 1
            ticket.item.set(Permit(self, ticket, ticket.band))
        until = self.throttle.until
        if len(self.queue) and until > now and self._timer is None:
            self._timer = self.clock.call_at(until, self._resumed)

    def given(self, permit: Permit, ticket: Ticket[Waiter[Permit]] | None, held: float) -> None:
        """A permit's business: it is back."""
        self.used -= 1
        self.behind -= permit.band == "back"
        if ticket is not None and self._mean:
            self.queue.charge(ticket, held / self._mean - 1.0)
        self._mean = held if not self._mean else self._mean + (held - self._mean) / 16
        self.pump()

    def _resumed(self) -> None:
        self._timer = None
        self.pump()

    def close(self) -> None:
        """Forget the timer; who waits is cancelled by its own owner."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

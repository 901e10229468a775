"""The way to the models: one fair queue in front of each provider, with one pause for all that it refuses.

A turn waits here before its request is built, so that a stalled provider piles up no memory: what waits is
a letter in a file and a place in a queue. Tenants share by weight, a tenant's sessions evenly; turns go
before background work.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perdure.actors.tenancy import Tenancy
from perdure.edges.settings import ModelSettings
from perdure.errors import Busy, ModelError
from perdure.kernel.clock import Clock
from perdure.kernel.errors import DeadlineExceeded, Full
from perdure.kernel.fair import Band
from perdure.kernel.permits import FairPermits, Permit

NOT_NOW = frozenset({"rate_limit", "overloaded"})  # of the provider's state, for everybody
BROKEN = frozenset({"server", "transport", "timeout"})
ANSWERED = frozenset({"overflow", "invalid", "auth", "billing", "not_found", "empty"})  # it is there
TOOLS = 32
MOST_TOOLS, MOST_CALLS = 4_096, 4_096  # tools by tenant that are remembered, calls that wait for one
LONGEST_PAUSE = 300.0
"""Seconds, and half of what a turn waits in line at most: who writes in a pause outlasts it and is answered.
The turn whose provider asked for longer has a timer, and whoever is next in line is its trial."""
ASK_AGAIN = 5.0  # seconds after which who was refused may find room, where nobody knows better


class Gates:
    """The queues by provider, made on first use. `told(event, fields)` hears of pauses."""

    def __init__(
        self,
        clock: Clock,
        tenancy: Tenancy,
        models: ModelSettings,
        told: Callable[..., object],
        tools: int = TOOLS,
    ) -> None:
        self._tools_at_once = tools
        self._tools: dict[tuple[str, str], FairPermits] = {}
        self.clock, self.tenancy, self.models, self.told = clock, tenancy, models, told
        self._limits = {p.name: p.concurrency for p in models.providers if p.concurrency}
        self._permits: dict[str, FairPermits] = {}

    def of(self, provider: str) -> FairPermits:
        """The queue in front of a provider."""
        found = self._permits.get(provider)
        if found is None:
            limit = self._limits.get(provider, self.models.concurrency)
            found = FairPermits(provider, self.clock, limit, bound=self.models.waiting)
            self._permits[provider] = found
        return found

    def tool(self, tenant: str, name: str) -> FairPermits:
        """A slow tool of one tenant holds up its own calls: those of one tool that may run at once."""
        if len(self._tools) >= MOST_TOOLS:  # those at work stay
            self._tools = {which: p for which, p in self._tools.items() if p.used or len(p.queue)}
        found = self._tools.get((tenant, name))
        if found is None:
            found = FairPermits(name, self.clock, self._tools_at_once, bound=MOST_CALLS)
            self._tools[tenant, name] = found
        return found

    def slot(self, key: str, *, band: Band = "front", due: float = 0.0) -> Slot:
        """A place for the calls of one turn or of one piece of background work, one call at a time."""
        return Slot(self, key, band, due)

    def admit(self, key: str, provider: str) -> None:
        """A new letter starts a turn. Raises `Busy` where too many turns of the tenant wait already."""
        permits = self.of(provider)
        tenant = self.tenancy.of(key).name
        if permits.full(tenant):
            after = max(ASK_AGAIN, permits.throttle.until - self.clock.now())
            raise Busy(
                f"{key}: {permits.queue.waiting(tenant):,} turns of {tenant} wait for {provider} already: "
                f"send it again in {after:.0f} s",
                retry_after=after,
            )

    def lines(self) -> list[dict[str, Any]]:
        """For `status`."""
        now = self.clock.now()
        return [
            {
                "provider": name,
                "limit": p.limit,
                "used": p.used,
                "waiting": len(p.queue),
                "granted": p.granted,
                "refused": p.queue.refused,
                "state": p.throttle.state(now),
                "pauses": p.throttle.pauses,
                "paused_seconds": round(max(0.0, p.throttle.until - now), 1),
                "tenants": dict(p.queue.classes()),
            }
            for name, p in self._permits.items()
        ]


class Slot:
    """Taken before a request is built, given back with what became of it. Giving twice does nothing."""

    def __init__(self, gates: Gates, key: str, band: Band, due: float) -> None:
        self._gates, self.key, self._band, self._due = gates, key, band, due
        self._permit: Permit | None = None
        self._at: FairPermits | None = None

    async def take(self, provider: str, timeout: float | None = None) -> bool:
        """Wait for a permit, if none is held. True: time has passed. Raises `ModelError`."""
        gates = self._gates
        at, tenant = gates.of(provider), gates.tenancy.of(self.key)
        if self._permit is not None and self._at is at:
            return False
        self.give()
        within = gates.models.queue_seconds if timeout is None else min(timeout, gates.models.queue_seconds)
        asked = (tenant.name, self.key)
        try:
            self._permit = await at.acquire(
                *asked, timeout=within, weight=tenant.weight, due=self._due, band=self._band
            )
        except Full as full:
            raise ModelError("overloaded", f"too many wait for {provider}: {full}") from None
        except DeadlineExceeded:
            raise ModelError("timeout", f"{provider} had no room within {within:.0f} s") from None
        self._at = at
        return self._permit.waited

    def worked(self) -> None:
        """The provider answered."""
        if self._at is not None:
            self._at.throttle.worked(self._gates.clock.now())

    def failed(self, error: ModelError) -> None:
        """It did not: whether that is everybody's matter depends on how."""
        at, gates = self._at, self._gates
        if at is None:
            return
        now, throttle = gates.clock.now(), at.throttle
        if error.kind in NOT_NOW:
            after = error.retry_after
            longest = min(LONGEST_PAUSE, gates.models.queue_seconds / 2)
            paused = throttle.refused(now, None if after is None else min(after, longest))
        elif error.kind in BROKEN:
            paused = throttle.failed(now, self.key)
        else:
            paused = False
            if error.kind in ANSWERED:
                throttle.worked(now)
        if paused:
            gates.told("model.paused", provider=at.name, seconds=throttle.until - now, kind=error.kind)

    def give(self) -> None:
        """The call is over, or there was none."""
        permit, self._permit = self._permit, None
        if permit is not None:
            permit.give()

"""So many messages a minute of a tenant, a sender, a session: asked before anything is written."""

from __future__ import annotations

from perdure.actors.tenancy import Tenancy
from perdure.edges.settings_hosting import LimitSettings
from perdure.errors import Busy
from perdure.kernel.bucket import Buckets
from perdure.kernel.clock import Clock


class Inbound:
    """Token buckets. A message takes one of each that it has, or of none."""

    def __init__(self, clock: Clock, tenancy: Tenancy, limits: LimitSettings) -> None:
        self._clock, self._tenancy, self._limits = clock, tenancy, limits
        self._buckets = Buckets()
        self.refused = 0

    def admit(self, key: str, sender: str) -> None:
        """Raises `Busy` with the seconds until there is room."""
        tenant, limits, now = self._tenancy.of(key), self._limits, self._clock.now()
        rates = {
            ("tenant", tenant.name): tenant.messages_per_minute or limits.tenant_messages_per_minute,
            ("sender", tenant.name, sender): limits.sender_messages_per_minute,
            ("session", key): limits.session_messages_per_minute,
        }
        asked = {name: rate for name, rate in rates.items() if rate}
        if not asked:
            return
        after, slowest = max((self._buckets.short(name, rate, now), name) for name, rate in asked.items())
        if after:
            self.refused += 1
            most = f"{rates[slowest]} messages a minute of one {slowest[0]}"
            raise Busy(
                f"{key}: more than {most}: send it again in {after:.1f} s", retry_after=round(after, 3)
            )
        for name, rate in asked.items():
            self._buckets.take(name, rate, now)

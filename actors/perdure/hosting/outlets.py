"""Makes the configured ways out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from perdure.actors.outbox import Outlet
from perdure.edges.channels.webhook import Webhook
from perdure.edges.settings_hosting import OutboundSettings
from perdure.kernel.clock import Clock


def configured(
    found: Iterable[OutboundSettings], clock: Clock, environ: Mapping[str, str]
) -> tuple[Outlet, ...]:
    """One outlet a section. Under virtual time none: nothing there speaks to a network.

    Raises `ConfigError` where a secret is missing or is none.
    """
    return () if clock.virtual else tuple(_outlet(each, clock, environ) for each in found)


def _outlet(each: OutboundSettings, clock: Clock, environ: Mapping[str, str]) -> Outlet:
    channel = Webhook(
        each.name,
        each.url,
        environ.get(each.secret_env, "") if each.secret_env else "",
        wall_ms=clock.wall_ms,
        secret_env=each.secret_env,
        allow_private=each.allow_private,
        idempotent=each.deduplicates,
        timeout=each.timeout_seconds,
    )
    return Outlet(
        channel,
        sessions=each.sessions,
        agents=each.agents,
        events=each.events,
        timeout=each.timeout_seconds + 5.0,  # the channel's own deadline comes first, and knows more
        workers=each.workers,
        max_age=each.max_age_hours * 3600.0,
    )

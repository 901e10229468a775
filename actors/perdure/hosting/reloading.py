"""The configuration read again: what can change while a host runs is swapped at once, the rest is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.actors.services import configured_timing
from perdure.edges.settings import Settings
from perdure.edges.settings_live import merged
from perdure.records import Record

if TYPE_CHECKING:
    from perdure.host import Host


class Reloaded(Record):
    """Keys that apply now, and (key, reason) of those that wait for a restart."""

    applied: tuple[str, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()

    def lines(self) -> list[str]:
        """For a person."""
        told = [f"{key}: applied" for key in self.applied]
        told += [f"{key}: after a restart ({reason})" for key, reason in self.refused]
        return told or ["nothing has changed"]


def adopt(host: Host, new: Settings, *, own_timing: bool, own_awake: bool) -> Reloaded:
    """Swap what may be. `own_…`: the program gave these itself, and goes on deciding them."""
    settings, applied, refused = merged(host.settings, new)
    services = host.services
    commits = [prepare(settings) for prepare in host.adopters]
    host.resolver.adopt(settings)  # refuses what can't work, before anything has changed
    host.settings = settings
    services.gates.tenancy.adopt(settings)
    services.fallbacks.adopt(settings)
    if not own_timing:
        services.timing = configured_timing(settings)
    if not own_awake:
        services.memory.most_awake = host.watching.bounded(settings.host.awake)
    services.approvals.tools = settings.tools.approve
    services.approvals.seconds = settings.tools.approval_seconds
    host.timers.reload(settings)
    for commit in commits:
        commit()
    host.log.adjust(settings.log.level, settings.log.max_mb, settings.log.keep)
    host.log("config.reloaded", applied=list(applied), refused=[key for key, _ in refused])
    return Reloaded(applied, refused)

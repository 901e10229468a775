"""Asks the trigger that fills the slot, and stands in for one that breaks: loudly, and with the core's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from perdure.actors.coordinator import AUTOMATIC, Reason
from perdure.contracts import CompactionTrigger, Pressure
from perdure.edges.log import Log
from perdure.edges.settings import Settings
from perdure.errors import PerdureError
from perdure.events import Notice


@dataclass(slots=True)
class Triggering:
    """`name` is the slot's choice, for the log; what breaks is told to the user once."""

    name: str
    trigger: CompactionTrigger
    fallback: CompactionTrigger
    log: Log
    tell: Callable[[Notice], None]
    broken: bool = False

    def __call__(self, key: str, pressure: Pressure) -> Reason | None:
        """Why to compact now, if at all."""
        try:
            return _allowed(pressure, self.trigger.wants(pressure))
        except Exception as error:
            self.log.error("trigger.failed", session=key, trigger=self.name, error=repr(error))
            if not self.broken:
                self.broken = True
                told = f"the compaction trigger {self.name} failed, auto decides instead: {error}"
                self.tell(Notice(key, "trigger", told))
            return self.fallback.wants(pressure)


def _allowed(pressure: Pressure, reason: Reason | None) -> Reason | None:
    """What backs off may be wanted at any moment; what may always try, at its own only."""
    if reason is None or reason in AUTOMATIC or reason == pressure.moment:
        return reason
    raise ValueError(f"{reason!r} is no reason to compact at the moment {pressure.moment!r}")


def choose(
    settings: Settings,
    given: CompactionTrigger | None,
    make: Callable[[str], CompactionTrigger],
    log: Log,
    replaced: Callable[[str], None],
    tell: Callable[[Notice], None],
) -> Triggering:
    """The slot's trigger; a missing or broken one is loudly replaced by `auto`, or refused if strict."""
    plugins, auto = settings.plugins, make("auto")
    name = plugins.slots.compaction_trigger or settings.compaction.trigger
    try:
        trigger = given or make(name)
    except PerdureError as error:
        if plugins.strict:
            raise
        log.warning("trigger.fallback", trigger=name, error=str(error))
        replaced(f"{error}; auto is in use instead")
        trigger = auto
    return Triggering(name, trigger, auto, log, tell)

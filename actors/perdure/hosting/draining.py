"""How a host ends: no new mail, turns end, deliveries are settled, and what was cut off is told."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from perdure.actors.directory import Directory
from perdure.edges.log import Log
from perdure.kernel.clock import Clock
from perdure.records import Record

SETTLE = 0.25  # of the time that is left for what settles after the last turn
LAST = 10.0  # seconds in which what was cut off obeys

Settler: TypeAlias = Callable[[float], Awaitable[tuple[str, ...]]]
"""Ends what is under way within so many seconds; names what it could not, which the next start takes up."""


class Drained(Record):
    """What the end cut off: turns by session, and what settlers named. Both go on at the next start."""

    turns: tuple[str, ...] = ()
    unsettled: tuple[str, ...] = ()
    stuck: tuple[str, ...] = ()  # sessions that did not even let go of their file

    @property
    def whole(self) -> bool:
        """Nothing was cut off."""
        return not (self.turns or self.unsettled or self.stuck)


async def drain(
    directory: Directory, settlers: tuple[Settler, ...], clock: Clock, log: Log, seconds: float
) -> Drained:
    """Let turns end within `seconds` less what settling needs, stop the rest, then settle."""
    until = clock.now() + seconds
    for_turns = seconds * (1 - SETTLE) if settlers else seconds
    cut: tuple[str, ...] = ()
    if not await directory.end(now=not seconds, within=for_turns or LAST):
        cut = directory.at_work
        await directory.end(now=True, within=LAST)
    unsettled: list[str] = []
    for settler in settlers:
        try:
            unsettled += await settler(max(0.0, until - clock.now()))
        except Exception as error:  # one that breaks must not keep the others from ending
            log.error("drain.settler_failed", error=repr(error))
            unsettled.append(repr(error))
    found = Drained(cut, tuple(unsettled), tuple(directory.awake))
    if not found.whole:
        log.warning("host.cut_off", turns=list(cut), unsettled=unsettled, stuck=list(found.stuck))
    return found

"""Worker: hands what turns have committed to the memory, once, in order, off the turn's path.

A mark says how far the memory has come; it moves only after the memory has taken something in. What failed
comes again behind the next turn, three times at most: then it is passed over, told and counted. A crash
between the two may bring the same again.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from perdure.actors.memories.marks import Captured
from perdure.actors.memories.slot import APART
from perdure.actors.messages import Mail, Snapshot
from perdure.actors.services import Services
from perdure.context.prompt.bootstrap import session_kind
from perdure.edges.session.history import History
from perdure.errors import PerdureError
from perdure.kernel.errors import Closed
from perdure.kernel.outcome import Outcome
from perdure.records import BranchSummary, Items, Summary

if TYPE_CHECKING:
    from perdure.actors.session import Session

MOST = 1_000  # messages of one call
TRIES = 3


class Capture(Mail):
    """A turn has ended; the memory is told of what is committed."""

    snapshot: Snapshot


def turn_over(session: Session) -> None:
    """Behind a turn: let what it committed be captured, where the memory wants that."""
    services, key = session.services, session.key
    slot = services.memories
    if not slot.captures or slot.closed or session_kind(key) in APART:
        return

    def done(_outcome: Outcome) -> None:
        slot.done()

    slot.expects()
    if not services.pools["capture"].submit(key, Capture(session.snapshot()), done):
        slot.done()  # the next turn's brings it
        services.log.warning("worker.full", session=key, pool="capture")


async def capture(services: Services, key: str, mail: Capture) -> None:
    """Everything behind the mark, in parts. What the memory raises is logged and counted."""
    slot, view = services.memories, mail.snapshot
    mark = await services.io.run(slot.captured.last, view.session_id) or Captured(view.session_id)
    while items := await _behind(services, view, mark.upto):
        upto, error = items[-1].entry, None
        try:
            await slot.capture(key, _told(items), services.timing.engine)
        except Closed:
            return
        except Exception as failure:
            error = failure
            services.log.warning(
                "memory.not_captured", session=key, memory=slot.chosen.id, error=str(failure)
            )
        slot.figures.capture_ended(error)
        given_up = error is not None and mark.tries + 1 >= TRIES
        if given_up:
            slot.figures.lost += len(items)
            services.log.error("memory.passed_over", session=key, memory=slot.chosen.id, messages=len(items))
        well = error is None or given_up
        mark = Captured(view.session_id, upto if well else mark.upto, 0 if well else mark.tries + 1)
        try:
            slot.captured.put(mark)
        except OSError as full:
            services.log.warning("memory.not_marked", session=key, error=str(full))
        if error is not None:
            return


async def _behind(services: Services, view: Snapshot, upto: str) -> Items:
    """Messages behind an entry, the oldest first; of a branch that was left, those of the view."""
    items = view.items
    at = next((n for n, item in enumerate(items) if item.entry == upto), None)
    if at is not None or not upto:
        return tuple(_told(items[0 if at is None else at + 1 :])[:MOST])
    try:  # covered meanwhile
        found = await services.io.run(partial(History(Path(view.file)).messages, upto, MOST))
    except (LookupError, PerdureError):
        found = items
    return tuple(_told(found)[:MOST])


def _told(items: Items) -> Items:
    """Messages of people, agents and tools; a summary says nothing new."""
    return tuple(item for item in items if not isinstance(item.message, Summary | BranchSummary))

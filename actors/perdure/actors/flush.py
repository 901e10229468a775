"""Worker: lets memory note what a compaction is about to take out of the view. Append-only, and bounded.

The hook gets the messages a part at a time and returns text; only this module writes, always behind what
the day's note holds already. What fails here is logged and holds no compaction up.
"""

from __future__ import annotations

from functools import partial

from perdure.actors.compaction import planned
from perdure.actors.engines.lent import context_of
from perdure.actors.messages import Flush, Flushed, Snapshot
from perdure.actors.services import Services
from perdure.context.compaction.plan import Plan
from perdure.context.compaction.stages import chunk_by_tokens
from perdure.context.safety.strip import strip
from perdure.contracts import MemoryFlush
from perdure.edges import daynote
from perdure.kernel.errors import DeadlineExceeded
from perdure.records import Items, Summary

PART = 4  # a part takes at most this fraction of the window
MOST = 16 * 1024  # characters of one flush that reach the note: it is a note, not a second transcript


async def flush(services: Services, key: str, mail: Flush) -> Flushed:
    """Call the hook for what is new in the range, and append what it says."""
    hook, view = services.flush, mail.snapshot
    assert hook is not None
    going = new(mail)
    if not going:
        return Flushed(True)
    try:
        with services.clock.fail_after(services.timing.flush):
            told = await _told(services, hook, view, parts(going, view))
        if told:
            root, now = services.resolver.workspace(key), services.clock.wall_ms()
            await services.io.run(partial(daynote.append, root, told, now))
    except DeadlineExceeded:
        services.log.warning("flush.failed", session=key, error=f"not within {services.timing.flush:g} s")
        return Flushed(False)
    except Exception as error:  # the hook is somebody else's, and the disk may be full
        services.log.warning("flush.failed", session=key, error=repr(error))
        return Flushed(False)
    services.log("flush.done", session=key, messages=len(going), characters=len(told))
    return Flushed(True, going[-1].entry)


def new(mail: Flush) -> Items:
    """What would be covered, ahead of a compaction everything, without what memory has seen before."""
    view = mail.snapshot
    chosen = planned(view, mail.reason) if mail.reason is not None else None
    going = chosen.covered if isinstance(chosen, Plan) else () if mail.reason is not None else view.items
    seen = next((at + 1 for at, item in enumerate(view.items) if item.entry == mail.after), 0)
    known = {item.entry for item in view.items[:seen]}
    return tuple(item for item in going if item.entry not in known and not isinstance(item.message, Summary))


def parts(going: Items, view: Snapshot) -> tuple[Items, ...]:
    """In parts that a hook can show to the model."""
    most = view.environment.limits.window // PART
    return tuple(chunk_by_tokens(strip(going).items, most, view.estimator.item))


async def _told(services: Services, hook: MemoryFlush, view: Snapshot, going: tuple[Items, ...]) -> str:
    context = context_of(services, view, view.environment.limits.window // PART)
    told, room = [], MOST
    for part in going:
        text = await hook(context, part)
        if not isinstance(text, str):
            raise TypeError(f"a memory flush returns text, not {type(text).__name__}")
        if text := text.strip()[:room]:
            told.append(text)
            room -= len(text)
    return "\n\n".join(told)

"""Worker: builds the smaller session file beside the old one. The session alone puts it in place."""

from __future__ import annotations

from perdure.actors.messages import Truncate, Truncated
from perdure.actors.services import Services
from perdure.edges.session import rewrite
from perdure.errors import PerdureError


async def truncate(services: Services, key: str, mail: Truncate) -> Truncated:
    """Move what is covered into a verified segment and stage the rest; appends go on meanwhile."""
    file, ids, now = mail.held.file, mail.held.ids, services.clock.wall_ms()

    def work() -> rewrite.Prepared | rewrite.Truncated:
        return rewrite.prepare(file, lambda: ids.entry(now), now, sync=services.io.sync)

    try:
        ready = await services.io.run(work)
    except PerdureError as error:
        return Truncated(None, str(error))
    if isinstance(ready, rewrite.Truncated):
        return Truncated(None, ready.reason)
    return Truncated(ready)

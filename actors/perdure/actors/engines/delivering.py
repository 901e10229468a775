"""Tells engines what was committed: each entry, in order, at least once, and once where they remember ids.

A cursor by entry id says how far an engine was told. It is the engine's own where `bootstrap` answers one
(it commits cursor and entries together), else the host's, which stands in the session's file.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from perdure.actors.calling import PluginFailed
from perdure.actors.engines.actor import Attachment, EngineActor
from perdure.actors.engines.lent import context_of
from perdure.actors.messages import Ingest, Snapshot
from perdure.actors.services import Services
from perdure.contracts import Bootstrapped, EngineContext, Maintained
from perdure.kernel.outcome import Outcome, Returned
from perdure.kernel.waiter import Waiter
from perdure.records import Items, Summary

BATCH = 256  # entries of one `ingest_batch`


async def caught_up(services: Services, view: Snapshot) -> None:
    """Let the engine be told everything in the view, behind what it was told before.

    Raises `PluginFailed`: it was told already. Serial per session, with the hooks of its turns.
    """
    clock = services.clock
    done: Waiter[PluginFailed | None] = clock.waiter(f"{view.key}: its engine")

    def back(outcome: Outcome) -> None:
        done.set(outcome.value if isinstance(outcome, Returned) else None)

    if not services.pools["ingest"].submit(view.key, Ingest(view), back):
        services.log.warning("worker.full", session=view.key, pool="ingest")
        return
    error = await clock.wait(done)
    if error is not None:
        raise error


async def deliver(services: Services, view: Snapshot) -> None:
    """The worker's part. Raises `PluginFailed`."""
    engine = services.engines.of(view.environment.engine)
    attached = engine.attachment(view.key, view.session_id)
    context = context_of(services, view)
    attached.behind = True
    if not attached.bootstrapped:
        await _bootstrap(engine, attached, context, view)
    async with aclosing(_undelivered(services, attached, context, view)) as batches:
        async for batch in batches:
            await _tell(engine, context, batch)
            attached.cursor = batch[-1].entry
            attached.fresh = (*attached.fresh, *batch)
    attached.behind = False


async def _tell(engine: EngineActor, context: EngineContext, batch: Items) -> None:
    if engine.has("ingest_batch"):
        await engine.call(context, "ingest_batch", batch, returns=int)
        return
    for item in batch:
        await engine.call(context, "ingest", item, returns=bool)


async def _bootstrap(
    engine: EngineActor, attached: Attachment, context: EngineContext, view: Snapshot
) -> None:
    attached.cursor = view.delivered.get(engine.id, "")
    if engine.has("bootstrap"):
        found = await engine.call(context, "bootstrap", returns=Bootstrapped)
        attached.cursor = attached.cursor if found.cursor is None else found.cursor
        if engine.has("maintain"):
            await engine.call(context, "maintain", "bootstrap", returns=Maintained)
    attached.bootstrapped = True


async def _undelivered(
    services: Services, attached: Attachment, context: EngineContext, view: Snapshot
) -> AsyncGenerator[Items, None]:
    """What lies behind the cursor, in batches. Summaries and gaps are no entries of the conversation."""
    stored = tuple(item for item in view.items if item.entry and not isinstance(item.message, Summary))
    at = next((i for i in range(len(stored) - 1, -1, -1) if stored[i].entry == attached.cursor), None)
    whole = len(stored) == len(view.items)  # nothing was covered: the view is all there is
    if at is not None or (not attached.cursor and whole):
        rest = stored[(-1 if at is None else at) + 1 :]
        for start in range(0, len(rest), BATCH):
            yield rest[start : start + BATCH]
        return
    after = attached.cursor
    while True:  # it was told less than the view shows, or of another branch: from the file
        try:
            batch = await context.runtime.history(after, BATCH)
        except LookupError:
            services.log("engine.told_anew", session=view.key, after=after)
            after = ""
            continue
        if not batch:
            return
        yield batch
        after = batch[-1].entry

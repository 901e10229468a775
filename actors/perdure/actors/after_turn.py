"""Worker: the engine's hooks behind a turn or a compaction. Its answer lets the session rest."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from functools import partial

from perdure.actors.calling import PluginFailed
from perdure.actors.engines.actor import EngineActor
from perdure.actors.engines.delivering import caught_up
from perdure.actors.engines.lent import context_of
from perdure.actors.engines.rewriting import Rewriter
from perdure.actors.messages import AfterTurn, AfterTurnDone, Snapshot
from perdure.actors.services import Services
from perdure.contracts import Maintained, Moment, TurnReport
from perdure.edges.session.facts import Delivered
from perdure.errors import PerdureError

WELL = ("stop", "length")  # how a turn ends after which an engine may tidy up


async def after_turn(services: Services, key: str, mail: AfterTurn) -> AfterTurnDone:
    """Deliver what is left of the turn, then the hooks; what they raise is told and harms nobody."""
    view = mail.snapshot
    engine = services.engines.of(view.environment.engine)
    if engine.info.passive or engine.resting(key):
        return AfterTurnDone(mail.turn)
    told = True
    for step in _steps(services, engine, mail):
        try:
            await step()
        except PluginFailed:  # it was told; the others still have their turn
            told = False
        except PerdureError as error:  # the session is gone, or its disk is full
            services.log.error("engine.hooks_cut", session=key, engine=engine.id, error=str(error))
            return AfterTurnDone(mail.turn)
    attached = engine.attachment(key, view.session_id)
    if attached.behind:
        services.log.warning(
            "engine.behind", session=key, engine=engine.id, cursor=attached.cursor, leaf=view.leaf
        )
    last = attached.cursor
    return AfterTurnDone(mail.turn, Delivered(engine.id, last) if told and last else None)


def _steps(
    services: Services, engine: EngineActor, mail: AfterTurn
) -> Iterator[Callable[[], Awaitable[object]]]:
    view = mail.snapshot
    yield lambda: caught_up(services, view)
    if mail.stop and engine.has("after_turn"):
        yield lambda: _report(services, mail)
    for moment in moments(mail) if engine.has("maintain") else ():
        context = context_of(services, view, rewrite=Rewriter(services, view))
        yield partial(engine.call, context, "maintain", moment, returns=Maintained)


def moments(mail: AfterTurn) -> tuple[Moment, ...]:
    """After each compaction, and each turn that ended well."""
    return (*(("compaction",) if mail.compacted else ()), *(("turn",) if mail.stop in WELL else ()))


async def _report(services: Services, mail: AfterTurn) -> None:
    view: Snapshot = mail.snapshot
    engine = services.engines.of(view.environment.engine)
    attached = engine.attachment(view.key, view.session_id)
    context = context_of(services, view)
    report = TurnReport(attached.fresh, view.items, mail.stop, context.runtime.estimate(view.items))
    timing = services.timing  # who owns compaction may summarise here, while nobody waits
    seconds = timing.engine + (timing.summary if engine.info.owns_compaction else 0.0)
    await engine.call(context, "after_turn", report, seconds=seconds)
    attached.fresh = ()

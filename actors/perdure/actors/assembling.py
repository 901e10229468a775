"""What a session's engine makes of a view, with a deadline; where it fails, the view itself, told loudly."""

from __future__ import annotations

from perdure.actors.engines.lent import context_of
from perdure.actors.messages import Snapshot
from perdure.actors.services import Services
from perdure.contracts import Assembled
from perdure.events import Notice
from perdure.kernel.outcome import Failed, trace_of
from perdure.records import Items


async def assemble(services: Services, view: Snapshot, items: Items) -> Assembled:
    """The engine's answer for `items`."""
    key = view.key
    engine = services.resolver.engine(key)
    context = context_of(services, view)
    try:
        with services.clock.fail_after(services.timing.engine):
            found = await engine.assemble(context, items)
        if not isinstance(found, Assembled):
            raise TypeError(f"assemble returned {type(found).__name__}, not Assembled")
        return found
    except Exception as error:
        name = engine.info.id
        services.log.error("engine.failed", session=key, engine=name, trace=trace_of(Failed(error)))
        services.events.publish(Notice(key, "engine", f"{name} failed, legacy answers: {error}"))
        return Assembled(items)

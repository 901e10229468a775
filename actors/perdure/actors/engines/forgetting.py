"""Tells engines which sessions were deleted for good, now or while they were not loaded."""

from __future__ import annotations

from functools import partial

from perdure.actors.calling import PluginFailed, call
from perdure.actors.engines.actor import EngineActor
from perdure.actors.services import Services
from perdure.edges import forgetting


async def forget(services: Services, engine: EngineActor) -> None:
    """Let an engine forget what it has yet to; what fails stays to be done at the next start."""
    state = services.state
    for key, id in await services.io.run(partial(forgetting.due, state, engine.id)):
        engine.left(key)
        if engine.has("forget_session"):
            try:
                method = engine.engine.forget_session  # type: ignore[attr-defined]
                await call(services, key, engine.id, method, key, id, seconds=services.timing.engine)
            except PluginFailed as error:
                services.log.error(
                    "engine.not_forgotten", session=key, engine=engine.id, error=error.why, trace=error.trace
                )
                continue
        await services.io.run(partial(forgetting.forgotten, state, engine.id, id))


async def keeps(services: Services, plugin: str) -> None:
    """A memory's: what an agent knows doesn't go with the session that it was told in."""
    for _, id in await services.io.run(partial(forgetting.due, services.state, plugin)):
        await services.io.run(partial(forgetting.forgotten, services.state, plugin, id))

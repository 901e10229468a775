"""The engine's part in a child's life: asked before it begins, told after it has ended, with deadlines."""

from __future__ import annotations

from pathlib import Path

from perdure.actors.calling import PluginFailed, call
from perdure.actors.engines.actor import EngineActor
from perdure.actors.engines.lent import SessionLent, context_of
from perdure.actors.messages import Snapshot
from perdure.actors.services import Services
from perdure.actors.subagents.spawning import Refused
from perdure.context.tokens.estimator import Estimator
from perdure.contracts import EngineContext, Rollback, Spawn, SpawnEnd
from perdure.edges.session.kin import ChildGrant
from perdure.errors import PerdureError


async def prepare(services: Services, view: Snapshot, grant: ChildGrant, task: str) -> Rollback | None:
    """Before the child begins. Raises `Refused` where the engine does not let it."""
    engine = services.engines.of(view.environment.engine)
    if not _asked(engine, "prepare_subagent_spawn", view.key):
        return None
    ttl = max(0, grant.deadline - grant.began)
    spawn = Spawn(view.key, grant.child, view.session_id, task, grant.mode, ttl)
    try:
        rollback = await engine.call(context_of(services, view), "prepare_subagent_spawn", spawn)
    except PluginFailed as error:
        raise Refused("engine", f"context engine subagent preparation failed: {error.why}") from None
    return rollback if callable(rollback) else None


async def roll_back(services: Services, view: Snapshot, rollback: Rollback | None) -> None:
    """A later step failed: what was prepared is taken back, as far as the engine can."""
    if rollback is None:
        return
    engine, seconds = view.environment.engine, services.timing.engine
    try:
        await call(services, view.key, engine, rollback, seconds=seconds)
    except PluginFailed as error:
        services.log.error(
            "engine.failed", session=view.key, engine=engine, method="rollback", error=error.why
        )


async def ended(services: Services, id: str, grant: ChildGrant, file: Path, end: SpawnEnd) -> None:
    """A child is over, in its parent's eyes; what the engine `id` raises was told, and harms nobody."""
    try:
        engine = services.engines.of(id)
        if _asked(engine, "on_subagent_ended", grant.parent):
            lent = SessionLent(services.lent(id), services, str(file), Estimator(), None)
            context = EngineContext(grant.parent_session, grant.parent, str(file), 0, lent)
            await engine.call(context, "on_subagent_ended", grant.child, end)
    except (PluginFailed, PerdureError):
        return


def _asked(engine: EngineActor, method: str, key: str) -> bool:
    return engine.has(method) and not engine.passes_through and not engine.resting(key)

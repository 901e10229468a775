"""Worker: hands committed entries to the context engine, in order, one session at a time."""

from __future__ import annotations

from perdure.actors.engines.lent import SessionLent
from perdure.actors.messages import Ingest
from perdure.actors.services import Services
from perdure.context.tokens.estimator import Estimator
from perdure.contracts import EngineContext


async def ingest(services: Services, key: str, mail: Ingest) -> None:
    """Call the engine's `ingest` for each item; an engine that fails is the supervisor's business."""
    engine = services.resolver.engine(key)
    lent = SessionLent(services.lent(engine.info.id), services, mail.file, Estimator())
    context = EngineContext(mail.session_id, key, mail.file, 0, lent)
    with services.clock.fail_after(services.timing.engine):
        for item in mail.items:
            await engine.ingest(context, item)

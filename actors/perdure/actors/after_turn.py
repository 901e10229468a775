"""Worker: the engine's hooks behind a turn. Its answer lets the session look at its size and rest."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from perdure.actors.engines.lent import context_of
from perdure.actors.messages import AfterTurn, AfterTurnDone
from perdure.actors.services import Services

HOOKS = ("after_turn", "maintain")


async def after_turn(services: Services, key: str, mail: AfterTurn) -> AfterTurnDone:
    """Run the optional hooks; what they raise is logged and harms nobody."""
    view = mail.snapshot
    engine = services.resolver.engine(key)
    context = context_of(services, view)
    for name in HOOKS:
        hook: Callable[..., Awaitable[object]] | None = getattr(engine, name, None)
        if hook is None:
            continue
        try:
            with services.clock.fail_after(services.timing.engine):
                await hook(context, view.items)
        except Exception as error:
            services.log.error(
                "engine.failed", session=key, engine=engine.info.id, method=name, error=repr(error)
            )
            break
    return AfterTurnDone(mail.turn)

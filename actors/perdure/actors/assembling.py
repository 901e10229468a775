"""What a session's engine makes of a view, with a deadline; where it fails, the view itself, told loudly.

The safety steps stand around it: what comes in was repaired, what goes out is sealed again. Here it is only
made sure that it is messages, and this session's.
"""

from __future__ import annotations

from functools import partial

from perdure.actors.calling import PluginFailed
from perdure.actors.engines.actor import Attachment, EngineActor
from perdure.actors.engines.delivering import caught_up
from perdure.actors.engines.lent import context_of
from perdure.actors.engines.shadow import compared
from perdure.actors.messages import Snapshot
from perdure.actors.services import Services
from perdure.context.text.secrets import redact
from perdure.contracts import Assembled
from perdure.edges.session.membership import strangers
from perdure.errors import EngineUnavailable
from perdure.records import Item, Items


async def assemble(services: Services, view: Snapshot, items: Items) -> Assembled:
    """The engine's answer for `items`. Raises `EngineUnavailable`: it has none, and nothing may stand in."""
    engine = services.engines.of(view.environment.engine)
    if engine.passes_through:
        found = Assembled(items)
    elif engine.resting(view.key):
        found = _instead(services, engine, items, "it is quarantined")
    else:
        try:
            found = await _asked(services, engine, view, items)
        except PluginFailed as error:
            found = _instead(services, engine, items, str(error))
    compared(services, view, items, found)
    return found


def _instead(services: Services, engine: EngineActor, items: Items, why: str) -> Assembled:
    if services.engines.strict:
        raise EngineUnavailable(
            f"the context engine {engine.id} gives no context ({redact(why)}), and [plugins] strict lets no "
            "other answer: choose one with /engine, or send it again later"
        )
    return Assembled(items)


async def _asked(services: Services, engine: EngineActor, view: Snapshot, items: Items) -> Assembled:
    if not engine.info.passive:
        await caught_up(services, view)
    found: Assembled = await engine.call(context_of(services, view), "assemble", items, returns=Assembled)
    if found.messages is not items:
        try:
            attached = engine.attachment(view.key, view.session_id)
            await _checked(services, attached, view, found)
        except PluginFailed as error:
            engine.failed(view.key, error)
            raise
    return found


async def _checked(services: Services, attached: Attachment, view: Snapshot, found: Assembled) -> None:
    """Messages, each of this session or made up (an entry that is empty)."""
    messages = found.messages
    if not isinstance(messages, tuple) or not all(isinstance(item, Item) for item in messages):
        raise PluginFailed("engine", "assemble", "answered messages that are no tuple of items")
    mine = {item.entry for item in view.items}
    unknown = {item.entry for item in messages} - mine - attached.known - {""}
    if not unknown:
        return
    foreign = await services.io.run(partial(strangers, view.file, unknown))
    if foreign:
        named = ", ".join(sorted(foreign)[:3])
        raise PluginFailed("engine", "assemble", f"answered entries that are not of this session: {named}")
    if len(attached.known) > KNOWN:
        attached.known.clear()
    attached.known |= unknown


KNOWN = 4_096  # entries of a session's past that were looked up

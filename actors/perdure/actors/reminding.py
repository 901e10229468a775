"""Proactive recall: what the memory finds for the newest user message, decided once for each.

Later steps of the turn, and its restarts after a compaction, keep the same bytes. Where a request has no
room, what was recalled is the first to go.
"""

from __future__ import annotations

from msgspec.structs import replace

from perdure.actors.engines.lent import newest_prompt
from perdure.actors.messages import Snapshot
from perdure.actors.services import Services
from perdure.actors.tally import Tally
from perdure.context.prompt.recalled import fitting, room_for, with_recalled
from perdure.records import User


async def reminded(services: Services, tally: Tally, view: Snapshot) -> Snapshot:
    """The view under an environment that carries what was recalled."""
    slot, env = services.memories, view.environment
    if not slot.reminds(view.key):
        return view
    asked = next((item.entry for item in reversed(view.items) if isinstance(item.message, User)), "")
    if asked and asked != tally.recalled_for:
        room = room_for(env, slot.told.recall_chars)
        found = await slot.recall(view.key, newest_prompt(view.items), room)
        tally.recalled_for, tally.recalled = asked, fitting(env, found, room)
        if tally.recalled:
            sources = [each.source for each in tally.recalled]
            services.log("memory.recalled", session=view.key, entry=asked, sources=sources)
    return replace(view, environment=with_recalled(env, tally.recalled)) if tally.recalled else view


def unburdened(tally: Tally) -> bool:
    """Give up what was recalled for this message; whether there was any."""
    had, tally.recalled = bool(tally.recalled), ()
    return had

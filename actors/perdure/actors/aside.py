"""A turn beside the conversation: same model, tools, guard and retries, and nothing of it is written down.

What it says is for whoever began it to keep or to drop.
"""

from __future__ import annotations

from msgspec.structs import replace

from perdure.actors.messages import Snapshot
from perdure.actors.pictures import Pictures
from perdure.actors.services import Services
from perdure.actors.tally import Tally
from perdure.actors.turn import Turn
from perdure.actors.view import unseen
from perdure.context.pipeline import Scratch
from perdure.context.tokens.estimator import Measure
from perdure.contracts import Assembled
from perdure.kernel.mailbox import Ref
from perdure.records import Assistant, Decision, Item, Items, Message


class Aside(Turn):
    """Runs on a view of its own, which grows in memory. No engine is asked, nobody hears its words come."""

    def __init__(self, view: Snapshot, session: Ref | None, services: Services) -> None:
        super().__init__(
            view.key, 0, session, services, Tally(), Scratch(), None, Pictures(services.blobs)
        )  # no watch: its prefix is no cached one
        self.view = view
        self.said: Assistant | None = None

    async def _next_step(self) -> Snapshot:
        return self.view

    async def _assemble(self, view: Snapshot, items: Items) -> Assembled:
        return Assembled(items)

    async def append(
        self,
        message: Message,
        decisions: tuple[Decision, ...] = (),
        *,
        request: Measure | None = None,
        fixed_tokens: int = 0,
        evidence: tuple[str, ...] = (),
        sent: str = "",
    ) -> Item:
        item = Item(f"aside{len(self.view.items):x}", message)
        items = (*self.view.items, item)
        made = {**self.view.decisions, **{decision.key: decision for decision in decisions}}
        self.view = replace(self.view, items=items, decisions=made, leaf=item.entry, unseen=unseen(items))
        if isinstance(message, Assistant):
            self.said = message
        return item

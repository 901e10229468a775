"""A second engine that assembles beside the first: what it would have sent is compared, and never sent.

On a share of the requests, chosen by session and request so that a replay chooses the same; in a job of its
own that holds nothing up. What differs goes to the log as `engine.shadow`, and to `status` as sums.
"""

from __future__ import annotations

from dataclasses import dataclass
from zlib import crc32

from msgspec.structs import replace

from perdure.actors.calling import PluginFailed
from perdure.actors.engines.actor import EngineActor
from perdure.actors.engines.delivering import deliver
from perdure.actors.engines.lent import context_of
from perdure.actors.messages import Snapshot
from perdure.actors.services import Services
from perdure.contracts import Assembled
from perdure.kernel.errors import Closed
from perdure.records import Items

AT_ONCE = 4  # shadows under way; more are left out and counted


@dataclass(slots=True)
class Shadow:
    """`engine` assembles beside the chosen one, on `share` of the requests."""

    engine: EngineActor
    share: float
    compared: int = 0
    failed: int = 0
    left_out: int = 0
    tokens: int = 0
    tokens_here: int = 0
    under_way: int = 0

    def takes(self, view: Snapshot) -> bool:
        """Whether this request is one of the share."""
        return crc32(f"{view.session_id}/{view.leaf}".encode()) / 2**32 < self.share

    def line(self) -> dict[str, object]:
        """For `status`."""
        return {
            "id": self.engine.id,
            "share": self.share,
            "compared": self.compared,
            "failed": self.failed,
            "left_out": self.left_out,
            "tokens": self.tokens,
            "tokens_here": self.tokens_here,
        }


def compared(services: Services, view: Snapshot, items: Items, sent: Assembled) -> None:
    """Begin a comparison, where there is a shadow and this request is one of its share."""
    shadow = services.engines.shadow
    if shadow is None or shadow.engine.id == view.environment.engine or not shadow.takes(view):
        return
    if shadow.under_way >= AT_ONCE or shadow.engine.resting(view.key):
        shadow.left_out += 1
        return

    async def run() -> None:
        try:
            await _compare(services, shadow, view, items, sent)
        finally:
            shadow.under_way -= 1

    shadow.under_way += 1
    try:
        services.kernel.start(f"shadow {view.key}", run)
    except Closed:
        shadow.under_way -= 1


async def _compare(services: Services, shadow: Shadow, view: Snapshot, items: Items, sent: Assembled) -> None:
    own = replace(view, environment=replace(view.environment, engine=shadow.engine.id))
    try:
        if not shadow.engine.info.passive:
            await deliver(services, own)
        context = context_of(services, own)
        found: Assembled = await shadow.engine.call(context, "assemble", items, returns=Assembled)
    except PluginFailed:
        shadow.failed += 1
        return
    estimate = context.runtime.estimate
    here, there = {i.entry for i in sent.messages if i.entry}, {i.entry for i in found.messages if i.entry}
    tokens, tokens_here = estimate(found.messages), estimate(sent.messages)
    shadow.compared += 1
    shadow.tokens += tokens
    shadow.tokens_here += tokens_here
    services.log(
        "engine.shadow",
        session=view.key,
        engine=shadow.engine.id,
        tokens=tokens,
        tokens_here=tokens_here,
        only_there=len(there - here),
        only_here=len(here - there),
    )

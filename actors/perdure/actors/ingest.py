"""Worker: tells the context engine what was committed, in order, one session at a time."""

from __future__ import annotations

from perdure.actors.calling import PluginFailed
from perdure.actors.engines.delivering import deliver
from perdure.actors.messages import Ingest
from perdure.actors.services import Services


async def ingest(services: Services, key: str, mail: Ingest) -> PluginFailed | None:
    """What went wrong, if anything did: it was told already, and comes again with the next delivery."""
    try:
        await deliver(services, mail.snapshot)
    except PluginFailed as error:
        return error
    return None

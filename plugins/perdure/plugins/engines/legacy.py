"""The engine of the core: passes everything through and delegates compaction. Changes no behaviour."""

from __future__ import annotations

from perdure.contracts import Assembled, Delegate, EngineCompaction, EngineContext, EngineInfo
from perdure.records import Item, Items


class LegacyEngine:
    """The session file persists, the pipeline assembles, the runtime compacts: nothing is left to do."""

    info = EngineInfo("legacy", "Legacy context engine", passive=True)

    async def ingest(self, context: EngineContext, item: Item) -> bool:
        """Nothing to store: the log is the truth."""
        return False

    async def assemble(self, context: EngineContext, messages: Items) -> Assembled:
        """The same messages."""
        return Assembled(messages)

    async def compact(
        self, context: EngineContext, delegate: Delegate, *, force: bool, instructions: str
    ) -> EngineCompaction:
        """What the runtime would do."""
        return await delegate()

"""Reads back a session's own past for the tool `recall`: entries, evidence, what a segment holds.

Nothing of another session can be reached: an entry must stand in this session's file or segments, and
a hash resolves only where this session's log refers to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from perdure.actors.services import Services
from perdure.edges.session.history import History
from perdure.errors import PerdureError, UsageError

HASH_LENGTH = 64


@dataclass(frozen=True, slots=True)
class SessionRecall:
    """The past of the session whose file is `file`."""

    services: Services
    file: Path

    async def recall(self, ref: str, start: int, length: int) -> str:
        """Part of an entry's text or of an evidence. Raises `PerdureError` where nothing has that name."""
        if _is_hash(ref):
            text = await self._evidence(ref)
        else:
            text = await self.services.io.run(lambda: History(self.file).text(ref))
        return text[start : start + length]

    async def search(self, text: str, limit: int) -> str:
        """Entries that mention `text`, newest first, a line each."""
        return await self.services.io.run(lambda: History(self.file).search(text, limit))

    async def _evidence(self, digest: str) -> str:
        if not await self.services.io.run(lambda: History(self.file).keeps(digest)):
            raise UsageError(f"no output with sha256 {digest[:12]}… belongs to this session")
        try:
            data = await self.services.blobs.get(digest)
        except (OSError, KeyError) as error:
            raise PerdureError(f"the output with sha256 {digest[:12]}… is gone: {error}") from None
        return data.decode("utf-8", "replace")


def _is_hash(ref: str) -> bool:
    return len(ref) == HASH_LENGTH and all(c in "0123456789abcdef" for c in ref.lower())

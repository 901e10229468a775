"""Reads back a session's own past for the tool `recall`: entries, evidence, what a segment holds.

Nothing of another session can be reached: an entry must stand in this session's file or segments, and
a hash resolves only where this session's log refers to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from perdure.actors.pictures import Pictures, image_of
from perdure.actors.services import Services
from perdure.context.pictures import images
from perdure.context.pictures.pixels import facts
from perdure.edges.session.history import History
from perdure.errors import PerdureError, UsageError
from perdure.records import Image, Item, User

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

    async def images(self, ref: str) -> tuple[Image, ...]:
        """The pictures of an entry, or the one that a hash names; kept bytes are read."""
        if _is_hash(ref):
            raw = await self._bytes(ref)
            mime = facts(raw).mime
            return (image_of(raw, mime),) if mime else ()
        found = await self.services.io.run(lambda: History(self.file).images(ref))
        (item,) = await Pictures(self.services.blobs).fill((Item(ref, User(found)),))
        return tuple(block for block in item.message.content if isinstance(block, Image))  # type: ignore[union-attr]

    async def search(self, text: str, limit: int) -> str:
        """Entries that mention `text`, newest first, a line each."""
        return await self.services.io.run(lambda: History(self.file).search(text, limit))

    async def _evidence(self, digest: str) -> str:
        raw = await self._bytes(digest)
        mime = facts(raw).mime
        return images.described(image_of(raw, mime)) if mime else raw.decode("utf-8", "replace")

    async def _bytes(self, digest: str) -> bytes:
        if not await self.services.io.run(lambda: History(self.file).keeps(digest)):
            raise UsageError(f"no output with sha256 {digest[:12]}… belongs to this session")
        try:
            return await self.services.blobs.get(digest)
        except (OSError, KeyError) as error:
            raise PerdureError(f"the output with sha256 {digest[:12]}… is gone: {error}") from None


def _is_hash(ref: str) -> bool:
    return len(ref) == HASH_LENGTH and all(c in "0123456789abcdef" for c in ref.lower())

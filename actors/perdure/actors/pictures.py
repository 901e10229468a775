"""Pictures on their way into a session file and out of it again.

In: each is brought into what every provider takes, once, by the host's image library; the original is
kept as evidence. A tool's pictures over the entry's limit stand in the entry by their hash alone.
Out: the bytes behind a hash are read before a request is made, and kept while the session is awake.
"""

from __future__ import annotations

import binascii
from collections.abc import Iterable

from msgspec.structs import replace

from perdure.actors.services import Services
from perdure.context.changed import common
from perdure.context.pictures import images
from perdure.context.pictures.kept import base64_of, filled, lacking
from perdure.contracts import Assembled, Blobs
from perdure.edges.images import Fitted
from perdure.errors import PerdureError, UnreadableFile
from perdure.records import Block, Image, Item, Items, Kept, Message, Text

SCALED = "[the image above was scaled: {was}; the original is evidence sha256:{digest}]"


async def admitted(services: Services, content: Iterable[Block]) -> tuple[tuple[Block, ...], tuple[str, ...]]:
    """Content as it may be written, and the hashes of the originals that were changed.

    Without an image library it is written as it is, and what can't be sent is told by every request.
    Raises `StorageFailed` where an original can't be kept.
    """
    out: list[Block] = []
    originals: list[str] = []
    for block in content:
        fitted = await _fitted(services, block) if isinstance(block, Image) else None
        if not isinstance(block, Image) or fitted is None:
            out.append(block)
            continue
        original, made = fitted
        digest = await services.blobs.put(original)
        originals.append(digest)
        if isinstance(made, UnreadableFile):
            out.append(images.notice(str(made), block, f"sha256:{digest}"))
            continue
        was = images.described(block)[len("[image: ") : -1]
        out += (image_of(made.data, made.mime), Text(SCALED.format(was=was, digest=digest)))
    return tuple(out), tuple(originals)


async def _fitted(services: Services, image: Image) -> tuple[bytes, Fitted | UnreadableFile] | None:
    """The picture's bytes and what has become of them; None where it stays as it is."""
    raw = _bytes_of(image)
    if services.scaler is None or not raw:
        return None
    try:
        made = await services.io.run(services.scaler, raw)
    except UnreadableFile as error:
        return raw, error
    return (raw, made) if made.changed else None


async def put_aside(
    services: Services, content: Iterable[Block], room: int
) -> tuple[tuple[Block, ...], tuple[str, ...]]:
    """Content with at most `room` characters of pictures; the bytes of all further ones are kept by hash."""
    out: list[Block] = []
    digests: list[str] = []
    for block in content:
        if isinstance(block, Image) and block.kept is None:
            room -= len(block.data)
            raw = _bytes_of(block) if room < 0 else b""
            if raw:
                digest = await services.blobs.put(raw)
                digests.append(digest)
                found = images.known(block)
                kept = Kept(digest, found.width, found.height, len(raw))
                block = Image("", found.mime or block.mime, kept)
        out.append(block)
    return tuple(out), tuple(digests)


def image_of(data: bytes, mime: str) -> Image:
    """Bytes as an image record."""
    return Image(base64_of(data), mime)


def _bytes_of(image: Image) -> bytes:
    try:
        return binascii.a2b_base64(image.data, strict_mode=True)
    except (binascii.Error, ValueError):
        return b""


class Pictures:
    """The kept pictures of one awake session, read once. `held`: characters of base64 in memory for them."""

    __slots__ = ("_blobs", "_filled", "_known", "_source", "held")

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs
        self._source: Items = ()
        self._filled: Items = ()
        self._known: dict[str, tuple[Message, Item]] = {}
        self.held = 0

    async def fill(self, items: Items) -> Items:
        """The items with the bytes of every kept picture; those that are gone stay without.

        Costs what has changed since the last time; the same objects come back for the same items.
        """
        same = common(self._source, items)
        tail = await self.again(items[same:])
        self._filled = (*self._filled[:same], *tail) if self._known else items
        self._source = items
        return self._filled

    async def whole(self, made: Assembled, given: Items) -> Assembled:
        """An engine's answer with the same done to what it doesn't merely pass on of `given`."""
        if made.messages is given:
            return made
        return replace(made, messages=await self.again(made.messages))

    async def again(self, items: Items) -> Items:
        """The items with their bytes, whatever was filled before."""
        whole = list(items)
        for n in [n for n, item in enumerate(items) if lacking(item.message)]:
            whole[n] = await self._item(items[n])
        return tuple(whole)

    async def _item(self, item: Item) -> Item:
        known = self._known.get(item.entry)
        if known is not None and known[0] == item.message:
            return known[1]
        found = {}
        for digest in lacking(item.message):
            try:
                found[digest] = await self._blobs.get(digest)
            except PerdureError:
                continue  # every request says so where the picture stood
        whole = filled(item, found)
        self._known[item.entry] = (item.message, whole)
        self.held += sum(map(len, found.values())) * 4 // 3
        return whole

"""Images whose bytes stand beside the session: which bytes an item lacks, and the item with them."""

from __future__ import annotations

import binascii
from collections.abc import Mapping

from msgspec.structs import replace

from perdure.records import Block, Custom, Image, Item, Message, ToolResult, User


def lacking(message: Message) -> tuple[str, ...]:
    """The digests of the bytes that a message lacks."""
    if type(message) is User or type(message) is ToolResult or type(message) is Custom:
        return tuple(digest for block in message.content if (digest := _digest(block)))
    return ()


def filled(item: Item, found: Mapping[str, bytes]) -> Item:
    """The item with the bytes that were found, by digest; without one, an image stays as it is."""
    message = item.message
    assert type(message) is User or type(message) is ToolResult or type(message) is Custom
    content = tuple(_filled(block, found) for block in message.content)
    return Item(item.entry, replace(message, content=content))


def _filled(block: Block, found: Mapping[str, bytes]) -> Block:
    raw = found.get(_digest(block))
    return block if raw is None else replace(block, data=base64_of(raw))


def _digest(block: Block) -> str:
    return block.kept.digest if type(block) is Image and block.kept is not None and not block.data else ""


def base64_of(raw: bytes) -> str:
    """Bytes as an image's data."""
    return binascii.b2a_base64(raw, newline=False).decode("ascii")

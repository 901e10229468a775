"""What goes to the API and comes from it, as a chat has it."""

from __future__ import annotations

import secrets
from typing import Any

import msgspec

from perdure.events import Overflow, Reply
from perdure.records import Block, Image, Text, Usage


class Entry(msgspec.Struct):
    """A message of the session's file, in an event."""

    entry: str
    message: msgspec.Raw = msgspec.Raw(b"null")


def mid() -> str:
    """The id of a new message: sent twice, it is taken once."""
    return f"cli-{secrets.token_hex(12)}"


def body(text: str, attached: tuple[Block, ...]) -> dict[str, Any]:
    """A message to send."""
    return {"text": text, "attachments": [_attachment(block) for block in attached], "sender": "cli"}


def _attachment(block: Block) -> dict[str, Any]:
    if isinstance(block, Image):
        return {"mime": block.mime, "data": block.data}
    assert isinstance(block, Text)
    return {"text": block.text}


def reply(found: dict[str, Any]) -> Reply:
    """The reply in an answer."""
    tokens, overflow = found["tokens"], found["overflow"]
    told = None
    if overflow is not None:
        owners = tuple(overflow["owners"].items())
        told = Overflow(overflow["cause"], overflow["tokens"], overflow["limit"], owners)
    return Reply(
        found["key"], found["reply"], found["stop"], found["steps"], Usage(**tokens),
        tuple(found["entries"]), tuple(found["errors"]), told,
    )  # fmt: skip

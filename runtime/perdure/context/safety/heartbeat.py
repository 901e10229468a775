"""Heartbeats that said nothing: the prompt and its acknowledgement are not part of the conversation."""

from __future__ import annotations

import re

from perdure.context.changed import Changed
from perdure.records import Assistant, Item, Items, LedgerLine, Text, User

TOKEN = "HEARTBEAT_OK"
QUIET = "heartbeat: nothing was said"
ACK_CHARS = 300  # of a reply that holds the token, so much beside it still says nothing

_ASKS = re.compile(rf"\b(?:reply|answer|respond)\b[^.\n]{{0,60}}\b{TOKEN}\b", re.IGNORECASE)
_ANY_CASE = re.compile(r"heartbeat[_ -]?ok", re.IGNORECASE)
_EDGE = re.compile(
    r"^\s*[*_~`]*heartbeat[_ -]?ok[*_~`]*[.!:]?|[*_~`]*heartbeat[_ -]?ok[*_~`]*[.!]?\s*$", re.IGNORECASE
)
_MARKUP = re.compile(r"<[^<>]{0,200}>|&nbsp;|[*_~`]")
_BARE = TOKEN.replace("_", "")
_TAIL = re.compile(rf"{_BARE}\W{{0,4}}$")


def drop_silent_heartbeats(items: Items, prompt: str = "", *, ack_chars: int = ACK_CHARS) -> Changed:
    """The items without neighbouring pairs of a heartbeat prompt and an acknowledgement.

    A prompt begins with `prompt` (the configured text) or tells the model to reply HEARTBEAT_OK.
    """
    acks = [n for n, item in enumerate(items) if n and is_ack(item, ack_chars)]
    gone = {n for ack in acks if is_prompt(items[ack - 1], prompt) for n in (ack - 1, ack)}
    if not gone:
        return Changed(items)
    lines = tuple(LedgerLine(items[n].entry, "left_out", QUIET) for n in sorted(gone))
    return Changed(tuple(item for n, item in enumerate(items) if n not in gone), lines)


def is_prompt(item: Item, prompt: str = "") -> bool:
    """Whether this is a user message that a heartbeat timer sent."""
    message = item.message
    if type(message) is not User:
        return False
    text = _text(message.content)
    if text is None:
        return False
    wanted = prompt.strip()
    return bool(wanted and text.strip().startswith(wanted)) or _ASKS.search(text) is not None


def is_ack(item: Item, ack_chars: int = ACK_CHARS) -> bool:
    """Whether this answer is the token alone, or the token with a few words beside it."""
    message = item.message
    if type(message) is not Assistant or message.stop in ("error", "aborted"):
        return False
    text = _text(message.content)
    return text is not None and _acknowledges(text, ack_chars)


def _acknowledges(text: str, ack_chars: int) -> bool:
    if TOKEN not in text:
        return False
    bare = _MARKUP.sub("", text).strip()  # takes the token's own underscore along
    rest = bare.removeprefix(_BARE)
    rest = _TAIL.sub("", rest) if rest == bare else rest
    return rest != bare and len(rest.strip()) <= ack_chars


def says_nothing(text: str, ack_chars: int = ACK_CHARS) -> bool:
    """Whether the answer to a heartbeat of ours is silence, however the token is spelled."""
    return not text.strip() or _acknowledges(_ANY_CASE.sub(TOKEN, text), ack_chars)


def spoken(text: str) -> str:
    """An answer that says something, without the token at its edges."""
    return _EDGE.sub("", text).strip()


def _text(content: tuple[object, ...]) -> str | None:
    """The text of a message that holds nothing else."""
    if not content or any(type(block) is not Text for block in content):
        return None
    return "\n".join(block.text for block in content if type(block) is Text)

"""What Google's models take back of their own answers: calls and texts with their thought signatures.

Thoughts themselves are summaries for people and are not sent. A signature belongs to the model that made
it and is base64; any other is taken off, or the whole request would be refused. A result names its
call's tool, because calls and results are matched by name and place.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable

from msgspec.structs import replace

from perdure.context.changed import Changed
from perdure.records import Assistant, Block, Item, Items, LedgerLine, Text, Thinking, ToolCall, ToolResult

THOUGHTS = "gemini: thoughts are not sent back"
SIGNATURES = "gemini: signature of another model, or no base64"
NAMED = "gemini: result named after its call"


def fit(items: Items, own: Callable[[Assistant], bool]) -> Changed:
    """The items, paired already, as Google takes them; `own` tells who made an answer.

    Running it on its own outcome changes nothing.
    """
    out: list[Item] = []
    lines: list[LedgerLine] = []
    names: dict[str, str] = {}
    for item in items:
        message = item.message
        if type(message) is Assistant:
            names = {block.id: block.name for block in message.content if type(block) is ToolCall}
            kept, line = _answer(item, message, own(message))
            if line is not None:
                lines.append(line)
            if kept is None:
                continue
            item = kept
        elif type(message) is ToolResult and names.get(message.call_id, message.tool) != message.tool:
            item = Item(item.entry, replace(message, tool=names[message.call_id]))
            lines.append(LedgerLine(item.entry, "in", NAMED))
        out.append(item)
    return Changed(tuple(out), tuple(lines)) if lines else Changed(items)


def _answer(item: Item, message: Assistant, own: bool) -> tuple[Item | None, LedgerLine | None]:
    spoken = tuple(block for block in message.content if type(block) is not Thinking)
    content = tuple(_signed(block, own) for block in spoken)
    if content == message.content:
        return item, None
    rule = THOUGHTS if len(spoken) < len(message.content) else SIGNATURES
    if not content:
        return None, LedgerLine(item.entry, "left_out", rule)
    return Item(item.entry, replace(message, content=content)), LedgerLine(item.entry, "in", rule)


def _signed(block: Block, own: bool) -> Block:
    if type(block) not in (Text, ToolCall) or block.signature is None:  # type: ignore[union-attr]
        return block
    return block if own and is_base64(block.signature) else replace(block, signature=None)  # type: ignore[union-attr]


def is_base64(text: str | None) -> bool:
    """Whether a text is base64 or its form for addresses, padded or not, of at least a byte."""
    if not text or not text.isascii():
        return False
    bare = text.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        raw = base64.b64decode(bare + "=" * (-len(bare) % 4), validate=True)
    except (binascii.Error, ValueError):
        return False
    return base64.b64encode(raw).decode().rstrip("=") == bare

"""Reasoning that APIs of the OpenAI family gave, and what of it may be sent back to them.

Responses: a thinking block's signature is the JSON of the reasoning item it came as. The item is only
worth sending whole: with its encrypted content (nothing is stored at the provider), to the model that
made it, once, and followed by what it led to; else the API refuses the request. A call's item id, the
part of `call_…|fc_…` behind the bar, may be sent only behind the reasoning it belongs to.
Chat Completions: a signature names the field the reasoning was streamed in; servers that want it back
in an open tool loop (`TranscriptPolicy.reasoning_field`) get it there.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

import msgspec
from msgspec.structs import replace

from perdure.context.changed import Changed
from perdure.records import Assistant, Block, Item, Items, LedgerLine, Text, Thinking, ToolCall, ToolResult

RESPONSES = frozenset({"openai-responses", "openai-codex-responses", "azure-openai-responses"})
FIELDS = ("reasoning_content", "reasoning", "reasoning_text")

ALONE = "reasoning: nothing that it led to follows it"
UNPAIRED = "reasoning: call without the reasoning it came from; only its call id is sent"
REPEATED = "reasoning: sent before under the same id"


def reasoning_item(block: Block) -> dict[str, Any] | None:
    """The reasoning item that a thinking block's signature holds; None where it holds none."""
    if type(block) is not Thinking or not block.signature or "{" not in block.signature:
        return None
    try:
        found = msgspec.json.decode(block.signature.strip())
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return None
    if type(found) is not dict:
        return None
    ident, kind = found.get("id"), found.get("type")
    if type(ident) is not str or not ident.startswith("rs_") or type(kind) is not str:
        return None
    return found if kind == "reasoning" or kind.startswith("reasoning.") else None


def replayable(block: Thinking) -> bool:
    """Whether the Responses API takes this block back where nothing is stored."""
    found = reasoning_item(block)
    if found is None or "\x00" in (block.signature or ""):
        return False
    ident, secret, summary = found["id"], found.get("encrypted_content"), found.get("summary", [])
    return (
        found["type"] == "reasoning"
        and ident.isascii()
        and len(ident) <= 64
        and type(secret) is str
        and bool(secret)
        and type(summary) is list
        and all(_is_summary(part) for part in summary)
    )


def _is_summary(part: Any) -> bool:
    return type(part) is dict and part.get("type") == "summary_text" and type(part.get("text")) is str


def drop_alone(items: Items) -> Changed:
    """Without reasoning items behind which their message holds nothing but thinking."""
    out: list[Item] = []
    lines: list[LedgerLine] = []
    for item in items:
        message = item.message
        content = message.content if type(message) is Assistant else ()
        last = max((n for n, b in enumerate(content) if type(b) is not Thinking), default=-1)
        kept = tuple(b for n, b in enumerate(content) if n < last or reasoning_item(b) is None)
        if type(message) is not Assistant or len(kept) == len(content):
            out.append(item)
            continue
        lines.append(LedgerLine(item.entry, "in" if kept else "left_out", ALONE))
        if kept:
            out.append(Item(item.entry, replace(message, content=kept)))
    return Changed(tuple(out), tuple(lines)) if lines else Changed(items)


def cut_pairs(items: Items) -> Changed:
    """`call_…|fc_…` becomes `call_…` where no reasoning stands before the call in its message, in the
    results that follow as well.
    """
    out: list[Item] = []
    lines: list[LedgerLine] = []
    cut: dict[str, str] = {}
    for item in items:
        message = item.message
        if type(message) is ToolResult:
            found = cut.get(message.call_id)
            out.append(item if found is None else Item(item.entry, replace(message, call_id=found)))
            continue
        cut = {}
        if type(message) is Assistant:
            content = _cut(message.content, cut)
            if cut:
                lines.append(LedgerLine(item.entry, "in", UNPAIRED))
                item = Item(item.entry, replace(message, content=content))
        out.append(item)
    return Changed(tuple(out), tuple(lines)) if lines else Changed(items)


def _cut(content: tuple[Block, ...], cut: dict[str, str]) -> tuple[Block, ...]:
    reasoned = False
    out: list[Block] = []
    for block in content:
        reasoned = reasoned or reasoning_item(block) is not None
        if type(block) is ToolCall and not reasoned:
            call, _, own = block.id.partition("|")
            if call and own.startswith("fc_"):
                cut[block.id] = call
                block = replace(block, id=call)
        out.append(block)
    return tuple(out)


def drop_repeated(items: Items, used: MutableMapping[str, bool]) -> Changed:
    """Without reasoning items whose id was sent before; `used` holds those ids and gets the new ones."""
    out: list[Item] = []
    lines: list[LedgerLine] = []
    for item in items:
        message = item.message
        if type(message) is not Assistant:
            out.append(item)
            continue
        kept = tuple(block for block in message.content if not _repeats(block, used))
        if len(kept) < len(message.content):
            lines.append(LedgerLine(item.entry, "in" if kept else "left_out", REPEATED))
            item = Item(item.entry, replace(message, content=kept))
        if kept:
            out.append(item)
    return Changed(tuple(out), tuple(lines)) if lines else Changed(items)


def _repeats(block: Block, used: MutableMapping[str, bool]) -> bool:
    found = reasoning_item(block)
    if found is None:
        return False
    if found["id"] in used:
        return True
    used[found["id"]] = True
    return False


def says_something(content: tuple[Block, ...]) -> bool:
    """Whether anything but thinking and blank text is in it."""
    return any(
        type(block) is not Thinking and (type(block) is not Text or not block.text.isspace())
        for block in content
    )

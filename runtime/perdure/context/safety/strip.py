"""Takes `details` off every tool result: they are for programs, and may hold what nobody vetted."""

from __future__ import annotations

from msgspec.structs import replace

from perdure.context.changed import Changed
from perdure.records import Item, Items, LedgerLine, ToolResult


def strip(items: Items) -> Changed:
    """The items without any `details`; an untouched item is the same object."""
    out: list[Item] = []
    lines: list[LedgerLine] = []
    for item in items:
        message = item.message
        if type(message) is ToolResult and message.details is not None:
            out.append(Item(item.entry, replace(message, details=None)))
            lines.append(LedgerLine(item.entry, "in", "details stripped"))
        else:
            out.append(item)
    return Changed(tuple(out), tuple(lines)) if lines else Changed(items)

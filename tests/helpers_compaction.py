"""Histories to compact, and the weights of the reference's planner."""

from __future__ import annotations

import json

from hypothesis import strategies as st

from helpers_messages import call, items, result, says, user
from perdure.records import Image, Item, Items, Text, Thinking, ToolCall


def weigh(item: Item) -> int:
    """The reference's planner: characters by four, images 4,800 in results and none elsewhere."""
    message = item.message
    total = 0
    for block in getattr(message, "content", ()):
        if isinstance(block, Text):
            total += len(block.text.encode("utf-16-le", "surrogatepass")) // 2
        elif isinstance(block, Thinking):
            total += len(block.thinking)
        elif isinstance(block, ToolCall):
            total += len(block.name) + len(json.dumps(json.loads(block.arguments), separators=(",", ":")))
        elif isinstance(block, Image) and type(message).__name__ in ("ToolResult", "Custom"):
            total += 4_800
    return -(-total // 4)


@st.composite
def histories(draw: st.DrawFn) -> Items:
    made = []
    for turn in range(draw(st.integers(1, 8))):
        made.append(user("u" * draw(st.integers(0, 900))))
        width = draw(st.integers(0, 4))
        if width:
            names = [f"c{turn}.{n}" for n in range(width)]
            made.append(says(*map(call, names), stop="toolUse"))
            made += [result(name, "r" * draw(st.integers(0, 2_000))) for name in names]
        made.append(says("done"))
    return items(*made)

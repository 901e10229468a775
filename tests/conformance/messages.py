"""Messages of vectors as our records, through the decoder that reads session files."""

from __future__ import annotations

import json
from typing import Any

from conformance.rules import Case
from perdure.edges.session.decode import decode_message
from perdure.records import Item, Items, Message


def decoded(found: Any) -> Message | None:
    """One message, as it would be read from a file; None for what is none there."""
    if not isinstance(found, dict):
        return None
    text = json.dumps(found, ensure_ascii=False, separators=(",", ":"))
    return decode_message(text.encode("utf-8", "surrogatepass"))


def view(found: Any) -> Items:
    """A view of what can be read; the entry is the vector's own tag, or the place."""
    made: dict[str, Message] = {}
    for n, one in enumerate(found if isinstance(found, list) else [], 1):
        message = decoded(one)
        if message is not None:
            tag = str(one.get("mid") or f"e{n}")
            made[tag if tag not in made else f"{tag}#{n}"] = message
    return tuple(Item(entry, message) for entry, message in made.items())


def source(case: Case) -> Items:
    """The view that a case begins with."""
    return view(case["input"].get("messages"))


def messages(items: Items) -> list[Message]:
    """The messages of a view."""
    return [item.message for item in items]


def unreadable(case: Case) -> bool:
    """The list, or something in it, is no message: no such thing gets into a view."""
    given = case["input"].get("messages")
    return not isinstance(given, list) or any(decoded(one) is None for one in given)


def units(text: Any) -> int:
    """The length the reference counts: UTF-16 code units; of what is no text none."""
    if not isinstance(text, str):
        return 0
    return len(text.encode("utf-16-le", "surrogatepass")) // 2

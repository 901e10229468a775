"""Messages of other sessions say so in their text, or the model takes them for the user's."""

from __future__ import annotations

from msgspec.structs import replace

from perdure.context.changed import Changed
from perdure.context.text.characters import clean
from perdure.records import Block, Item, Items, LedgerLine, Provenance, Text, User

INTER_SESSION = "[Inter-session message]"
ANNOTATED = "sanitise: marked as a message of another session"


def annotate(items: Items) -> Changed:
    """The items with a first line on every message whose provenance is another session.

    It tells the session, channel and tool it came from, as far as they are known; a message that
    begins with that very line already is left as it is.
    """
    out: list[Item] = []
    lines: list[LedgerLine] = []
    for item in items:
        message = item.message
        if type(message) is not User or message.provenance is None:
            out.append(item)
            continue
        content = _annotated(message.content, message.provenance)
        if content is message.content:
            out.append(item)
            continue
        out.append(Item(item.entry, replace(message, content=content)))
        lines.append(LedgerLine(item.entry, "in", ANNOTATED))
    return Changed(tuple(out), tuple(lines)) if lines else Changed(items)


def _annotated(content: tuple[Block, ...], origin: Provenance) -> tuple[Block, ...]:
    if origin.kind != "inter_session" or not content:
        return content
    prefix = _prefix(origin)
    for n, block in enumerate(content):
        if type(block) is Text:
            if block.text == prefix or block.text.startswith(f"{prefix}\n"):
                return content
            return (*content[:n], Text(f"{prefix}\n{block.text}", block.signature), *content[n + 1 :])
    return (Text(prefix), *content)


def _prefix(origin: Provenance) -> str:
    fields = (
        ("sourceSession", origin.source_session),
        ("sourceChannel", origin.source_channel),
        ("sourceTool", origin.source_tool),
    )
    return " ".join([INTER_SESSION, *(f"{k}={' '.join(clean(v).split())}" for k, v in fields if v)])

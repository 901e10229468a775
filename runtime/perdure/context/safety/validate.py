"""Turn order of what will be sent: neighbours of one role become one, where the provider wants it.

No text is lost in a merge, and no call is ever taken out here: unanswered calls belong to repair.
"""

from __future__ import annotations

from msgspec.structs import replace

from perdure.context.changed import Changed
from perdure.context.policy import TranscriptPolicy
from perdure.records import Assistant, Item, Items, LedgerLine, Text, User

MERGED = "validate: merged with the message before it"
FIRST_USER = "(the conversation begins here)"
STARTED = "validate: a history can't begin with the model"


def validate(items: Items, policy: TranscriptPolicy) -> Changed:
    """The items in the turn order of `policy`. A merged item stands for its first entry."""
    out: list[Item] = []
    lines: list[LedgerLine] = []
    for item in items:
        kind = type(item.message)
        if not out or kind is not type(out[-1].message) or not _merges(kind, policy):
            out.append(item)
            continue
        out[-1] = merged(out[-1], item)
        lines.append(LedgerLine(item.entry, "in", MERGED))
    if policy.first_user and out and type(out[0].message) is Assistant:
        out.insert(0, stand_in(FIRST_USER))
        lines.append(LedgerLine("", "synthesised", STARTED))
    return Changed(tuple(out), tuple(lines)) if lines else Changed(items)


def merged(first: Item, second: Item) -> Item:
    """Both contents in one message; the rest is the later one's, as far as it says anything."""
    a, b = first.message, second.message
    if type(a) is User and type(b) is User:
        # Where each part came from is in its text by now; the whole comes from nowhere in particular.
        return Item(first.entry, User(a.content + b.content, b.timestamp or a.timestamp))
    assert type(a) is Assistant
    assert type(b) is Assistant
    usage, error = b.usage or a.usage, b.error or a.error
    return Item(first.entry, replace(a, content=a.content + b.content, stop=b.stop, usage=usage, error=error))


def stand_in(text: str) -> Item:
    """A user line that nobody said, where a provider refuses a request without one."""
    return Item("", User((Text(text),)))


def _merges(kind: type[object], policy: TranscriptPolicy) -> bool:
    if kind is User:
        return policy.merge_users
    return kind is Assistant and policy.merge_assistants

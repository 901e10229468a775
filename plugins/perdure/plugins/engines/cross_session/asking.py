"""What a model finds that matters: the question, and its answer read with suspicion. Pure."""

from __future__ import annotations

from perdure.contracts import Trust
from perdure.plugins.engines import views
from perdure.plugins.engines.cross_session.matters import MOST_NOTES, Note, sentences
from perdure.records import Assistant, Items, Text, User

SYSTEM = (
    "You read one turn of a conversation and list what will still matter in other conversations: standing "
    "instructions, decisions, lasting facts. One short sentence a line, in the language of the conversation, "
    "names and numbers exactly as they stand. Nothing else. If nothing matters, answer NONE."
)
CHARS = 8_000
"""Of the turn that the model reads."""
PLACE = 1_000
"""Where the places of a model's notes begin."""


def prompt(items: Items) -> str:
    """What was said, without results, thinking and messages of others."""
    told = []
    for item in items:
        message = item.message
        if isinstance(message, User | Assistant) and views.trust(message) in ("owner", "agent"):
            who = "user" if isinstance(message, User) else "assistant"
            text = "\n".join(block.text for block in message.content if isinstance(block, Text))
            told.append(f"<{who}>\n{text}\n</{who}>")
    return "\n".join(told)[-CHARS:]


def read(answer: str, items: Items) -> tuple[Note, ...]:
    """The answer as notes of the turn's first entry, as trusted as the least of its messages."""
    entry = next((item.entry for item in items if item.entry and isinstance(item.message, User)), "")
    seen = {views.trust(item.message) for item in items}
    trust: Trust = "untrusted" if "untrusted" in seen else "agent"
    if not entry or answer.strip().upper() == "NONE":
        return ()
    found = [sentence for each in answer.splitlines()[:MOST_NOTES] for sentence in sentences(each)]
    return tuple(Note(entry, PLACE + at, text, "fact", trust) for at, text in enumerate(found[:MOST_NOTES]))

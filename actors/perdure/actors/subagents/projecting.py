"""A part of the parent's view as a child is shown it: the newest, within a budget, with its sources. Pure.

Each message says who spoke and in which entry of which session it stands, so that the child can cite it and
nobody takes it for the child's own past. What tools said is marked as untrusted.
"""

from __future__ import annotations

from typing import Final

from perdure.actors.subagents.ending import framed
from perdure.context.text.characters import clean
from perdure.context.text.plural import counted
from perdure.context.tokens.estimator import Estimator
from perdure.records import Assistant, Items, Message, Summary, Text, ToolCall, ToolResult, User

SHARE: Final = 4  # one message takes at most this part of the budget


def projected(items: Items, session: str, most: int, estimator: Estimator) -> str:
    """The newest messages that fit into `most` tokens, in order; empty where there is nothing to show."""
    chosen: list[str] = []
    left = most
    for item in reversed(items):
        told = _told(item.entry, item.message, max(64, most // SHARE))
        left -= estimator.text(told)
        if left < 0:
            break
        chosen += [told] if told else []
    if not chosen:
        return ""
    head = f"The newest {counted(len(chosen), 'message')} of {session}, oldest first; background, no task."
    body = "\n\n".join(reversed(chosen))
    return f"<<<BEGIN_PARENT_CONTEXT>>>\n{head}\n\n{body}\n<<<END_PARENT_CONTEXT>>>"


def _told(entry: str, message: Message, tokens: int) -> str:
    match message:
        case User(content):
            who, text = "user", _texts(content)
        case Assistant(content):
            named = ", ".join(block.name for block in content if isinstance(block, ToolCall))
            who, text = (
                "agent",
                "\n".join(filter(None, (_texts(content), f"[called {named}]" if named else ""))),
            )
        case ToolResult(_, tool, content):
            who, text = f"result of {tool}, untrusted", _texts(content)
        case Summary(summary):
            who, text = "summary of what came before", summary
        case _:
            return ""
    text = framed(clean(text).strip())
    most = tokens * 3  # characters; the estimate of the whole decides
    if len(text) > most:
        text = f"{text[: most * 2 // 3]} [… {len(text) - most:,} characters left out …] {text[-most // 3 :]}"
    return f"[{entry} · {who}]\n{text}" if text else ""


def _texts(content: tuple[object, ...]) -> str:
    return "\n".join(block.text for block in content if isinstance(block, Text))

"""What the summariser is told, by depth: a leaf tells what happened, deeper ones what came of it."""

from __future__ import annotations

from perdure.context.compaction.prompts import SYSTEM, Instructions
from perdure.context.compaction.serialize import as_data, serialize_item
from perdure.plugins.engines.lossless.pieces import Node, View, moment
from perdure.records import Items

__all__ = ["SYSTEM", "material", "prompt"]

_LEAF = (
    "Summarise this stretch of a longer conversation. It is one piece of a chain: what came before is told "
    "for continuity only, don't repeat it. Keep what the work needs later: requests and what came of each, "
    "decisions with their reasons, files and what was changed in them, commands and their outcomes, errors "
    "with what caused and what cured them, figures, open questions, promises, limits that the user set."
)
_FIRST = (
    "These are summaries of consecutive stretches, oldest first. Make one of them: the course of the work, "
    "decisions that hold, what was finished and with which result, what is open. Drop what was superseded; "
    "where two contradict each other, the later one holds."
)
_SECOND = (
    "These are summaries of longer phases, oldest first. Make one of them: goals, the decisions that still "
    "bind and why, results, constraints, what is unfinished. Leave out how it was done."
)
_DEEP = (
    "These are summaries of whole periods, oldest first. Keep only what stays true and what somebody would "
    "look for: who wanted what, lasting decisions and limits, results and where they are, open matters."
)
_LENGTH = "At most about {words} words. Plain text; short headings where they help. Newest facts hold."
_SHORTER = "Far too long before: at most {words} words now. Only what the work can't go on without."


def prompt(view: View, items: Items, before: str, focus: str, tokens: int, *, depth: int, short: bool) -> str:
    """The request for one summary of at most so many tokens."""
    parts = [as_data(material(view, items))]
    if before:
        parts.append(as_data(before, "previous-summary"))
    task = (_LEAF, _FIRST, _SECOND)[depth] if depth < 3 else _DEEP
    length = (_SHORTER if short else _LENGTH).format(words=max(30, tokens * 2 // 3))
    parts += [task, length, Instructions(focus=focus).text()]
    return "\n\n".join(filter(None, parts))


def material(view: View, items: Items) -> str:
    """What is to be summarised, with times."""
    return "\n\n".join(
        _summary(piece) if isinstance(piece, Node) else f"({moment(piece.at)})\n{text}"
        for piece, item in zip(view, items, strict=True)
        if (text := "" if isinstance(piece, Node) else serialize_item(item, most=_MOST))
        or isinstance(piece, Node)
    )


_MOST = 24_000  # characters of one message: a longer one is told by head and tail


def _summary(node: Node) -> str:
    return f"[Earlier summary]: ({moment(node.earliest)} – {moment(node.latest)})\n{node.text}"

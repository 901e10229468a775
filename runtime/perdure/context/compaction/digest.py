"""The last rung: what a program can say about a range without a model. Extracts, never invents.

Always possible, always bounded, the same for the same range. Before it stands the one line that people
know from other systems; it tells what the work needs most: the requests, what was done, where it stands.
"""

from __future__ import annotations

from perdure.context.compaction.redact import redact
from perdure.context.compaction.serialize import call_line
from perdure.context.numbers import CHARS_PER_TOKEN_ESTIMATE, TAIL_SHARE
from perdure.context.results.parts import text_of
from perdure.context.results.tails import has_important_tail
from perdure.context.text.graphemes import cut_after, cut_before
from perdure.context.tokens.estimator import Estimator
from perdure.records import Assistant, Bash, Custom, Item, Items, Text, ToolCall, ToolResult, User

ELLIPSIS = " … "


def unavailable(count: int, large: int) -> str:
    """The known line: how much there was, and that no model summarised it."""
    return f"Context contained {count} messages ({large} oversized). Summary unavailable due to size limits."


def omitted(item: Item, tokens: int) -> str:
    """The known note for one message that was too large to summarise."""
    return f"[Large {role(item)} (~{max(1, round(tokens / 1000))}K tokens) omitted from summary]"


def role(item: Item) -> str:
    """The role of a message in the words of the session format."""
    return _ROLES.get(type(item.message).__name__, "message")


_ROLES = {
    "User": "user",
    "Assistant": "assistant",
    "ToolResult": "toolResult",
    "Summary": "compactionSummary",
    "BranchSummary": "branchSummary",
    "Bash": "bashExecution",
    "Custom": "custom",
}


def digest(items: Items, *, previous: str, tokens: int, estimator: Estimator) -> str:
    """Extracts of a range in at most so many tokens: earlier summary, requests, calls, results, answers."""
    chars = max(0, tokens) * CHARS_PER_TOKEN_ESTIMATE
    while chars >= 80:
        text = redact(_compose(items, previous, chars))
        size = estimator.text(text)
        if size <= tokens:
            return text
        chars = min(chars - 1, chars * tokens // max(1, size))
    return ""


def _compose(items: Items, previous: str, chars: int) -> str:
    """Shares of the space: what was known 30 %, requests 30 %, calls 20 %, results and answers 20 %."""
    sections = (
        ("Summary of what came before", [previous] if previous else [], 0.3),
        ("User requests", [_said(item) for item in items if isinstance(item.message, (User, Custom))], 0.3),
        ("Calls", [line for item in items for line in _calls(item)], 0.2),
        ("Newest results", [_outcome(item) for item in items][-40:], 0.1),
        ("Newest answers", [_answer(item) for item in items][-40:], 0.1),
    )
    used = [
        (title, [entry for entry in entries if entry.strip()], share) for title, entries, share in sections
    ]
    total = sum(share for _, entries, share in used if entries) or 1
    blocks = [
        _section(title, entries, int(chars * share / total)) for title, entries, share in used if entries
    ]
    return "\n\n".join(filter(None, blocks))


def _section(title: str, entries: list[str], chars: int) -> str:
    """The first entry (it set the goal), then the newest while there is room; in their old order."""
    room = chars - len(title) - 8
    if room < 40:
        return ""
    first = clip(entries[0], max(40, room // 4))
    room -= len(first) + 3
    kept: list[str] = []
    for at, entry in enumerate(reversed(entries[1:])):
        line = clip(entry, max(60, min(room, chars // 3)))
        if len(line) + 3 > room:
            kept.append(f"({len(entries) - 1 - at} left out here)")
            break
        kept.append(line)
        room -= len(line) + 3
    return f"## {title}\n" + "\n".join(f"- {line}" for line in (first, *reversed(kept)))


def clip(text: str, chars: int) -> str:
    """One line of at most so many characters: head, and tail where it matters."""
    line = " ".join(text.split())
    if len(line) <= chars:
        return line
    budget = max(0, chars - len(ELLIPSIS))
    tail = int(budget * TAIL_SHARE) if has_important_tail(line) else 0
    end = line[cut_after(line, len(line) - tail) :] if tail else ""
    return f"{line[: cut_before(line, budget - tail)]}{ELLIPSIS}{end}".rstrip()


def _said(item: Item) -> str:
    assert isinstance(item.message, (User, Custom))
    return " ".join(block.text for block in item.message.content if isinstance(block, Text))


def _calls(item: Item) -> list[str]:
    if isinstance(item.message, Bash):
        return [] if item.message.excluded else [f"user ran {clip(item.message.command, 200)}"]
    if not isinstance(item.message, Assistant):
        return []
    return [clip(call_line(block), 240) for block in item.message.content if isinstance(block, ToolCall)]


def _outcome(item: Item) -> str:
    if not isinstance(item.message, ToolResult):
        return ""
    failed = " failed" if item.message.is_error else ""
    return f"{item.message.tool}{failed}: {clip(text_of(item.message), 300)}"


def _answer(item: Item) -> str:
    if not isinstance(item.message, Assistant):
        return ""
    return clip(" ".join(block.text for block in item.message.content if isinstance(block, Text)), 400)

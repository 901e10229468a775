"""Who takes how much of a request: system, tools, pinned, history, newest turn.

What is left of these when results are cut and history is compacted is the irreducible floor: nothing but
the owner can make it smaller, so an overflow names it by owner. Shares are cut from one running sum, so
that they add up to the whole exactly.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from perdure.context.compaction.identifiers import HEADING as IDENTIFIERS_HEADING
from perdure.context.compaction.proof import PINNED_HEADING
from perdure.records import Items, Summary, User

SYSTEM, TOOLS, PINNED, HISTORY, NEWEST = "system", "tools", "pinned", "history", "newest turn"


def owners(
    items: Items, chars: Sequence[int], *, fixed_tokens: int, tool_tokens: int, total: int
) -> dict[str, int]:
    """Tokens by owner, which add up to `total`, the request's.

    `chars` are the items' sizes beside each other: what the request has over its system prompt and tools
    is theirs in that proportion. The newest turn begins at the last user message, else it is everything.
    """
    users = [at for at, item in enumerate(items) if isinstance(item.message, User)]
    begins = users[-1] if users else int(bool(items) and isinstance(items[0].message, Summary))
    pinned = _pinned(items, chars)
    fixed = min(fixed_tokens, total)
    parts = [
        (SYSTEM, max(0, fixed - tool_tokens)),
        (TOOLS, min(tool_tokens, fixed)),
    ]
    held = ((PINNED, pinned), (HISTORY, sum(chars[:begins]) - pinned), (NEWEST, sum(chars[begins:])))
    return dict(parts) | _shares(held, total - fixed)


def floor_of(told: Mapping[str, int]) -> dict[str, int]:
    """What no compaction can take away: everything but the history."""
    return {owner: tokens for owner, tokens in told.items() if owner != HISTORY}


def in_words(told: Iterable[tuple[str, int]]) -> str:
    """`system 900 + newest turn 31,000 = 31,900 tokens`."""
    parts = [(owner, tokens) for owner, tokens in told if tokens]
    return " + ".join(f"{o} {n:,}" for o, n in parts) + f" = {sum(n for _, n in parts):,} tokens"


def _pinned(items: Items, chars: Sequence[int]) -> int:
    """The part of a leading summary that must stand in it word for word."""
    summary = items[0].message if items else None
    if not isinstance(summary, Summary) or PINNED_HEADING not in summary.summary:
        return 0
    text = summary.summary
    begins = text.index(PINNED_HEADING)
    ends = text.rfind(IDENTIFIERS_HEADING)
    pinned = (ends if ends > begins else len(text)) - begins
    return chars[0] * pinned // len(text)


def _shares(held: Sequence[tuple[str, int]], total: int) -> dict[str, int]:
    whole = max(1, sum(size for _, size in held))
    shares, passed = {}, 0
    for owner, size in held:
        before, passed = total * passed // whole, passed + size
        shares[owner] = total * passed // whole - before
    if not any(size for _, size in held):
        shares[held[-1][0]] = total
    return shares

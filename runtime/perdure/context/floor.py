"""Who takes how much of a request: system, tools, pinned, history, newest turn.

What is left of these when results are cut and history is compacted is the irreducible floor: nothing but
the owner can make it smaller, so an overflow names it by owner. Shares are cut from one running sum, so
that they add up to the whole exactly.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from perdure.context.compaction.identifiers import HEADING as IDENTIFIERS_HEADING
from perdure.context.compaction.proof import PINNED_HEADING
from perdure.context.numbers import CHARS_PER_TOKEN_ESTIMATE
from perdure.records import Items, Summary, User

SYSTEM, TOOLS, PINNED, HISTORY, NEWEST = "system", "tools", "pinned", "history", "newest turn"


def owners(items: Items, chars: Sequence[int], *, fixed_tokens: int, tool_tokens: int) -> dict[str, int]:
    """Tokens by owner; `chars` are the items' sizes in quarters of a token. Their sum is the request's.

    The newest turn begins at the last user message, else it is everything.
    """
    users = [at for at, item in enumerate(items) if isinstance(item.message, User)]
    begins = users[-1] if users else int(bool(items) and isinstance(items[0].message, Summary))
    pinned = _pinned(items, chars)
    return _shares(
        (
            (SYSTEM, (fixed_tokens - tool_tokens) * CHARS_PER_TOKEN_ESTIMATE),
            (TOOLS, tool_tokens * CHARS_PER_TOKEN_ESTIMATE),
            (PINNED, pinned),
            (HISTORY, sum(chars[:begins]) - pinned),
            (NEWEST, sum(chars[begins:])),
        )
    )


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


def _shares(chars: Iterable[tuple[str, int]]) -> dict[str, int]:
    shares, total = {}, 0
    for owner, size in chars:
        before, total = -(-total // CHARS_PER_TOKEN_ESTIMATE), total + size
        shares[owner] = -(-total // CHARS_PER_TOKEN_ESTIMATE) - before
    return shares

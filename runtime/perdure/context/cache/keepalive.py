"""Whether to keep a resting session's cached prefix alive: when that is cheaper than writing it again.

Keeping costs the price of reading the prefix once for each life of the cache; letting go costs writing it
when the next message comes, instead of reading it. So it depends on when that will be, and the session's
own rhythm is the only thing that tells. Who has no rhythm is let go.
"""

from __future__ import annotations

from itertools import pairwise
from math import ceil
from statistics import median

from perdure.context.cache.contract import LIFE, READ_PRICE, WRITE_PRICE, Retention
from perdure.records import Assistant, Items, ModelInfo, Record, User

LEEWAY = 0.1  # of the cache's life: a refresh is sent that much before it ends
GAPS = 8  # pauses that are looked at
LEAST_GAPS = 3  # fewer are no rhythm


class Advice(Record):
    """`refreshes` are needed until the next message is due; at `break_even` of them keeping costs as much
    as writing again, which would be after `until` seconds of rest. Both costs are in USD.
    """

    keep: bool
    reason: str
    refreshes: int = 0
    break_even: int = 0
    until: float = 0.0
    keep_usd: float = 0.0
    rewrite_usd: float = 0.0


def advise(
    tokens: int, model: ModelInfo, retention: Retention, *, expected: float | None, most: int
) -> Advice:
    """Refresh or let go. `tokens` are cached; the next message is `expected` after so many seconds of rest.

    `most` bounds the refreshes of one rest. What an answer of one token costs is left out.
    """
    life = LIFE[retention]
    if not model.caching or not life or tokens < model.cache_minimum:
        return Advice(False, "nothing is cached")
    break_even = int(round((WRITE_PRICE[retention] - READ_PRICE) / READ_PRICE, 6))
    until = life + break_even * period(retention)
    price = tokens * model.price_input / 1e6
    rewrite = round(price * (WRITE_PRICE[retention] - READ_PRICE), 8)
    if expected is None:
        return Advice(False, "nobody knows when it goes on", 0, break_even, until, 0.0, rewrite)
    needed = max(0, ceil((expected - life) / period(retention)))
    keep = round(price * READ_PRICE * needed, 8)
    if not needed:
        reason = "it goes on within the cache's life"
    elif needed > break_even:
        reason = "writing it again is cheaper"
    elif needed > most:
        reason = f"it would take more than {most} refreshes"
    else:
        return Advice(True, "keeping is cheaper", needed, break_even, until, keep, rewrite)
    return Advice(False, reason, needed, break_even, until, keep, rewrite)


def period(retention: Retention) -> float:
    """Seconds between two refreshes."""
    return LIFE[retention] * (1 - LEEWAY)


def usual_pause(items: Items) -> float | None:
    """Seconds from an answer to the next message: the median of the latest; None without a rhythm."""
    pauses = [
        (after.message.timestamp - before.message.timestamp) / 1000
        for before, after in pairwise(items)
        if isinstance(before.message, Assistant)
        and isinstance(after.message, User)
        and 0 < before.message.timestamp < after.message.timestamp
    ]
    return median(pauses[-GAPS:]) if len(pauses) >= LEAST_GAPS else None

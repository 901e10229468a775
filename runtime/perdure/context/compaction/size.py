"""The size of a view as triggers, cuts and proofs see it: unguarded, one result at its limited size.

The guard's savings don't count, else it would hide the need to compact; but what lies over the single
limit is never sent, so it doesn't count either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from perdure.context.numbers import CHARS_PER_TOKEN_ESTIMATE, Limits
from perdure.context.tokens import RESULT_WEIGHT, Estimator, Gauge, measure
from perdure.records import Item, ToolResult


def _chars(item: Item, limits: Limits, estimator: Estimator, gauge: Gauge | None) -> int:
    size = estimator.chars(gauge.measure(item) if gauge else measure(item.message))
    if isinstance(item.message, ToolResult):
        return min(size, limits.single_chars * RESULT_WEIGHT)
    return size


def weigher(limits: Limits, estimator: Estimator, gauge: Gauge | None = None) -> Callable[[Item], int]:
    """A function from an item to its tokens."""
    return lambda item: -(-_chars(item, limits, estimator, gauge) // CHARS_PER_TOKEN_ESTIMATE)


def view_tokens(
    items: Iterable[Item], limits: Limits, estimator: Estimator, gauge: Gauge | None = None
) -> int:
    """Tokens of the unguarded view; add the fixed tokens (system, tools) before asking the threshold."""
    return -(-sum(_chars(item, limits, estimator, gauge) for item in items) // CHARS_PER_TOKEN_ESTIMATE)

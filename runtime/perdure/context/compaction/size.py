"""The size of a view as triggers, cuts and proofs see it: unguarded, one result at its limited size.

The guard's savings don't count, else it would hide the need to compact; but what lies over the single
limit is never sent, so it doesn't count either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from perdure.context.numbers import Limits
from perdure.context.tokens.estimator import RESULT_WEIGHT, Estimator, Gauge, Measure, measure
from perdure.records import Item, ToolResult


def limited(item: Item, size: Measure, limits: Limits) -> Measure:
    """The size of an item of which no more is sent than the single limit lets through."""
    most = limits.single_chars * RESULT_WEIGHT
    if size.seed <= most or not isinstance(item.message, ToolResult):
        return size
    return size.share(most, size.seed)


def unguarded(items: Iterable[Item], limits: Limits, gauge: Gauge | None = None) -> Measure:
    """The size of a view as the triggers see it."""
    look = gauge.measure if gauge else _look
    return sum((limited(item, look(item), limits) for item in items), Measure())


def _look(item: Item) -> Measure:
    return measure(item.message)


def weigher(limits: Limits, estimator: Estimator, gauge: Gauge | None = None) -> Callable[[Item], int]:
    """A function from an item to its tokens."""
    look = gauge.measure if gauge else _look
    return lambda item: estimator.tokens(limited(item, look(item), limits))


def view_tokens(
    items: Iterable[Item], limits: Limits, estimator: Estimator, gauge: Gauge | None = None
) -> int:
    """Tokens of the unguarded messages, by their content alone."""
    return estimator.tokens(unguarded(items, limits, gauge))

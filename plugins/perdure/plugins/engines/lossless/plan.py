"""What is summarised next: pure decisions on a view.

Never covered: the newest messages up to a count and a size, the newest batch whole, what no call has shown
yet, and the newest user message. A cut never parts a call from its results.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from perdure.context.compaction.batches import boundaries
from perdure.plugins.engines.lossless.pieces import Node, Piece, Raw, View, item_of
from perdure.plugins.engines.lossless.settings import Settings
from perdure.records import Assistant, Item, Items, Record, ToolResult, User

_WORTH = 200  # tokens: a summary of less is not smaller
_MOST_SOURCES = 12


class Choice(Record):
    """One pass: these pieces of the view, which stand in a row, become one summary of `depth` (0: a leaf)."""

    depth: int
    pieces: View

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(piece.key for piece in self.pieces)


class Shape(Record, gc=True):
    """A view with what it takes to plan: where it may be cut, and which places are never covered."""

    view: View
    free: tuple[bool, ...]
    kept: frozenset[int]
    tokens: tuple[int, ...]


def as_items(view: View, messages: Mapping[str, Item]) -> Items:
    """The view as items: summaries rendered, messages of the store."""
    return tuple(item_of(piece) if isinstance(piece, Node) else messages[piece.entry] for piece in view)


def shape(
    view: View, items: Items, tokens: Sequence[int], settings: Settings, budget: int, *, tight: bool = False
) -> Shape:
    """`tight`: somebody waits for room, so that only the last few messages are fresh."""
    free = boundaries(items)
    count = min(4, settings.fresh_count) if tight else settings.fresh_count
    keep = int(budget * (min(0.1, settings.fresh_share) if tight else settings.fresh_share))
    start = _fresh(items, tokens, free, count, keep)
    kept = set(range(start, len(view)))
    asked = [
        at for at, item in enumerate(items) if isinstance(view[at], Raw) and isinstance(item.message, User)
    ]
    kept.update(asked[-1:])
    return Shape(view, tuple(free), frozenset(kept), tuple(tokens))


def _fresh(items: Items, tokens: Sequence[int], free: Sequence[bool], count: int, keep: int) -> int:
    """Where the fresh tail begins."""
    size, at, end = 0, len(items), len(items)
    while at and end - at < count and (size + tokens[at - 1] <= keep or at == end):
        at -= 1
        size += tokens[at]
    inside = [n for n in range(at, end) if free[n]]
    start = inside[0] if inside else max((n for n in range(at) if free[n]), default=0)
    return min(start, _unseen(items, free))


def _unseen(items: Items, free: Sequence[bool]) -> int:
    """Where the batch begins whose results no call has shown yet; the end where there is none."""
    newest = [at for at, item in enumerate(items) if isinstance(item.message, Assistant)]
    since = newest[-1] if newest else 0
    if not any(isinstance(item.message, ToolResult) for item in items[since:]):
        return len(items)
    return max((n for n in range(since + 1) if free[n]), default=0)


def choices(shape: Shape, settings: Settings, most: int, *, pressure: bool) -> Iterator[Choice]:
    """Passes worth trying, best first. Leaves come before condensing, oldest and shallowest first.

    `most`: tokens that one covers, unless a single batch is larger. Without `pressure` only what is large
    enough, down to the routine depth; with it whatever shrinks.
    """
    parts = list(_parts(shape))
    for start, end in parts:
        yield from _leaves(shape, start, end, most, settings, pressure=pressure)
    for start, end in parts:
        yield from _condensed(shape, start, end, most, settings, pressure=pressure)
    if pressure:
        for start, end in parts:
            yield from _mixed(shape, start, end, most)


def _parts(shape: Shape) -> Iterator[tuple[int, int]]:
    """Runs of pieces that may be covered."""
    start: int | None = None
    for at in range(len(shape.view) + 1):
        if at < len(shape.view) and at not in shape.kept:
            start = at if start is None else start
        elif start is not None:
            yield start, at
            start = None


def _runs(shape: Shape, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Runs of messages in a part."""
    first: int | None = None
    for at in range(start, end + 1):
        if at < end and isinstance(shape.view[at], Raw):
            first = at if first is None else first
        elif first is not None:
            yield first, at
            first = None


def _leaves(
    shape: Shape, start: int, end: int, most: int, settings: Settings, *, pressure: bool
) -> Iterator[Choice]:
    for first, last in _runs(shape, start, end):
        stop = _bounded(shape, first, last, most)
        size, count = sum(shape.tokens[first:stop]), stop - first
        enough = size >= most // 2 or (count >= settings.leaf_messages and size >= _WORTH)
        if stop > first and (enough or (pressure and size >= _WORTH)):
            yield Choice(0, shape.view[first:stop])


def _bounded(shape: Shape, first: int, last: int, most: int) -> int:
    """The end of a run of at most so many tokens, at a place where it may be cut; one batch at least."""
    size, best = 0, first
    for at in range(first, last):
        size += shape.tokens[at]
        if shape.free[at + 1]:
            if size > most and best > first:
                break
            best = at + 1
    return best


def _condensed(
    shape: Shape, start: int, end: int, most: int, settings: Settings, *, pressure: bool
) -> Iterator[Choice]:
    """Summaries of one depth in a row; single messages that stand between them go with them."""
    deepest = max((p.depth for p in shape.view[start:end] if isinstance(p, Node)), default=-1)
    least = 2 if pressure else settings.condensed_sources
    for depth in range(deepest + 1 if pressure else min(deepest + 1, settings.routine_depth)):
        for first, last in _same(shape, start, end, depth, most):
            found = shape.view[first:last]
            if sum(isinstance(piece, Node) for piece in found) >= least:
                yield Choice(depth + 1, found)


def _same(shape: Shape, start: int, end: int, depth: int, most: int) -> Iterator[tuple[int, int]]:
    """Runs that begin and end with a summary of `depth` and hold no other depth."""
    first, last, size, count = -1, -1, 0, 0
    for at in range(start, end):
        piece = shape.view[at]
        fits = isinstance(piece, Raw) or piece.depth == depth
        size += shape.tokens[at]
        if first >= 0 and (not fits or size > most or count >= _MOST_SOURCES):
            yield first, last
            first, count = -1, 0
        if fits and isinstance(piece, Node):
            if first < 0:
                first, size, count = at, shape.tokens[at], 0
            last, count = at + 1, count + 1
    if first >= 0:
        yield first, last


def _mixed(shape: Shape, start: int, end: int, most: int) -> Iterator[Choice]:
    """Whatever stands in a row, of any depth: the shallowest neighbours first, then the oldest."""
    pairs = [at for at in range(start, end - 1) if shape.free[at + 2]]
    for at in sorted(pairs, key=lambda at: (max(map(_depth, shape.view[at : at + 2])), at)):
        if sum(shape.tokens[at : at + 2]) >= _WORTH:
            yield Choice(_above(shape.view[at : at + 2]), shape.view[at : at + 2])
    stop = _bounded(shape, start, end, most)
    if stop - start > 2:
        yield Choice(_above(shape.view[start:stop]), shape.view[start:stop])


def _depth(piece: Piece) -> int:
    return piece.depth if isinstance(piece, Node) else -1


def _above(pieces: View) -> int:
    return max(map(_depth, pieces)) + 1

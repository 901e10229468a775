"""Small pure questions to a view."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from perdure.context.prompt.knowledge import query_of
from perdure.records import Assistant, Item, Items, Summary, ToolResult, User


def at_rest(last: Item) -> bool:
    """Whether a view that ends in `last` waits for nobody but the user."""
    message = last.message
    if isinstance(message, Assistant):
        return message.stop != "toolUse"
    return not isinstance(message, User | ToolResult)


def unseen(items: Sequence[Item]) -> frozenset[str]:
    """Entries of tool results that no accepted model call has shown yet: those behind the last answer."""
    fresh: list[str] = []
    for item in reversed(items):
        message = item.message
        if isinstance(message, Assistant) and message.stop not in ("error", "aborted"):
            break
        if isinstance(message, ToolResult):
            fresh.append(item.entry)
    return frozenset(fresh)


def answered_at(items: Sequence[Item]) -> int:
    """When a model last read this view, in wall ms by its answer; 0 where none is known to have.

    Where a summary stands for all answers, it was written later than they were: the cache is taken to be
    warm for longer than it is, never for less.
    """
    for item in reversed(items):
        message = item.message
        if isinstance(message, Assistant) and message.stop not in ("error", "aborted"):
            return message.timestamp
    return next((item.message.timestamp for item in items if isinstance(item.message, Summary)), 0)


def joined(places: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Byte ranges in order, neighbours made one, the last 32 of them."""
    out: list[tuple[int, int]] = []
    for start, end in places:
        if out and out[-1][1] == start:
            out[-1] = (out[-1][0], end)
        else:
            out.append((start, end))
    return tuple(out[-32:])


class Ranking:
    """What workspace knowledge is ranked by. `given_up`: nothing but it could give way to a request."""

    __slots__ = ("_generation", "_query", "given_up")

    def __init__(self) -> None:
        self._generation, self._query = -1, ""
        self.given_up = False

    def by(self, items: Sequence[Item]) -> str:
        """The query of this view, kept."""
        self._query = query_of(items)
        return self._query

    def changes(self, generation: int, items: Sequence[Item]) -> bool:
        """Whether the view has another query than the one kept: asked once for each generation of it."""
        if generation == self._generation and self._query:
            return False
        self._generation = generation
        return query_of(items) != self._query


def begins_with(items: list[Item], before: Items) -> bool:
    """Whether the view still begins with what a summary was made of."""
    return len(items) >= len(before) and all(a.entry == b.entry for a, b in zip(before, items, strict=False))

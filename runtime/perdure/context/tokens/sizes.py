"""Sizes of a view beside its items, kept from one request to the next, so that a step measures its tail.

An optimisation and nothing else: a view is followed by comparing its items with those of the last request
(identity first), and what differs is measured anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from perdure.context.changed import common
from perdure.context.tokens.measure import Measure
from perdure.records import Item, Items, ToolResult


class Sizes:
    """`sizes` by position, their sum `total`, and where tool results are.

    `largest` is at least the raw size of every result, with line ends between its blocks.
    """

    __slots__ = ("_shared", "_where", "items", "largest", "results", "sizes", "total")

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self.items: Items = ()
        self.sizes: list[Measure] = []
        self.results: list[int] = []
        self.total, self.largest = Measure(), 0
        self._where: dict[str, int] = {}
        self._shared = False  # an entry has several results

    def follow(self, items: Items, measure: Callable[[Item], Measure]) -> Sizes:
        """Bring the sizes to these items; itself."""
        if items is not self.items:
            same = 0 if self._shared else common(self.items, items)
            if same:
                self._cut(same)
            else:
                self._reset()
            for at in range(same, len(items)):
                self._add(at, items[at], measure(items[at]))
            self.items = items
        return self

    def places(self, entries: Iterable[str]) -> list[int]:
        """Where the results of these entries are, in order; all results where that can't be told."""
        if self._shared:
            return list(self.results)
        where = self._where
        return sorted([where[entry] for entry in entries if entry in where])

    def _add(self, at: int, item: Item, size: Measure) -> None:
        self.sizes.append(size)
        self.total += size
        if type(item.message) is ToolResult:
            self.results.append(at)
            self.largest = max(self.largest, size.raw + len(item.message.content))
            if item.entry:
                self._shared = self._shared or item.entry in self._where
                self._where[item.entry] = at

    def _cut(self, length: int) -> None:
        """Forget what stands behind the first `length` items."""
        while len(self.sizes) > length:
            self.total -= self.sizes.pop()
        while self.results and self.results[-1] >= length:
            self._where.pop(self.items[self.results.pop()].entry, None)

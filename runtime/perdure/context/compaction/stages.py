"""How a long history is divided for a summariser: two parts of equal tokens, chunks that fit its window.

Sizes come in as a function, so that the one estimator decides everywhere. No part splits a tool batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from perdure.context.compaction.batches import calls_of
from perdure.context.numbers import (
    BASE_CHUNK_RATIO,
    MIN_CHUNK_RATIO,
    OVERSIZED_SHARE,
    SAFETY_MARGIN,
    STAGE_PARTS,
    SUMMARIZATION_OVERHEAD_TOKENS,
)
from perdure.records import Assistant, Item, Items, ToolResult

Weigh: TypeAlias = Callable[[Item], int]


def adaptive_ratio(items: Items, window: int, weigh: Weigh) -> float:
    """The share of the summariser's window that one chunk takes: 0.4, less where messages are large."""
    if not items or window <= 0:
        return BASE_CHUNK_RATIO
    average = sum(map(weigh, items)) / len(items) * SAFETY_MARGIN / window
    if average <= 0.1:
        return BASE_CHUNK_RATIO
    reduction = min(average * 2, BASE_CHUNK_RATIO - MIN_CHUNK_RATIO)
    return max(MIN_CHUNK_RATIO, BASE_CHUNK_RATIO - reduction)


def chunk_limit(window: int, ratio: float) -> int:
    """Tokens of one chunk. The overhead is capped by the share of a small window, so that chunks stay."""
    return max(1, int(window * ratio) - min(SUMMARIZATION_OVERHEAD_TOKENS, window // 16))


def oversized(item: Item, window: int, weigh: Weigh) -> bool:
    """Too large to be summarised at all: more than half of the window, with the margin."""
    return weigh(item) * SAFETY_MARGIN > window * OVERSIZED_SHARE


def chunk_by_tokens(items: Items, most: int, weigh: Weigh) -> tuple[Items, ...]:
    """Greedy chunks under `most`, margin taken; one message over it is a chunk of its own."""
    limit = max(1, int(most / SAFETY_MARGIN))
    chunks: list[Items] = []
    current: list[Item] = []
    size = 0
    for item in items:
        more = weigh(item)
        if current and size + more > limit:
            chunks.append(tuple(current))
            current, size = [], 0
        current.append(item)
        size += more
        if more > limit:
            chunks.append(tuple(current))
            current, size = [], 0
    return (*chunks, tuple(current)) if current else tuple(chunks)


def split_by_share(items: Items, parts: int, weigh: Weigh) -> tuple[Items, ...]:
    """Parts of about equal tokens; a batch that would be split goes whole into the later part."""
    if not items:
        return ()
    parts = max(1, min(parts, len(items)))
    if parts == 1:
        return (items,)
    divider = _Divider(parts, sum(map(weigh, items)) / parts)
    for item in items:
        divider.add(item, weigh(item))
    return divider.finish()


class _Divider:
    """The walk of `split_by_share`: what is pending decides where a part may end."""

    def __init__(self, parts: int, target: float) -> None:
        self.parts, self.target = parts, target
        self.closed: list[Items] = []
        self.current: list[tuple[Item, int]] = []
        self.size = 0
        self.pending: set[str] = set()
        self.batch: int | None = None

    def add(self, item: Item, size: int) -> None:
        if not self.pending and self.current and self.size + size > self.target and self._room():
            self._close(len(self.current))
        self.current.append((item, size))
        self.size += size
        message = item.message
        if isinstance(message, ToolResult):
            self._answered(message)
        elif calls := calls_of(message):
            self.pending, self.batch = set(calls), len(self.current) - 1
        elif isinstance(message, Assistant):
            self.pending, self.batch = set(), None

    def finish(self) -> tuple[Items, ...]:
        if self.pending:
            self._close_before_batch()
        return (*self.closed, tuple(item for item, _ in self.current)) if self.current else tuple(self.closed)

    def _answered(self, message: ToolResult) -> None:
        if not self.pending:
            return
        self.pending.discard(message.call_id)
        if not self.pending:
            self._close_before_batch()

    def _close_before_batch(self) -> None:
        if self.batch and self.size > self.target and self._room():
            self._close(self.batch)
        self.batch = None

    def _room(self) -> bool:
        return len(self.closed) < self.parts - 1

    def _close(self, at: int) -> None:
        self.closed.append(tuple(item for item, _ in self.current[:at]))
        self.current = self.current[at:]
        self.size = sum(size for _, size in self.current)
        self.batch = None


def stages(items: Items, most: int, weigh: Weigh) -> tuple[Items, ...]:
    """One part if a single chunk takes it all or there is little to divide, else two."""
    if len(items) < 2 * STAGE_PARTS or sum(map(weigh, items)) <= most:
        return (items,)
    return split_by_share(items, STAGE_PARTS, weigh)

"""The engine `similarity`: where not everything fits, what is near to the question stays, not what is new.

A model for authors: it stores nothing, and what it answers depends on its arguments alone. The choice is
made as if it watched the session from its beginning: all turns are kept until they no longer fit; then, and
when a question is nearest to a turn that was left out, those nearest to the question fill `keep` of the
budget. Between two such moments every request begins with the bytes of the one before it, in every process.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Annotated

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from perdure.contracts import Assembled, Delegate, EngineCompaction, EngineContext, EngineInfo, PluginRuntime
from perdure.plugins import options
from perdure.plugins.engines import views
from perdure.plugins.search.embedding import HashedNgrams
from perdure.records import BranchSummary, Item, Items, Record, Summary

CHARS, NEAR, ONE = 2_000, 0.15, 1 << 12
"""Characters of a turn that are compared; the cosine that is worth a new choice; the length of a vector."""
STEP = 1_024  # the budget counts in steps: one that differs by a few tokens must not choose anew


class Settings(Record):
    """`[plugins.config.similarity]`. `keep`: how much of the budget a choice fills."""

    keep: Annotated[float, Meta(ge=0.1, le=0.9)] = 0.6


class Similarity:
    info = EngineInfo("similarity", "Keeps by relevance instead of age", owns_compaction=True)

    def __init__(self, lent: PluginRuntime) -> None:
        self._keep = options.read(Settings, lent.settings, "similarity").keep
        embed = HashedNgrams().embed  # in whole numbers, whose sums are the same on every machine
        self._vector = lru_cache(2_048)(lambda text: (embed([text])[0] * ONE).round().astype(np.int16))

    async def ingest(self, context: EngineContext, item: Item) -> bool:
        return False  # nothing to store: the log is the truth

    async def assemble(self, context: EngineContext, messages: Items) -> Assembled:
        """The messages that stay, in their order."""
        return await context.runtime.run_blocking(partial(self._assemble, context, messages))

    async def compact(
        self, context: EngineContext, delegate: Delegate, *, force: bool, instructions: str
    ) -> EngineCompaction:
        return await delegate() if force else EngineCompaction(True, False, "what doesn't fit is left out")

    def _assemble(self, context: EngineContext, messages: Items) -> Assembled:
        """By plain weights, which never change; the session's own estimator has the last word."""
        budget = max(STEP, context.token_budget // STEP * STEP)
        while True:
            choice = Choice(messages, budget, int(budget * self._keep), self._vector)
            size = context.runtime.estimate(choice.items)
            if size <= context.token_budget or choice.least or budget <= STEP:
                return Assembled(choice.items, size)
            budget = budget * 7 // 8


class Choice:
    """What stays of one view: `items`. `least`: nothing more could go."""

    def __init__(self, view: Items, high: int, low: int, vector: Callable[[str], NDArray[np.int16]]) -> None:
        self._view, self._low, self._vector = view, low, vector
        self._of: dict[int, list[views.Atom]] = {}  # pieces by turn, as far as they were seen
        self._sizes: Counter[int] = Counter()
        self._over: list[int] = []  # turns that are over, and the vectors of those that were read
        self._read, self._rows = 0, np.zeros((len(view), HashedNgrams.dimensions))
        kept: set[int] = set()
        question, turn, size = "", -1, 0
        for piece in views.atoms(view, high // 2):
            if piece.turn != turn:  # a new question: the turn before it is over
                self._over += [turn] if turn in self._of else []
                turn, question = piece.turn, views.said(view[piece.start].message)[:CHARS]
                if self._misses(kept, question):
                    kept, size = self._nearest(question, turn)
            kept.add(turn)
            self._of.setdefault(turn, []).append(piece)
            self._sizes[turn] += piece.tokens
            size += piece.tokens
            if size > high:
                kept, size = self._nearest(question, turn)
        pieces = [one for of in self._of.values() for one in of if one.turn in kept or self._stays(one)]
        chosen = tuple(item for one in pieces for item in view[one.start : one.stop])
        self.items, self.least = (view if len(chosen) == len(view) else chosen), kept <= {turn}

    def _near(self, question: str) -> list[tuple[float, int]]:
        """How near each turn that is over comes; what fits is never compared with anything."""
        for turn in self._over[self._read :]:
            first, last = self._of[turn][0].start, self._of[turn][-1].stop
            self._rows[self._read] = self._vector(views.begin(self._view[first:last], CHARS))
            self._read += 1
        near = self._rows[: self._read] @ self._vector(question).astype(np.float64) / ONE**2
        return list(zip(near.tolist(), self._over, strict=True))

    def _misses(self, kept: set[int], question: str) -> bool:
        """Whether the nearest turn is one that was left out."""
        if len(kept) >= len(self._of):
            return False
        near, turn = max(self._near(question))
        return near >= NEAR and turn not in kept

    def _nearest(self, question: str, newest: int) -> tuple[set[int], int]:
        kept, size = {newest}, self._sizes[newest]
        for _, turn in sorted(self._near(question), reverse=True):
            if size + self._sizes[turn] <= self._low:
                kept.add(turn)
                size += self._sizes[turn]
        return kept, size

    def _stays(self, piece: views.Atom) -> bool:
        return isinstance(self._view[piece.start].message, Summary | BranchSummary)

"""`SqliteTable`: texts in the store of the search library, by words and vectors, one file for a host."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from msgspec.structs import replace

from perdure.plugins.memories.vector.table import Hit, Row
from perdure.plugins.search.chunks import Piece
from perdure.plugins.search.searcher import Searcher
from perdure.plugins.search.stages import Stages
from perdure.plugins.search.store import Chunk, Store

_STAGES = Stages(half_life_days=365.0, diversity=False)
"""A statement lasts longer than a note, and none is stored twice."""


class SqliteTable:
    """A scope of the store is an agent, a source is the id of a text, and has one chunk."""

    def __init__(self, path: Path, *, vectors: Literal["bit", "float"] = "bit", sync: bool = True) -> None:
        self._store = Store(path, vectors=vectors, sync=sync)
        self._searcher = Searcher(self._store)

    def put(self, agent: str, row: Row) -> None:
        piece = Piece(row.text, trust=row.trust, entries=row.entries, at=row.at)
        self._store.replace(agent, row.id, [piece])

    def get(self, agent: str, id: str) -> Row | None:
        return next(map(_row, self._store.of_source(agent, id)), None)

    def nearest(self, agent: str, text: str, limit: int) -> tuple[Hit, ...]:
        scored = dict(self._store.nearest(agent, text, limit))
        found = self._store.chunks(agent, scored)
        return _in_order(Hit(_row(chunk), min(1.0, scored[chunk.id])) for chunk in found)

    def search(self, agent: str, query: str, limit: int, now: int) -> tuple[Hit, ...]:
        answer = self._searcher.search(agent, query, replace(_STAGES, most=limit), now)
        return tuple(Hit(_row(found.chunk), found.score) for found in answer.found)

    def rows(self, agent: str) -> tuple[Row, ...]:
        return tuple(map(_row, self._store.chunks(agent)))

    def remove(self, agent: str, ids: tuple[str, ...]) -> int:
        gone = self._store.delete(agent, *ids)
        if gone:
            self._store.scrub()
        return gone

    def close(self) -> None:
        self._store.close()


def _row(chunk: Chunk) -> Row:
    return Row(chunk.source, chunk.text, chunk.trust, chunk.entries, chunk.at)


def _in_order(hits: Iterable[Hit]) -> tuple[Hit, ...]:
    return tuple(sorted(hits, key=lambda hit: (-hit.score, hit.row.id)))

"""`Keeping`: the rules of storing and forgetting, above whichever table; one call at a time. Blocks."""

from __future__ import annotations

import threading
from collections.abc import Callable

from msgspec.structs import replace

from perdure.errors import UsageError
from perdure.plugins.memories.saying import says
from perdure.plugins.memories.trust import rank
from perdure.plugins.memories.vector.rules import alike, is_secret
from perdure.plugins.memories.vector.table import Hit, Row, VectorTable
from perdure.plugins.search.terms import terms
from perdure.records import Record

NEAR = 5
SOURCE = "vector:"


class Stored(Record):
    """The row, and whether it is new; else it is what was known already."""

    row: Row
    new: bool


class Keeping:
    """Opens the table at first use. `duplicate`: texts that are at least so near are one."""

    def __init__(self, open: Callable[[], VectorTable], duplicate: float) -> None:
        self._open, self._duplicate = open, duplicate
        self._lock = threading.Lock()
        self._table: VectorTable | None = None

    def store(self, agent: str, row: Row, replaces: str = "") -> Stored:
        """Store a text, unless it is known. One that was known from a less trusted source takes the new
        trust.

        `replaces`: the id of a text that it corrects. Raises `UsageError`, `StorageFailed`.
        """
        if is_secret(row.text):
            raise UsageError("the text looks as if it held a password or key, and those are not remembered")
        if not terms(row.text):
            raise UsageError("the text holds no words")
        with self._lock:
            table = self._opened()
            _check_replaced(table.get(agent, replaces) if replaces else row, row, replaces)
            known = self._known(table, agent, row, replaces)
            if known is not None and rank(known.trust) >= rank(row.trust):
                return Stored(known, False)
            kept = row if known is None else replace(row, id=known.id, text=known.text)
            table.put(agent, kept)
            if replaces and replaces != kept.id:
                table.remove(agent, (replaces,))
            return Stored(kept, True)

    def search(self, agent: str, query: str, limit: int, now: int) -> tuple[Hit, ...]:
        """What bears on the query, best first."""
        with self._lock:
            return self._opened().search(agent, query, limit, now)

    def get(self, agent: str, id: str) -> Row | None:
        """The row of an id."""
        with self._lock:
            return self._opened().get(agent, id)

    def forget(self, agent: str, text: str) -> tuple[Row, ...]:
        """Forget the text of an id or source, or all that say something; what they were."""
        id = text.strip().removeprefix(SOURCE)
        with self._lock:
            table = self._opened()
            named = table.get(agent, id)
            gone = (named,) if named else tuple(row for row in table.rows(agent) if says(row.text, text))
            table.remove(agent, tuple(row.id for row in gone))
            return gone

    def close(self) -> None:
        """Close the table; a later call opens it again."""
        with self._lock:
            if self._table is not None:
                self._table.close()
            self._table = None

    def _known(self, table: VectorTable, agent: str, row: Row, replaces: str) -> Row | None:
        near = table.nearest(agent, row.text, NEAR)
        same = (hit.row for hit in near if hit.score >= self._duplicate and alike(hit.row.text, row.text))
        found = table.get(agent, row.id) or next(same, None)
        return None if found is not None and found.id == replaces else found

    def _opened(self) -> VectorTable:
        if self._table is None:
            self._table = self._open()
        return self._table


def _check_replaced(old: Row | None, row: Row, id: str) -> None:
    if old is None:
        raise UsageError(f"nothing is remembered under {id!r}; find its id with memory_recall")
    if rank(old.trust) > rank(row.trust) and row.trust == "untrusted":
        raise UsageError(f"{id} was told by a more trusted source: what is untrusted can't replace it")

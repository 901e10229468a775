"""`VectorTable`: where `memory-vector` keeps its texts, and the small interface that every place for them
has.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Protocol

from perdure.contracts import Trust
from perdure.plugins.memories.saying import folded
from perdure.records import Record


class Row(Record):
    """One remembered text. `entries`: of the session that it came from; `at`: in milliseconds since 1970."""

    id: str
    text: str
    trust: Trust = "agent"
    entries: tuple[str, ...] = ()
    at: int = 0


class Hit(Record):
    """A row that was found, and how near it is, 0 … 1."""

    row: Row
    score: float


class VectorTable(Protocol):
    """All of it blocks, is called by one thread at a time, and knows no agent but the one it is asked about.

    Raises `StorageFailed`. Equal scores are ordered by id.
    """

    def put(self, agent: str, row: Row) -> None:
        """Store a row, in the place of one of the same id."""
        ...

    def get(self, agent: str, id: str) -> Row | None: ...
    def nearest(self, agent: str, text: str, limit: int) -> tuple[Hit, ...]:
        """By the cosine of the vectors alone, best first."""
        ...

    def search(self, agent: str, query: str, limit: int, now: int) -> tuple[Hit, ...]:
        """What bears on a query, best first, by all that this place can do."""
        ...

    def rows(self, agent: str) -> tuple[Row, ...]:
        """All rows, by id."""
        ...

    def remove(self, agent: str, ids: tuple[str, ...]) -> int:
        """Forget rows to the last byte; how many there were."""
        ...

    def close(self) -> None: ...


def id_of(text: str) -> str:
    """The id of a text: the same for one that differs in case, width or spaces only."""
    return f"m{blake2b(folded(text).encode('utf-8', 'surrogatepass'), digest_size=8).hexdigest()}"

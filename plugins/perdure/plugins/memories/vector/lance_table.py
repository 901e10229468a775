"""`LanceTable`: texts in LanceDB, by vectors alone. Needs the extra `lancedb`, which is imported here only.

Agents stand in the table as hashes, ids are hashes: no filter ever holds a text that somebody wrote.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from perdure.edges.sqlite import storable
from perdure.errors import ConfigError, PerdureError, StorageFailed
from perdure.plugins.memories.vector.table import Hit, Row
from perdure.plugins.search.embedding import Embedder, HashedNgrams

MISSING = (
    'plugins.config.memory-vector.backend: "lancedb" needs LanceDB: install perdure[lancedb], or use "sqlite"'
)
NAME = "memories"
_MOMENT = timedelta(milliseconds=1)  # of 0 LanceDB warns: others might read; nobody else does


def load(name: str = "lancedb") -> Any:
    """The library. Raises `ConfigError` where it isn't installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise ConfigError(MISSING) from None


@contextmanager
def _failures(path: Path) -> Iterator[None]:
    """What LanceDB raises, whatever it is, as one line for a person."""
    try:
        yield
    except PerdureError:
        raise
    except Exception as error:
        first = str(error).strip().partition("\n")[0][:200]
        raise StorageFailed(f"{path}: LanceDB failed ({type(error).__name__}: {first})") from None


class LanceTable:
    """Opens or makes the table in a folder. Each embedder has a table of its own."""

    def __init__(self, path: Path, embedder: Embedder | None = None) -> None:
        self.path = path
        self._embedder = embedder if embedder is not None else HashedNgrams()
        self._library, self._arrow = load(), load("pyarrow")
        self._table: Any = None

    def put(self, agent: str, row: Row) -> None:
        with _failures(self.path):
            [vector] = self._embedder.embed([row.text])
            whose, stored = _whose(agent), replace(row, text=storable(row.text))
            made = {
                "key": f"{whose}{row.id}", "agent": whose, "row": msgspec.json.encode(stored).decode(),
                "vector": vector.tolist(),
            }  # fmt: skip
            change = self._opened().merge_insert("key")
            change.when_matched_update_all().when_not_matched_insert_all().execute([made])

    def get(self, agent: str, id: str) -> Row | None:
        with _failures(self.path):
            found = self._where(f"key = '{_whose(agent)}{_plain(id)}'")
            return found[0] if found else None

    def nearest(self, agent: str, text: str, limit: int) -> tuple[Hit, ...]:
        with _failures(self.path):
            [vector] = self._embedder.embed([text])
            if not vector.any():
                return ()
            asked = self._opened().search(vector.tolist(), vector_column_name="vector").metric("cosine")
            found = asked.where(f"agent = '{_whose(agent)}'", prefilter=True).limit(limit).to_list()
            hits = [Hit(_row(one), round(min(1.0, 1.0 - one["_distance"]), 6)) for one in found]
            hits.sort(key=lambda hit: (-hit.score, hit.row.id))
            return tuple(hit for hit in hits if hit.score > 0)

    def search(self, agent: str, query: str, limit: int, now: int) -> tuple[Hit, ...]:
        return self.nearest(agent, query, limit)

    def rows(self, agent: str) -> tuple[Row, ...]:
        with _failures(self.path):
            return self._where(f"agent = '{_whose(agent)}'")

    def remove(self, agent: str, ids: tuple[str, ...]) -> int:
        with _failures(self.path):
            table, before = self._opened(), len(self.rows(agent))
            for id in ids:
                table.delete(f"key = '{_whose(agent)}{_plain(id)}'")
            for _ in range(2):  # the first writes new files, the second drops the version that had the old
                table.optimize(cleanup_older_than=_MOMENT, delete_unverified=True)
            return before - len(self.rows(agent))

    def close(self) -> None:
        self._table = None

    def _where(self, clause: str) -> tuple[Row, ...]:
        table = self._opened()
        found = table.search().where(clause).limit(max(1, table.count_rows())).to_list()
        return tuple(sorted(map(_row, found), key=lambda row: row.id))

    def _opened(self) -> Any:
        if self._table is None:
            self._table = self._open()
        return self._table

    def _open(self) -> Any:
        arrow = self._arrow
        fields = [arrow.field(name, arrow.string()) for name in ("key", "agent", "row")]
        fields.append(arrow.field("vector", arrow.list_(arrow.float32(), self._embedder.dimensions)))
        db = self._library.connect(str(self.path))
        name = f"{NAME}-{self._embedder.id}"  # vectors of another embedder are never compared with these
        return db.create_table(name, schema=arrow.schema(fields), exist_ok=True)


def _row(found: dict[str, Any]) -> Row:
    return msgspec.json.decode(found["row"], type=Row)


def _whose(agent: str) -> str:
    return blake2b(agent.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _plain(id: str) -> str:
    """An id as ours are; of anything else what no row has."""
    return id if id.isascii() and id.isalnum() else ""

"""`Store`: chunks of text with whom they belong to and where they come from, searched by words and vectors.

One SQLite file. Every chunk has a scope (an agent, a session); no question about one scope is answered from
another. What a source says is replaced as a whole: chunks, terms, trigrams and vectors change in one
transaction. Vectors are kept by the hash of their text and the embedder's id, so that the same text is
embedded once; another embedder makes its own, a few at each search, while words find everything.

All of it blocks, may be called from any thread, and raises `StorageFailed` or `DamagedStore`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import log2
from pathlib import Path
from typing import Any, Literal, TypeAlias

import apsw
import msgspec
import numpy as np

from perdure.contracts import Trust
from perdure.edges.sqlite import Database, rows, storable, value
from perdure.plugins.search import lookup, schema, tables
from perdure.plugins.search.chunks import Piece
from perdure.plugins.search.embedding import Embedder, HashedNgrams, Vectors
from perdure.plugins.search.lookup import Scored, listed
from perdure.plugins.search.signs import bits, signs
from perdure.plugins.search.terms import VERSION
from perdure.records import Record

Kind: TypeAlias = Literal["bit", "float"]
"""Vectors by their signs, the nearest then compared exactly; or every one exactly."""

CANDIDATES, SCANNED = 64, 3_200_000
"""How many chunks that are near by their signs are compared exactly, at least; more, where there are so few
chunks that both together stay below `SCANNED`: it is their product that costs time."""
BATCH = 256
"""How many chunks are embedded in one call."""
BETWEEN = 0.2
"""What a pair of characters counts for that no text has."""
MOST = 1_000
"""How many chunks any question is answered with, at most."""


class Chunk(Record):
    """A piece as it is stored. `hash`: SHA-256 of what is searched; `superseded`: something newer says
    otherwise.
    """

    id: int
    scope: str
    source: str
    text: str
    start: int
    end: int
    hash: str
    trust: Trust = "agent"
    entries: tuple[str, ...] = ()
    at: int = 0
    context: str = ""
    superseded: bool = False

    def searched(self) -> str:
        """The text that is indexed."""
        return Piece(self.text, context=self.context).searched()


class Statement(Record):
    """What one chunk says about one thing, and where and when it stands."""

    subject: str
    said: str
    chunk: int
    trust: Trust
    at: int
    source: str
    start: int


_STATED = """
select subject, said, chunk.id, trust, at, name, first from statement
join chunk on chunk.id = statement.chunk join source on source.id = chunk.source
where chunk.scope = ? {} order by at, name, first, chunk.id, statement.rowid
"""
_RIVALS = """
and subject in (
    select subject from statement join chunk as other on other.id = statement.chunk
    where other.scope = ? group by subject having count(*) > 1
)
"""
_THESE = "in (select value from json_each(?))"
_CHUNKS = """
select chunk.id, chunk.scope, name, text, first, last, hash, trust, entries, at, context, superseded
from chunk join source on source.id = chunk.source
"""
_IN_ORDER = "order by name, first, chunk.id"
_SUPERSEDE = """
update chunk set superseded = not superseded
where scope = ? and superseded != (id in (select value from json_each(?)))
"""
_VECTORS = f"""
select chunk.id, vector from chunk join embedding on embedding.id = chunk.embedding where chunk.id {_THESE}
"""
_CACHED = f"select hash from embedding where embedder = ? and hash {_THESE}"
_BARE = """
select id, scope, text, context, hash from chunk where embedding is null order by id limit ?
"""
_STILL_BARE = f"select id, scope, hash from chunk where embedding is null and id {_THESE}"
_MADE = f"select hash, id, vector from embedding where embedder = ? and hash {_THESE}"


class Store:
    """Opens or makes the file; `sync=False` where nothing need survive a power cut."""

    def __init__(
        self, path: Path, embedder: Embedder | None = None, *, vectors: Kind = "bit", sync: bool = True
    ) -> None:
        self.path = path
        self.embedder: Embedder = embedder if embedder is not None else HashedNgrams()
        self._kind = vectors
        self._database = Database(path, vectors=True, migrations=schema.MIGRATIONS, sync=sync)
        try:
            with self._database.writing() as db:
                self._follow(db)
        except BaseException:
            self._database.close()
            raise

    # --- writing ----------------------------------------------------------------------------------

    def replace(self, scope: str, source: str, pieces: Sequence[Piece], *, stamp: str = "") -> int:
        """The source says this now, and nothing else; how many chunks that are. `stamp`: see `stamps`."""
        return self._store(scope, source, pieces, stamp, whole=True)

    def put(self, scope: str, source: str, pieces: Sequence[Piece], *, stamp: str = "") -> int:
        """The source says this, too; how many chunks are new. The same text at the same line counts once."""
        return self._store(scope, source, pieces, stamp, whole=False)

    def delete(self, scope: str, *sources: str) -> int:
        """Forget sources; how many chunks went."""
        with self._database.writing() as db:
            return sum(tables.delete_source(db, storable(scope), storable(each)) for each in sources)

    def drop(self, scope: str) -> int:
        """Forget a whole scope; how many chunks went."""
        return self.delete(scope, *self.stamps(scope))

    def remove(self, scope: str, ids: Iterable[int]) -> int:
        """Forget single chunks; how many went."""
        with self._database.writing() as db:
            query = f"select id from chunk where scope = ? and id {_THESE}"
            found = [id for (id,) in rows(db, query, storable(scope), listed(list(ids)))]
            tables.delete(db, found)
            return len(found)

    def supersede(self, scope: str, ids: Iterable[int]) -> None:
        """Exactly these chunks of the scope are superseded."""
        with self._database.writing() as db:
            rows(db, _SUPERSEDE, storable(scope), listed(list(ids)))

    def scrub(self) -> None:
        """No byte of what was deleted stays, in no index and no cache. Costs a copy of the file."""
        with self._database.writing() as db:
            db.execute("delete from embedding where hash not in (select hash from chunk)")
            for table in ("words", "trigrams"):
                db.execute(f"insert into {table} ({table}) values ('optimize')")
        self._database.scrub()

    def close(self) -> None:
        """Close the file; a second time is fine."""
        self._database.close()

    # --- reading ----------------------------------------------------------------------------------

    def stamps(self, scope: str) -> dict[str, str]:
        """The sources of a scope, each with the stamp of its last change."""
        with self._database.reading() as db:
            found = rows(db, "select name, stamp from source where scope = ?", storable(scope))
        return {name: stamp for name, stamp in found}  # noqa: C416

    def chunks(self, scope: str, ids: Iterable[int] | None = None) -> tuple[Chunk, ...]:
        """Chunks of the scope, by source and line: all, or those of these ids."""
        if ids is None:
            return self._chunks("chunk.scope = ?", storable(scope))
        return self._chunks(f"chunk.scope = ? and chunk.id {_THESE}", storable(scope), listed(list(ids)))

    def of_source(self, scope: str, source: str) -> tuple[Chunk, ...]:
        """The chunks of one source, by line."""
        return self._chunks("chunk.scope = ? and name = ?", storable(scope), storable(source))

    def keyword(
        self, scope: str, asked: Sequence[str], limit: int, counts: Mapping[str, int] | None = None
    ) -> Scored:
        """Chunks that hold terms (of `terms.asked`), by BM25, best first. `counts`: of `counts`, if known."""
        counts = counts if counts is not None else self.counts(asked)
        wanted = lookup.telling(counts, asked)
        begun = [term for term in asked if lookup.is_begun(term) and term not in wanted]
        with self._database.reading() as db:
            return lookup.by_terms(db, storable(scope), [*wanted, *begun[: lookup.TERMS]], min(limit, MOST))

    def containing(self, scope: str, parts: Sequence[str], limit: int) -> Scored:
        """Chunks whose text holds parts as they stand, case aside, best first."""
        with self._database.reading() as db:
            return lookup.by_part(db, storable(scope), [storable(part) for part in parts], min(limit, MOST))

    def nearest(self, scope: str, text: str, limit: int) -> Scored:
        """Chunks by the cosine of their vector with that of `text`, best first; only what is above 0."""
        asked = self.embedder.embed([text])
        if not asked.any():
            return []
        self.embed_pending(BATCH)
        scope, limit = storable(scope), min(limit, MOST)
        with self._database.reading() as db:
            if self._kind == "float":
                scored = lookup.by_vector(db, scope, asked[0], limit)
            else:
                total: int = value(db, "select ifnull(max(id), 1) from chunk")
                most = max(limit, CANDIDATES, min(4 * CANDIDATES, SCANNED // total))
                near = lookup.by_signs(db, scope, signs(asked)[0].tobytes(), most)
                scored = lookup.rescored(db, near, asked[0])
            return lookup.in_order(db, [(id, score) for id, score in scored if score > 0], limit)

    def counts(self, asked: Sequence[str]) -> dict[str, int]:
        """How many chunks, of all scopes, hold each term; those that none holds are not in it."""
        with self._database.reading() as db:
            return lookup.frequencies(db, asked[:MOST])

    def weights(self, asked: Sequence[str], counts: Mapping[str, int]) -> dict[str, float]:
        """How much each term tells, 0 … 1: the rarer, the more. What no chunk has weighs most as a word;
        a pair of characters is then no word, but the end of one and the beginning of the next.
        """
        with self._database.reading() as db:
            total: int = value(db, "select ifnull(max(id), 1) from chunk")
        top = log2(1 + total)
        by_term = {term: log2(1 + total / (counts.get(term, 0) + 0.5)) / (top + 1) for term in asked}
        return {
            term: round(weight if term in counts or term.isascii() else weight * BETWEEN, 6)
            for term, weight in by_term.items()
        }

    def stated(self, scope: str, subject: str | None = None) -> tuple[Statement, ...]:
        """What chunks of the scope state about `subject`, oldest first; `None`: about every subject that is
        spoken of more than once.
        """
        clause, key = (_RIVALS, scope) if subject is None else ("and subject = ?", subject)
        with self._database.reading() as db:
            found = rows(db, _STATED.format(clause), storable(scope), storable(key))
        return tuple(Statement(*row) for row in found)

    def statements(self, ids: Iterable[int]) -> dict[int, int]:
        """How many things chunks state."""
        query = f"select chunk, count(*) from statement where chunk {_THESE} group by chunk"
        with self._database.reading() as db:
            return {id: count for id, count in rows(db, query, listed(list(ids)))}  # noqa: C416

    def beginning(self, letters: str, most: int = 500) -> list[str]:
        """Terms of the index that begin with these letters, at most so many."""
        with self._database.reading() as db:
            return lookup.beginning(db, letters, most)

    def vectors(self, ids: Iterable[int]) -> dict[int, Vectors]:
        """The vectors of chunks, those that have one."""
        with self._database.reading() as db:
            found = rows(db, _VECTORS, listed(list(ids)))
        return {id: np.frombuffer(vector, dtype="<f4") for id, vector in found}

    def pending(self) -> int:
        """How many chunks have no vector of this embedder yet."""
        with self._database.reading() as db:
            count: int = value(db, "select count(*) from chunk where embedding is null")
        return count

    def cached(self) -> int:
        """How many vectors are kept."""
        with self._database.reading() as db:
            count: int = value(db, "select count(*) from embedding")
        return count

    def embed_pending(self, most: int) -> int:
        """Embed chunks that have no vector yet; how many."""
        with self._database.reading() as db:
            found = rows(db, _BARE, most)
        if found:
            made = self._made(
                {hash: Piece(text, context=context).searched() for _, _, text, context, hash in found}
            )
            with self._database.writing() as db:
                self._keep(db, made)
                self._link(db, rows(db, _STILL_BARE, listed([row[0] for row in found])))
        return len(found)

    def _chunks(self, clause: str, *given: object) -> tuple[Chunk, ...]:
        with self._database.reading() as db:
            return tuple(map(_chunk, rows(db, f"{_CHUNKS} where {clause} {_IN_ORDER}", *given)))

    # --- inside -----------------------------------------------------------------------------------

    def _store(self, scope: str, source: str, pieces: Sequence[Piece], stamp: str, *, whole: bool) -> int:
        scope, source = storable(scope), storable(source)
        given = [(piece, text := storable(piece.searched()), tables.digest(text)) for piece in pieces]
        made = self._made({hash: text for _, text, hash in given})
        with self._database.writing() as db:
            self._keep(db, made)
            if whole:
                tables.delete_source(db, scope, source)
            place = tables.source(db, scope, source, stamp)
            known = set() if whole else tables.known(db, place)
            new = [row for row in given if (row[2], row[0].start) not in known]
            self._link(db, [(tables.insert(db, place, scope, *row), scope, row[2]) for row in new])
        return len(new)

    def _made(self, texts: dict[str, str]) -> dict[str, bytes]:
        """Vectors for the texts that have none in the cache, by hash."""
        with self._database.reading() as db:
            cached = {hash for (hash,) in rows(db, _CACHED, self.embedder.id, listed(list(texts)))}
        lacking = [hash for hash in texts if hash not in cached]
        made: dict[str, bytes] = {}
        for at in range(0, len(lacking), BATCH):
            part = lacking[at : at + BATCH]
            vectors = self.embedder.embed([texts[hash] for hash in part])
            made.update((hash, row.astype("<f4").tobytes()) for hash, row in zip(part, vectors, strict=True))
        return made

    def _keep(self, db: apsw.Connection, made: dict[str, bytes]) -> None:
        new = ((hash, self.embedder.id, vector) for hash, vector in made.items())
        db.executemany("insert or ignore into embedding (hash, embedder, vector) values (?, ?, ?)", new)

    def _link(self, db: apsw.Connection, chunks: Sequence[tuple[Any, ...]]) -> None:
        """Make chunks (id, scope, hash) findable by the vectors of their texts. One whose vector is gone
        meanwhile stays as it is: `embed_pending` comes to it.
        """
        wanted = list({hash for _, _, hash in chunks})
        made = {hash: (id, vector) for hash, id, vector in rows(db, _MADE, self.embedder.id, listed(wanted))}
        linked = [(id, scope, *made[hash]) for id, scope, hash in chunks if hash in made]
        db.executemany("update chunk set embedding = ? where id = ?", [(each[2], each[0]) for each in linked])
        if linked:
            matrix = np.frombuffer(b"".join(each[3] for each in linked), "<f4").reshape(len(linked), -1)
            held = signs(matrix) if self._kind == "bit" else matrix
            place = "vec_bit(?)" if self._kind == "bit" else "?"
            db.executemany(
                f"insert into vectors (id, scope, vector, embedding) values (?, ?, {place}, ?)",
                (
                    (id, scope, vector.tobytes(), embedding)
                    for (id, scope, embedding, _), vector, told in zip(linked, held, matrix, strict=True)
                    if told.any()  # a text that says nothing is near to none
                ),
            )

    def _follow(self, db: apsw.Connection) -> None:
        """Make again what other rules or another embedder made."""
        about = {name: text for name, text in rows(db, "select name, value from about")}  # noqa: C416
        if about.get("terms") != str(VERSION):
            tables.index_again(db)
        column = f"bit[{bits(self.embedder.dimensions)}]"
        if self._kind == "float":
            column = f"float[{self.embedder.dimensions}] distance_metric=cosine"
        if about.get("vectors") != f"{self.embedder.id} {column}":
            db.execute("drop table if exists vectors")
            db.execute(schema.vectors(column))
            db.execute("update chunk set embedding = null")
        made = (("terms", str(VERSION)), ("vectors", f"{self.embedder.id} {column}"))
        db.executemany("insert or replace into about values (?, ?)", made)


def _chunk(row: tuple[Any, ...]) -> Chunk:
    id, scope, source, text, first, last, hash, trust, entries, at, context, superseded = row
    named = tuple(msgspec.json.decode(entries, type=list[str]))
    return Chunk(id, scope, source, text, first, last, hash, trust, named, at, context, bool(superseded))

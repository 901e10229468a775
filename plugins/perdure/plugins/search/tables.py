"""The rows of a `Store`: how a chunk is put in with all that is made from it, and how all of that goes."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

import apsw

from perdure.edges.sqlite import rows, storable, value
from perdure.plugins.search.chunks import Piece
from perdure.plugins.search.lookup import listed
from perdure.plugins.search.terms import terms


def digest(text: str) -> str:
    """The hash by which the same text is known."""
    return sha256(storable(text).encode()).hexdigest()


def source(db: apsw.Connection, scope: str, name: str, stamp: str) -> int:
    """The id of a source, which now has this stamp."""
    query = (
        "insert into source (scope, name, stamp) values (?, ?, ?) "
        "on conflict do update set stamp = excluded.stamp returning id"
    )
    id: int = value(db, query, scope, name, stamp)
    return id


def known(db: apsw.Connection, source: int) -> set[tuple[str, int]]:
    """Hash and first line of the chunks that a source has."""
    return {
        (hash, first) for hash, first in rows(db, "select hash, first from chunk where source = ?", source)
    }


def insert(db: apsw.Connection, source: int, scope: str, piece: Piece, searched: str, hash: str) -> int:
    """A chunk with its terms and trigrams; its id."""
    query = (
        "insert into chunk (source, scope, text, context, hash, first, last, trust, entries, at) "
        "values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) returning id"
    )
    text, context = storable(piece.text), storable(piece.context)
    entries = listed([storable(entry) for entry in piece.entries])
    more = (piece.start, piece.end, piece.trust, entries, piece.at)
    id: int = value(db, query, source, scope, text, context, hash, *more)
    said = ((id, storable(subject), storable(text)) for subject, text in piece.states)
    db.executemany("insert into statement values (?, ?, ?)", said)
    _index(db, id, searched)
    return id


def index_again(db: apsw.Connection) -> None:
    """Make terms and trigrams of all chunks anew."""
    for table in ("words", "trigrams"):
        db.execute(f"insert into {table} ({table}) values ('delete-all')")
    for id, text, context in rows(db, "select id, text, context from chunk order by id"):
        _index(db, id, Piece(text, context=context).searched())


def _index(db: apsw.Connection, id: int, text: str) -> None:
    db.execute("insert into words (rowid, terms) values (?, ?)", (id, " ".join(terms(text))))
    db.execute("insert into trigrams (rowid, text) values (?, ?)", (id, text.replace("\0", " ")))


def delete_source(db: apsw.Connection, scope: str, name: str) -> int:
    """A source with its chunks; how many."""
    query = "select id from chunk where source = (select id from source where scope = ? and name = ?)"
    ids = [id for (id,) in rows(db, query, scope, name)]
    delete(db, ids)
    db.execute("delete from source where scope = ? and name = ?", (scope, name))
    return len(ids)


def delete(db: apsw.Connection, ids: Sequence[int]) -> None:
    """Chunks with all that was made from them; a vector stays in the cache while another text needs it."""
    query = "select distinct hash from chunk where id in (select value from json_each(?))"
    hashes = rows(db, query, listed(ids))
    keys = [(id,) for id in ids]
    for table, key in (("words", "rowid"), ("trigrams", "rowid"), ("vectors", "id"), ("chunk", "id")):
        db.executemany(f"delete from {table} where {key} = ?", keys)
    unused = "delete from embedding where hash = ?1 and not exists (select 1 from chunk where hash = ?1)"
    db.executemany(unused, hashes)

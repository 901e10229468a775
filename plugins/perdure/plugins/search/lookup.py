"""The three ways to find chunks of one scope: by terms, by a part of the text, by a vector.

Each answers ids with scores, best first, and of equal ones by source and line; so the same texts give the
same answer, however they came to be stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import apsw
import msgspec
import numpy as np

from perdure.edges.sqlite import rows, value
from perdure.plugins.search.embedding import Vectors

POSTINGS = 8_000
"""How many occurrences a query by terms looks through at most: the frequent terms of it are left out."""
TERMS = 48
"""Terms of a query that are looked up; the rarest, where it has more."""

_BY_FTS = """
select chunk.id, -bm25({0}) as score from {0} join chunk on chunk.id = {0}.rowid
where {0} match ? and chunk.scope = ? order by score desc, chunk.id limit ?
"""
_ALONE = "select rowid, -rank from {0} where {0} match ? order by rank, rowid limit ?"
_BY_LIKE = """
select chunk.id, sum(1.0) as score from json_each(?) as part join chunk
    on chunk.scope = ? and instr(lower(chunk.text), part.value) > 0
group by chunk.id order by score desc, chunk.id limit ?
"""

Scored = list[tuple[int, float]]


def frequencies(db: apsw.Connection, terms: Sequence[str]) -> dict[str, int]:
    """How many chunks hold each term; those that none holds are not in it."""
    query = "select term, doc from terms where term in (select value from json_each(?))"
    return {term: count for term, count in rows(db, query, listed(terms))}  # noqa: C416


def beginning(db: apsw.Connection, letters: str, most: int) -> list[str]:
    """Terms of the index that begin with these letters."""
    query = "select term from terms where term >= ? and term < ? order by term limit ?"
    return [term for (term,) in rows(db, query, letters, f"{letters}\U0010ffff", most)]


def telling(counts: Mapping[str, int], terms: Sequence[str]) -> list[str]:
    """The terms to look up: the rarest first, as long as together they occur at most `POSTINGS` times."""
    chosen: list[str] = []
    seen = 0
    for term in sorted((term for term in terms if term in counts), key=lambda term: (counts[term], term)):
        seen += counts[term]
        if chosen and (seen > POSTINGS or len(chosen) == TERMS):
            break
        chosen.append(term)
    return chosen


def is_begun(term: str) -> bool:
    """Whether a term is one character of a script without spaces: it begins pairs, and need not be one."""
    return len(term) == 1 and not term.isascii()


def by_terms(db: apsw.Connection, scope: str, terms: Sequence[str], limit: int) -> Scored:
    """By BM25 over terms; one character of a script without spaces finds every term that it begins."""
    if not terms:
        return []
    match = " OR ".join(f'"{term}"*' if is_begun(term) else f'"{term}"' for term in terms)
    return _by_rank(db, "words", match, scope, limit)


def by_part(db: apsw.Connection, scope: str, parts: Sequence[str], limit: int) -> Scored:
    """By parts of the text as they stand, without regard to case: trigrams, from three characters on;
    shorter ones are looked for in every text of the scope.
    """
    long = [part for part in parts if len(part) >= 3]
    if long:
        match = " OR ".join('"' + part.replace('"', '""') + '"' for part in long)
        return _by_rank(db, "trigrams", match, scope, limit)
    short = [part.lower() for part in parts if part]
    return _scored(db, _BY_LIKE, listed(short), scope, limit) if short else []


def by_signs(db: apsw.Connection, scope: str, asked: bytes, limit: int) -> list[tuple[int, int]]:
    """Candidates by the number of bits that differ: ids of chunks and of their embeddings."""
    query = (
        "select id, embedding from vectors where vector match vec_bit(?) and k = ? and scope = ? "
        "order by distance"
    )
    return [(id, embedding) for id, embedding in rows(db, query, asked, limit, scope)]


def by_vector(db: apsw.Connection, scope: str, asked: Vectors, limit: int) -> Scored:
    """By the cosine, exactly: every vector of the scope is compared."""
    query = "select id, 1 - distance from vectors where vector match ? and k = ? and scope = ?"
    return [(id, round(score, 6)) for id, score in rows(db, query, asked.tobytes(), limit, scope)]


def rescored(db: apsw.Connection, near: Sequence[tuple[int, int]], asked: Vectors) -> Scored:
    """The cosine of each chunk's own vector with `asked`, exactly. `near`: as `by_signs` answers."""
    query = "select id, vector from embedding where id in (select value from json_each(?))"
    found = rows(db, query, listed([embedding for _, embedding in near]))
    if not found:
        return []
    vectors = np.frombuffer(b"".join(vector for _, vector in found), dtype="<f4").reshape(len(found), -1)
    scores = np.round((vectors.astype(np.float64) * asked).sum(axis=1), 6)
    by_embedding = {id: float(score) for (id, _), score in zip(found, scores, strict=True)}
    return [(id, by_embedding[embedding]) for id, embedding in near if embedding in by_embedding]


def in_order(db: apsw.Connection, scored: Scored, limit: int) -> Scored:
    """The best, equal ones by source and line."""
    query = (
        "select chunk.id, name, first from json_each(?) as wanted "
        "join chunk on chunk.id = wanted.value join source on source.id = chunk.source"
    )
    found = rows(db, query, listed([id for id, _ in scored]))
    places = {id: (name, first) for id, name, first in found}
    known = [each for each in scored if each[0] in places]
    return sorted(known, key=lambda each: (-each[1], places[each[0]], each[0]))[:limit]


def _by_rank(db: apsw.Connection, table: str, match: str, scope: str, limit: int) -> Scored:
    """By BM25. Where there is one scope only, no chunk need be looked up for it."""
    if value(db, "select exists (select 1 from source where scope != ?)", scope):
        return _scored(db, _BY_FTS.format(table), match, scope, limit)
    return _scored(db, _ALONE.format(table), match, limit)


def _scored(db: apsw.Connection, query: str, *given: object) -> Scored:
    found = [(id, round(score, 6)) for id, score in rows(db, query, *given)]
    return in_order(db, found, len(found))


def listed(values: Sequence[object]) -> str:
    """Values for `json_each`."""
    return msgspec.json.encode(values).decode()

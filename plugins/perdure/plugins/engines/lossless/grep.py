"""Searching a session's past: by words in every script, or by a regular expression; bounded either way."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import apsw

from perdure.plugins.engines.lossless import rows
from perdure.plugins.engines.lossless.access import Reader
from perdure.plugins.engines.lossless.patterns import Pattern
from perdure.plugins.engines.lossless.pieces import moment
from perdure.plugins.engines.lossless.reading import readable, who
from perdure.records import Record

SECONDS, MOST_CHARS, PAGE = 5, 20_000_000, 100
AROUND, _INDEXED = 120, 3  # characters of a word that trigrams find
_RELEVANT = 400  # hits looked at when they are sorted by relevance


class Query(Record):
    """`sort`: newest first, or best first. `until`: ms since 1970."""

    words: tuple[str, ...]
    scope: str
    sort: str
    limit: int
    until: int = 0


class Hit(Record):
    """One place. `id` is an entry's or a summary's."""

    id: str
    head: str
    line: str


class Found(Record):
    """`cut`: why not everything was looked at."""

    hits: tuple[Hit, ...]
    cut: str = ""


def by_words(reader: Reader, query: Query) -> Found:
    """Texts that hold all the words, whatever their case."""
    hits: list[Hit] = []
    with reader.store.looking.reading() as db:
        if query.scope in ("summaries", "both"):
            hits += _summaries(db, reader.no, query)
        if query.scope in ("messages", "both"):
            hits += _messages(db, reader.no, query, query.limit - len(hits))
    return Found(tuple(hits[: query.limit]))


def _summaries(db: apsw.Connection, no: int, query: Query) -> Iterator[Hit]:
    for number in _numbers(db, no, "summaries", query):
        node = rows.numbered(db, number)
        if _holds(node.text, query.words):
            yield Hit(node.id, f"{node.kind} summary {moment(node.latest)}", _around(node.text, query.words))


def _messages(db: apsw.Connection, no: int, query: Query, limit: int) -> Iterator[Hit]:
    left = limit
    for number in _numbers(db, no, "messages", query):
        if left <= 0:
            return
        entry = db.execute("select entry from messages where no = ?", (number,)).get
        message = rows.items(db, no, (entry,), whole=True)[entry].message
        text = readable(message)
        if _holds(text, query.words):
            left -= 1
            yield Hit(entry, f"{who(message)} {moment(message.timestamp)}", _around(text, query.words))


def _numbers(db: apsw.Connection, no: int, table: str, query: Query) -> Iterator[int]:
    """Rows that may hold the words: by the index; where all are too short for it, by every text."""
    long = [word for word in query.words if len(word) >= _INDEXED]
    first, last = rows.span(no)
    if long:
        match = " AND ".join('"' + word.replace('"', '""') + '"' for word in long)
        order = "rank, rowid desc" if query.sort == "relevance" else "rowid desc"
        limit = _RELEVANT if query.sort == "relevance" else -1
        found = db.execute(
            f"select rowid from {table}_fts where {table}_fts match ? and rowid between ? and ? "
            f"order by {order} limit {limit}",
            (match, first, last),
        )
    else:
        like = "%" + _escaped(query.words[0]) + "%"
        source = (
            "select message as no, text from parts"
            if table == "messages"
            else "select no, text from summaries"
        )
        found = db.execute(
            f"select distinct no from ({source}) where no between ? and ? and text like ? escape '\\' "
            "order by no desc",
            (first, last, like),
        )
    return (number for (number,) in found)


def _escaped(word: str) -> str:
    return word.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def _holds(text: str, words: tuple[str, ...]) -> bool:
    folded = text.casefold()
    return all(word.casefold() in folded for word in words)


def _around(text: str, words: tuple[str, ...]) -> str:
    at = max(0, text.casefold().find(words[0].casefold()))
    start = max(0, at - AROUND)
    piece = " ".join(text[start : at + len(words[0]) + AROUND].split())
    return f"{'…' if start else ''}{piece}{'…' if at + AROUND < len(text) else ''}"


def by_pattern(reader: Reader, query: Query, pattern: Pattern, now: Callable[[], int]) -> Found:
    """Lines that match, newest texts first, until the limit, the time, or the characters are used up."""
    hits: list[Hit] = []
    chars = 0
    for id, head, text in _texts(reader, query.scope):
        chars += len(text)
        for number, line in pattern.lines(text):
            hits.append(Hit(id, f"{head} line {number}", line[: 3 * AROUND]))
            break
        if len(hits) >= query.limit:
            return Found(tuple(hits))
        if chars > MOST_CHARS:
            return Found(tuple(hits), f"after {MOST_CHARS:,} characters")
        if now() >= query.until:
            return Found(tuple(hits), f"after {SECONDS} s")
    return Found(tuple(hits))


def _texts(reader: Reader, scope: str) -> Iterator[tuple[str, str, str]]:
    """(id, head, text), page by page, so that the database is held for a moment only."""
    if scope in ("summaries", "both"):
        with reader.store.looking.reading() as db:
            nodes = list(rows.nodes(db, reader.no))
        yield from ((n.id, f"{n.kind} summary {moment(n.latest)}", n.text) for n in reversed(nodes))
    first, before = rows.span(reader.no)
    while scope != "summaries":
        with reader.store.looking.reading() as db:
            page = rows.earlier(db, first, before, PAGE)
            items = rows.items(db, reader.no, [entry for _, entry in page], whole=True)
        if not page:
            return
        before = page[-1][0]
        for _, entry in page:
            message = items[entry].message
            yield entry, f"{who(message)} {moment(message.timestamp)}", readable(message)

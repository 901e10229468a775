"""Whether what is stored of a session is whole: read-only, one finding for each thing that is wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Literal, TypeAlias

import apsw

from perdure.plugins.engines.lossless import rows
from perdure.plugins.engines.lossless.derive import derive
from perdure.plugins.engines.lossless.journal import Stubs
from perdure.plugins.engines.lossless.pieces import Node, lowest, name_of
from perdure.plugins.engines.lossless.store import Store
from perdure.records import Record

Kind: TypeAlias = Literal[
    "foreign_key", "not_covered", "twice", "view", "name", "sources", "count", "trust", "search", "journal",
    "payload",
]  # fmt: skip
_MOST = 100


class Finding(Record):
    """One thing that is wrong, and where."""

    kind: Kind
    detail: str


def check(store: Store, id: str) -> tuple[Finding, ...]:
    """All findings, a hundred at most. A session that is not stored has none."""
    with store.db.reading() as db:
        session = rows.session(db, id)
        if session is None:
            return ()
        found: list[Finding] = []
        for finding in _findings(store, db, id, session):
            found.append(finding)
            if len(found) == _MOST:
                break
        return tuple(found)


def _findings(store: Store, db: apsw.Connection, id: str, session: rows.Session) -> Iterator[Finding]:
    no = session.no
    nodes = {node.id: node for node in rows.nodes(db, no)}
    yield from _foreign_keys(db)
    yield from _coverage(db, no)
    for node in nodes.values():
        yield from _node(db, id, no, node)
    if rows.view(db, no) != derive(rows.raws(db, no), rows.nodes(db, no)):
        yield Finding("view", "it is not what path and summaries make")
    yield from _search(db, no)
    yield from _journal(store, id, session, nodes)
    broken = db.execute("select digest from payloads where session = ? and length(body) = 0", (no,))
    for (digest,) in broken:
        yield Finding("payload", f"{digest} is empty")


def _foreign_keys(db: apsw.Connection) -> Iterator[Finding]:
    for table, row, parent, _ in db.execute("pragma foreign_key_check"):
        yield Finding("foreign_key", f"{table} row {row} names no row of {parent}")


def _coverage(db: apsw.Connection, no: int) -> Iterator[Finding]:
    """Each message of the path is in the view or below exactly one of its summaries."""
    below = db.execute(
        "with recursive below(no) as (select summary from context_items where session = ? and summary "
        "is not null union all select child from sources join below on summary = below.no "
        "where child is not null) select m.entry from below join sources s on s.summary = below.no "
        "join messages m on m.no = s.message",
        (no,),
    )
    counts = Counter(entry for (entry,) in below)
    counts.update(
        entry
        for (entry,) in db.execute(
            "select m.entry from context_items c join messages m on m.no = c.message where c.session = ?",
            (no,),
        )
    )
    for raw in rows.raws(db, no):
        times = counts.pop(raw.entry, 0)
        if times != 1:
            yield Finding("twice" if times else "not_covered", f"{raw.entry} stands {times} times")
    for entry in counts:
        yield Finding("view", f"{entry} is not on the path")


def _node(db: apsw.Connection, id: str, no: int, node: Node) -> Iterator[Finding]:
    if node.id != name_of(id, node.sources, node.text):
        yield Finding("name", f"{node.id} does not name its text and sources")
    try:
        pieces = rows.pieces(db, no, node.sources)
    except LookupError as error:
        yield Finding("sources", f"{node.id} stands for {error}, which is not stored")
        return
    if node.messages != sum(piece.messages if isinstance(piece, Node) else 1 for piece in pieces):
        yield Finding("count", f"{node.id} counts {node.messages} messages")
    if node.trust != lowest(piece.trust for piece in pieces):
        yield Finding("trust", f"{node.id} is trusted as {node.trust}")
    stored = db.execute(
        "select count(*) from sources s join summaries n on n.no = s.summary "
        "where n.session = ? and n.id = ?",
        (no, node.id),
    ).get
    if stored != len(node.sources):
        yield Finding("sources", f"{node.id} has {stored} of {len(node.sources)} sources")


def _search(db: apsw.Connection, no: int) -> Iterator[Finding]:
    for table in ("messages", "summaries"):
        missing = db.execute(
            f"select count(*) from {table} t where t.session = ? and not exists "
            f"(select 1 from {table}_fts f where f.rowid = t.no)",
            (no,),
        ).get
        if missing:
            yield Finding("search", f"{missing} {table} can't be found by full text")


def _journal(store: Store, id: str, session: rows.Session, nodes: dict[str, Node]) -> Iterator[Finding]:
    journal = store.journal(id)
    if journal.size() < session.journal:
        yield Finding("journal", f"{journal.path.name} is shorter than what was made of it")
    told = {line.id for _, line in journal.read() if not isinstance(line, Stubs)}
    for name in nodes.keys() - told:
        yield Finding("journal", f"{name} is not in it")

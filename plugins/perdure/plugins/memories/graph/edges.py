"""Relations in the store: told, told again, ended, and settled where only one can hold at a time."""

from __future__ import annotations

from collections.abc import Collection

import apsw

from perdure.contracts.memories import Trust
from perdure.errors import UsageError
from perdure.plugins.memories.graph import names
from perdure.plugins.memories.graph.schema import rows
from perdure.plugins.memories.graph.settling import Statement, settle
from perdure.plugins.memories.trust import highest, rank
from perdure.records import Record


class Told(Record):
    """A relation as somebody told it; `source` and `target` are ids of entities, times in ms or None.

    `session` and `ref` (an entry or a call) tell where; `confidence` in 0 … 1.
    """

    source: int
    relation: str
    target: int
    session: str
    ref: str
    trust: Trust = "agent"
    valid_from: int | None = None
    valid_to: int | None = None
    confidence: float = 1.0


class Related(Record):
    """What came of it: the edge's id, whether it is new, and the ids of those it ended."""

    id: int
    new: bool
    ended: tuple[int, ...] = ()


def relate(db: apsw.Connection, agent: str, told: Told, functional: Collection[str], now: int) -> Related:
    """Store a relation, or what is told anew of one that is open. Raises `UsageError`."""
    if told.source == told.target:
        raise UsageError("source and target are the same: a relation needs two")
    if told.valid_from is not None and told.valid_to is not None and told.valid_to <= told.valid_from:
        raise UsageError("valid_to: must be later than valid_from")
    rkey = names.fold(told.relation)
    id = _open(db, agent, told, rkey)
    new = id is None
    if id is None:
        id = _add(db, agent, told, rkey, now)
    else:
        _again(db, id, told)
    db.execute(
        "insert or ignore into source values (?,?,?,?,?)", (id, told.session, told.ref, now, told.trust)
    )
    ended = settled(db, agent, told.source, rkey) if rkey in functional else ()
    return Related(id, new, tuple(one for one in ended if one != id))


def settled(db: apsw.Connection, agent: str, source: int, rkey: str) -> tuple[int, ...]:
    """Close and reopen what a functional relation's statements say now; ids of those that ended by it."""
    found = rows(
        db,
        "select id, dst_c, start, recorded, trust, closed_at, closed_by from edge "
        "where agent = ? and src_c = ? and rkey = ? and dst_c <> src_c",
        agent, source, rkey,
    )  # fmt: skip
    ends = settle(Statement(*row[:5]) for row in found)
    ended: list[int] = []
    for id, *_, closed_at, closed_by in found:
        end = ends[id]
        at, by = (end.at, end.by) if end else (None, None)
        if (at, by) != (closed_at, closed_by):
            db.execute("update edge set closed_at = ?, closed_by = ? where id = ?", (at, by, id))
            ended += [id] if closed_at is None else []
    return tuple(ended)


def resettled(db: apsw.Connection, agent: str, entity: int, functional: Collection[str]) -> None:
    """`settled` for all functional relations of an entity, after it was merged or lost edges."""
    for (rkey,) in rows(db, "select distinct rkey from edge where agent = ? and src_c = ?", agent, entity):
        if rkey in functional:
            settled(db, agent, entity, rkey)
        else:
            db.execute(
                "update edge set closed_at = null, closed_by = null where agent = ? and src_c = ? and rkey "
                "= ?",
                (agent, entity, rkey),
            )


def _open(db: apsw.Connection, agent: str, told: Told, rkey: str) -> int | None:
    """The edge of the same triple that still holds and doesn't say another beginning."""
    found = rows(
        db,
        "select id from edge where agent = ?1 and src_c = ?2 and rkey = ?3 and dst_c = ?4 "
        "and valid_to is null and closed_at is null "
        "and (valid_from is null or ?5 is null or valid_from = ?5) order by id limit 1",
        agent, told.source, rkey, told.target, told.valid_from,
    )  # fmt: skip
    return found[0][0] if found else None


def _add(db: apsw.Connection, agent: str, told: Told, rkey: str, now: int) -> int:
    db.execute(
        "insert into edge (agent, src, dst, src_c, dst_c, relation, rkey, valid_from, valid_to, recorded, "
        "confidence, trust, touched) values (?1,?2,?3,?2,?3,?4,?5,?6,?7,?8,?9,?10,?8)",
        (
            agent, told.source, told.target, told.relation, rkey, told.valid_from, told.valid_to, now,
            told.confidence, told.trust,
        ),
    )  # fmt: skip
    return db.last_insert_rowid()


def _again(db: apsw.Connection, id: int, told: Told) -> None:
    """Told again: the surer and the more trusted of both; what is trusted less changes nothing."""
    [(trust, confidence)] = rows(db, "select trust, confidence from edge where id = ?", id)
    if rank(told.trust) < rank(trust):
        if told.valid_to is not None:
            raise UsageError(f"r{id} was told by a more trusted source: what is untrusted can't end it")
        return
    db.execute(
        "update edge set valid_from = coalesce(?, valid_from), valid_to = ?, confidence = ?, trust = ? "
        "where id = ?",
        (told.valid_from, told.valid_to, max(confidence, told.confidence), highest(trust, told.trust), id),
    )

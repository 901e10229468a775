"""Consolidation: entities that are the same one become it, and each merge can be taken back.

Two are the same if the name of one (or of what was merged into it) is a name or alias of the other, their
kinds agree (or one has none yet), and no third one answers to that name: an alias that two share (`Bob` of
two people) merges nobody, nor does one that only something untrusted
told. What was taken apart again stays apart.
"""

from __future__ import annotations

from collections.abc import Collection

import apsw

from perdure.errors import UsageError
from perdure.plugins.memories.graph import names
from perdure.plugins.memories.graph.edges import resettled, settled
from perdure.plugins.memories.graph.entities import Entity, by_ids
from perdure.plugins.memories.graph.schema import rows
from perdure.plugins.memories.trust import rank
from perdure.records import Record

MAX_ROUNDS = 100
_SAME_NAME = """
select distinct e.canon, o.canon from entity e
join alias a on a.agent = e.agent and a.key = e.key join entity o on o.id = a.entity
where e.agent = ? and o.canon <> e.canon and (a.key = o.key or a.trust <> 'untrusted')
order by e.canon, o.canon
"""
_APART = """
select 1 from entity a join apart on apart.one = a.id join entity b on b.id = apart.other
where a.canon = ? and b.canon = ?
"""
_KEEP_APART = """
insert or ignore into apart select a.id, b.id from entity a join entity b
where (a.canon = ?1 and b.canon = ?2) or (a.canon = ?2 and b.canon = ?1)
"""


class Merge(Record):
    """One merge that was made: its number, for taking it back, and the names of both."""

    id: int
    kept: str
    gone: str


def consolidate(db: apsw.Connection, agent: str, functional: Collection[str], now: int) -> tuple[Merge, ...]:
    """Merge all that are the same; what was merged into what."""
    made: list[Merge] = []
    for _ in range(MAX_ROUNDS):
        pairs = _pairs(db, agent)
        if not pairs:
            break
        for one, other in pairs:
            found = by_ids(db, agent, [one, other])
            if len(found) == 2:  # an earlier pair of this round may have made them one
                made.append(_merge(db, agent, *_in_order(*found), functional, now))
    return tuple(made)


def undo(db: apsw.Connection, agent: str, id: int, functional: Collection[str]) -> Merge:
    """Take a merge back: both are there again, each with what was told of it. Raises `UsageError`."""
    row = db.execute(
        "select m.kept, m.gone, k.name, g.name, g.canon from merge m join entity k on k.id = m.kept "
        "join entity g on g.id = m.gone and g.into_id = m.kept where m.id = ? and m.agent = ? and not "
        "m.undone",
        (id, agent),
    ).fetchone()
    if row is None:
        raise UsageError(f"merge {id}: there is none that could be taken back")
    _, gone, kept_name, gone_name, canon = row
    db.execute("update merge set undone = 1 where id = ?", (id,))
    db.execute("update entity set into_id = null where id = ?", (gone,))
    below = (
        "with recursive below (id) as (select ?1 union "
        "select e.id from entity e join below on e.into_id = below.id)"
    )
    db.execute(f"{below} update entity set canon = ?1 where id in below", (gone,))
    for told, current in (("src", "src_c"), ("dst", "dst_c")):
        db.execute(f"{below} update edge set {current} = ?1 where {told} in below", (gone,))
    db.execute(_KEEP_APART, (canon, gone))
    for entity in (canon, gone):
        _settle_around(db, agent, entity, functional)
    return Merge(id, kept_name, gone_name)


def _pairs(db: apsw.Connection, agent: str) -> list[tuple[int, int]]:
    """Entities with the one other that has the same name, neither of them twice."""
    others: dict[int, list[int]] = {}
    for one, other in rows(db, _SAME_NAME, agent):
        others.setdefault(one, []).append(other)
    pairs: list[tuple[int, int]] = []
    taken: set[int] = set()
    for one, found in others.items():
        same = [other for other in found if _agree(db, agent, one, other)]
        if len(same) == 1 and not {one, *same} & taken:
            pairs.append((one, same[0]))
            taken |= {one, *same}
    return pairs


def _agree(db: apsw.Connection, agent: str, one: int, other: int) -> bool:
    kinds = {entity.kind for entity in by_ids(db, agent, [one, other])} - {names.UNSPECIFIED}
    if len(kinds) > 1:
        return False
    return not rows(db, _APART, one, other)


def _in_order(one: Entity, other: Entity) -> tuple[Entity, Entity]:
    """The one that stays: it is trusted more; else it has a kind; else it is older."""

    def last(entity: Entity) -> tuple[int, bool, int]:
        return -rank(entity.trust), entity.kind == names.UNSPECIFIED, entity.id

    first, second = sorted((one, other), key=last)
    return first, second


def _merge(
    db: apsw.Connection, agent: str, kept: Entity, gone: Entity, functional: Collection[str], now: int
) -> Merge:
    db.execute("insert into merge (agent, at, kept, gone) values (?,?,?,?)", (agent, now, kept.id, gone.id))
    id = db.last_insert_rowid()
    db.execute("update entity set into_id = ? where id = ?", (kept.id, gone.id))
    db.execute("update entity set canon = ? where canon = ?", (kept.id, gone.id))
    db.execute("update edge set src_c = ?2 where agent = ?1 and src_c = ?3", (agent, kept.id, gone.id))
    db.execute("update edge set dst_c = ?2 where agent = ?1 and dst_c = ?3", (agent, kept.id, gone.id))
    _settle_around(db, agent, kept.id, functional)
    return Merge(id, kept.name, gone.name)


def _settle_around(db: apsw.Connection, agent: str, entity: int, functional: Collection[str]) -> None:
    """What holds of an entity, and of those whose relations lead to it: two targets may be one now."""
    resettled(db, agent, entity, functional)
    leading = "select distinct src_c, rkey from edge where agent = ? and dst_c = ?"
    for source, rkey in rows(db, leading, agent, entity):
        if rkey in functional:
            settled(db, agent, source, rkey)

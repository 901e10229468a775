"""Forgetting: entities that bear a name and all that is said of them, or single relations."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

import apsw

from perdure.contracts.memories import Forgotten
from perdure.plugins.memories.graph import names
from perdure.plugins.memories.graph.edges import resettled
from perdure.plugins.memories.graph.schema import rows
from perdure.plugins.memories.saying import is_joined

_REF = re.compile(r"(?:graph:)?([er])(\d{1,18})")
_MERGES = "select id from merge where kept = ?1 or gone = ?1"


def forget(db: apsw.Connection, agent: str, text: str, functional: Collection[str]) -> Forgotten:
    """Take away what `text` names: a reference (`e12`, `r7`), a relation (`Ada WorksAt Acme`), or a name.

    A name takes all entities with it that are called so, or whose name holds it as words; with an entity go
    those merged with it, its aliases, index entries and relations, and what those relations had ended holds
    again.
    """
    found = _REF.fullmatch(text.strip())
    if found and found[1] == "r":
        return _without(db, agent, (), [int(found[2])], functional)
    if found:
        return _without(db, agent, [int(found[2])], (), functional)
    wanted = names.key(text)
    edges = _said(db, agent, wanted)
    entities = [] if edges else _called(db, agent, wanted)
    return _without(db, agent, entities, edges, functional)


def _called(db: apsw.Connection, agent: str, wanted: str) -> list[int]:
    if len(wanted) < 2:
        test = "a.key = ?2"
    elif is_joined(wanted):
        test = "instr(a.key, ?2)"
    else:
        test = "instr(' ' || a.key || ' ', ' ' || ?2 || ' ')"
    sql = "select distinct e.canon from alias a join entity e on e.id = a.entity where a.agent = ?1 and "
    return [id for (id,) in rows(db, sql + test, agent, wanted)]


def _said(db: apsw.Connection, agent: str, wanted: str) -> list[int]:
    """Edges that are told by exactly this sentence."""
    ids: list[int] = []
    for label, rkey in rows(db, "select distinct relation, rkey from edge where agent = ?", agent):
        for words in {names.key(label), names.key(re.sub(r"(?<=[a-z])(?=[A-Z])", " ", label))}:
            source, between, target = wanted.partition(words if is_joined(wanted) else f" {words} ")
            if between:
                ids += _between(db, agent, source.strip(), rkey, target.strip())
    return ids


def _between(db: apsw.Connection, agent: str, source: str, rkey: str, target: str) -> list[int]:
    side = "select e.canon from alias a join entity e on e.id = a.entity where a.agent = ?1 and a.key = "
    ends = f"src_c in ({side} ?3) and dst_c in ({side} ?4)"
    sql = f"select id from edge where agent = ?1 and rkey = ?2 and {ends}"
    return [id for (id,) in rows(db, sql, agent, rkey, source, target)]


def _without(
    db: apsw.Connection,
    agent: str,
    entities: Iterable[int],
    edges: Iterable[int],
    functional: Collection[str],
) -> Forgotten:
    gone = _groups(db, agent, entities)
    lost = _edges(db, agent, gone, edges)
    merges = {merge for id in gone for merge in rows(db, _MERGES, id)}
    touched = {source for _, source in lost} - set(gone)
    db.executemany("delete from edge where id = ?", [(id,) for id, _ in lost])
    db.executemany("delete from entity where id = ?", [(id,) for id in gone])
    for source in sorted(touched):
        resettled(db, agent, source, functional)
    named = (*(f"graph:e{id}" for id in gone), *(f"graph:r{id}" for id, _ in lost))
    return Forgotten(notes=len(gone), chunks=len(lost), derived=len(merges), sources=named)


def _groups(db: apsw.Connection, agent: str, ids: Iterable[int]) -> list[int]:
    """All entities that are one with these, each once."""
    sql = "select g.id from entity e join entity g on g.canon = e.canon where e.id = ? and e.agent = ?"
    return sorted({one for id in ids for (one,) in rows(db, sql, id, agent)})


def _edges(
    db: apsw.Connection, agent: str, entities: list[int], edges: Iterable[int]
) -> list[tuple[int, int]]:
    """Ids of edges that go, with whose relations they were; a relation goes with all times it was told."""
    hanging = "select id, src_c from edge where src = ?1 or dst = ?1"
    same = (
        "select x.id, x.src_c from edge e join edge x on x.agent = e.agent and x.src_c = e.src_c and x.rkey "
        "= e.rkey "
        "and x.dst_c = e.dst_c where e.id = ? and e.agent = ?"
    )
    found = {pair for id in entities for pair in rows(db, hanging, id)}
    return sorted(found | {pair for id in edges for pair in rows(db, same, id, agent)})

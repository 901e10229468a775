"""Questions to the graph: by pattern, around an entity, and along paths, all as of a moment.

Walks are recursive queries over (entity, hop) pairs, each once, so that cycles end and a hub costs its edges
once per hop; they stop at `MAX_REACH` pairs. Within equal distance the stronger relation comes first.
Strength is confidence, lowered by the time since it was last told or used (half-life), raised by how often it
was used, lower for what is untrusted or over.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import apsw
import msgspec
from msgspec.structs import replace

from perdure.contracts.memories import Trust
from perdure.plugins.memories.trust import lowest
from perdure.records import Record

MAX_REACH = 20_000
MAX_ROWS = 500
MAX_PATHS = 40
MAX_HOPS = 5

_HOLDS = "(e.start <= :at and coalesce(e.valid_to, :at + 1) > :at and coalesce(e.closed_at, :at + 1) > :at)"
_STRENGTH = (
    "e.confidence * (0.5 + 0.5 * pow(0.5, max(0, :now - max(e.touched, e.recorded)) / :half)) "
    "* (0.7 + 0.3 * (1 - pow(0.5, e.accesses / 4.0))) * iif(e.trust = 'untrusted', 0.7, 1.0) "
    f"* iif({_HOLDS}, 1.0, 0.5)"
)
_EDGE = (
    "e.id, s.id, s.name, s.kind, e.relation, d.id, d.name, d.kind, e.valid_from, "
    "min(coalesce(e.valid_to, e.closed_at), coalesce(e.closed_at, e.valid_to)), e.recorded, e.confidence, "
    f"e.trust, s.trust, d.trust, {_STRENGTH} as strength, not {_HOLDS}"
)
_JOIN = "edge e join entity s on s.id = e.src_c join entity d on d.id = e.dst_c"
_SEEN = f"e.agent = :agent and e.src_c <> e.dst_c and (:past or {_HOLDS})"
_BY_RELATION = "(:rkey is null or e.rkey = :rkey)"
_REACH = f"""
reach (node, hop) as (
    select value, 0 from json_each(:from)
    union select e.dst_c, hop + 1 from reach cross join edge e on e.src_c = node
        where hop < :hops and {_BY_RELATION} and {_SEEN}
    union select e.src_c, hop + 1 from reach cross join edge e on e.dst_c = node
        where hop < :hops and {_BY_RELATION} and {_SEEN}
    limit {MAX_REACH}
),
dist (node, hop) as materialized (select node, min(hop) from reach group by node)
"""


class Edge(Record):
    """One relation as it is shown. Times in ms; `until`: when it ended or was superseded, if it did.

    `told_in`: sessions, and in them entries or calls, the latest three first.
    """

    id: int
    source_id: int
    source: str
    source_kind: str
    relation: str
    target_id: int
    target: str
    target_kind: str
    since: int | None
    until: int | None
    recorded: int
    confidence: float
    trust: Trust
    strength: float
    past: bool
    told_in: tuple[tuple[str, str], ...] = ()

    @property
    def ref(self) -> str:
        """How calls and `forget` name it."""
        return f"r{self.id}"


class Scope(Record):
    """Whose graph, as of which moment (`past`: whenever), at what time it is asked, and the half-life in
    ms.
    """

    agent: str
    at: int
    now: int
    half: float
    past: bool = False
    rkey: str | None = None


def matching(
    db: apsw.Connection,
    scope: Scope,
    sources: Iterable[int] | None,
    targets: Iterable[int] | None,
    limit: int,
) -> tuple[Edge, ...]:
    """Relations of these sources and targets (`None`: any), strongest first."""
    ends = "".join(
        f" and e.{column} in (select value from json_each(:{column}))"
        for column, ids in (("src_c", sources), ("dst_c", targets))
        if ids is not None
    )
    told = {"src_c": _json(sources), "dst_c": _json(targets)}
    by_relation = " and e.rkey = :rkey" if scope.rkey is not None else ""
    rows = db.execute(
        f"select {_EDGE} from {_JOIN} where {_SEEN}{by_relation}{ends} order by strength desc, e.id limit "
        f":limit",
        {**_bound(scope), **told, "limit": min(4 * limit, MAX_ROWS)},
    )
    return _distinct(db, rows)[:limit]


def around(db: apsw.Connection, scope: Scope, ids: Iterable[int], hops: int, limit: int) -> tuple[Edge, ...]:
    """Relations within so many hops of the entities, nearest first, then strongest."""
    rows = db.execute(
        f"with recursive {_REACH}, near (edge, hop) as (select id, min(hop) from ("
        "select e.id, a.hop from dist a cross join edge e on e.agent = :agent and e.src_c = a.node "
        "where a.hop < :hops union all "
        "select e.id, a.hop from dist a cross join edge e on e.agent = :agent and e.dst_c = a.node "
        f"where a.hop < :hops) group by id) select {_EDGE} from near cross join edge e on e.id = near.edge "
        f"join entity s on s.id = e.src_c join entity d on d.id = e.dst_c where {_SEEN} and {_BY_RELATION} "
        "order by near.hop, strength desc, e.id limit :limit",
        {**_bound(scope), "from": _json(ids), "hops": hops, "limit": min(4 * limit, MAX_ROWS)},
    )
    return _distinct(db, rows)[:limit]


def paths(
    db: apsw.Connection, scope: Scope, sources: Iterable[int], targets: Iterable[int], hops: int, limit: int
) -> tuple[tuple[Edge, ...], ...]:
    """Shortest ways between the entities, whichever way their relations point; strongest first."""
    rows = db.execute(
        f"with recursive {_REACH}, back (node, hop, trail) as ("
        "select node, hop, '' from dist where node in (select value from json_each(:to)) "
        "union all select e.src_c, back.hop - 1, e.id || ',' || trail from back join edge e on e.dst_c = "
        "back.node "
        f"join dist on dist.node = e.src_c and dist.hop = back.hop - 1 where {_SEEN} and {_BY_RELATION} "
        "union all select e.dst_c, back.hop - 1, e.id || ',' || trail from back join edge e on e.src_c = "
        "back.node "
        f"join dist on dist.node = e.dst_c and dist.hop = back.hop - 1 where {_SEEN} and {_BY_RELATION} "
        f"order by 2 limit {MAX_REACH}) "
        f"select trail from back where hop = 0 and trail <> '' limit {MAX_PATHS}",
        {**_bound(scope), "from": _json(sources), "to": _json(targets), "hops": hops},
    )
    trails = [[int(id) for id in trail.split(",")[:-1]] for (trail,) in rows]
    known = {edge.id: edge for edge in by_ids(db, scope, {id for trail in trails for id in trail})}
    ways = {_triples(way): way for trail in trails if (way := tuple(known[id] for id in trail))}
    return tuple(sorted(ways.values(), key=_weakness))[:limit]


def used(db: apsw.Connection, edges: Iterable[Edge], now: int) -> None:
    """Count that these were shown: it enters their rank, and what is used doesn't fade."""
    shown = tuple(edges)
    db.execute(
        "update edge set accesses = accesses + 1, touched = ? where id in (select value from json_each(?))",
        (now, _json(edge.id for edge in shown)),
    )
    ends = {id for edge in shown for id in (edge.source_id, edge.target_id)}
    db.execute(
        "update entity set accesses = accesses + 1, touched = ? where id in (select value from json_each(?))",
        (now, _json(sorted(ends))),
    )


def by_ids(db: apsw.Connection, scope: Scope, ids: Collection[int]) -> tuple[Edge, ...]:
    """These edges, whether they hold or not."""
    if not ids:
        return ()
    rows = db.execute(
        f"select {_EDGE} from {_JOIN} where e.agent = :agent and e.id in (select value from json_each(:ids))",
        {**_bound(scope), "ids": _json(sorted(ids))},
    )
    return tuple(_edge(db, row) for row in rows)


def _bound(scope: Scope) -> dict[str, object]:
    return {
        "agent": scope.agent, "at": scope.at, "now": scope.now, "half": scope.half, "past": scope.past,
        "rkey": scope.rkey,
    }  # fmt: skip


def _edge(db: apsw.Connection, row: tuple[Any, ...]) -> Edge:
    *head, trust, source_trust, target_trust, strength, past = row
    least = lowest((trust, source_trust, target_trust))
    edge = Edge(*(*head, least, round(strength, 6), bool(past)))
    told = db.execute(
        "select session, ref from edge x join source on source.edge = x.id where x.agent = "
        "(select agent from edge where id = ?1) and x.src_c = ?2 and x.dst_c = ?3 and x.relation = ?4 "
        "group by session, ref order by max(at) desc, session, ref limit 3",
        (edge.id, edge.source_id, edge.target_id, edge.relation),
    )
    return replace(edge, told_in=tuple(told))


def _distinct(db: apsw.Connection, rows: Iterable[tuple[Any, ...]]) -> tuple[Edge, ...]:
    """What was told of two entities that are one now is shown once: the first of each."""
    found: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for row in rows:
        found.setdefault((*(row[n] for n in (1, 4, 5)), row[9], row[-1]), row)
    return tuple(_edge(db, row) for row in found.values())


def _triples(way: tuple[Edge, ...]) -> tuple[tuple[int, str, int], ...]:
    return tuple((edge.source_id, edge.relation, edge.target_id) for edge in way)


def _weakness(way: tuple[Edge, ...]) -> tuple[int, float, tuple[int, ...]]:
    strength = 1.0
    for edge in way:
        strength *= edge.strength
    return len(way), -round(strength, 6), tuple(edge.id for edge in way)


def _json(ids: Iterable[int] | None) -> str:
    return msgspec.json.encode(None if ids is None else list(ids)).decode()

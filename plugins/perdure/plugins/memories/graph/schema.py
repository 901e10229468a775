"""The one SQLite file: all agents in it, and every row and every index entry carries whose it is.

An entity that was merged stays (`into_id`), and `canon` names the one that stands for all merged ones; an
edge keeps the ends it was told with (`src`, `dst`) beside those that hold now (`src_c`, `dst_c`). So a merge
can be taken back, and deleting an entity deletes all that says its name.
"""

from __future__ import annotations

from typing import Any

import apsw

_TABLES = """
create table entity (
    id integer primary key, agent text not null, kind text not null, name text not null, key text not null,
    into_id integer references entity (id) on delete set null, canon integer not null, trust text not null,
    created integer not null, touched integer not null, accesses integer not null default 0
);
create index entity_key on entity (agent, key);
create index entity_canon on entity (canon);
create index entity_into on entity (into_id) where into_id is not null;
create table alias (
    entity integer not null references entity (id) on delete cascade, agent text not null, key text not null,
    name text not null, trust text not null, primary key (agent, key, entity)
) without rowid;
create index alias_entity on alias (entity);
create table term (
    entity integer not null references entity (id) on delete cascade, agent text not null, term text not null,
    key text not null, size integer not null, primary key (agent, term, entity, key)
) without rowid;
create index term_entity on term (entity);
create table edge (
    id integer primary key, agent text not null,
    src integer not null references entity (id) on delete cascade,
    dst integer not null references entity (id) on delete cascade,
    src_c integer not null, dst_c integer not null, relation text not null, rkey text not null,
    valid_from integer, valid_to integer, recorded integer not null,
    start integer generated always as (  -- of what was over before it was told only the end is known
        coalesce(valid_from, case when valid_to <= recorded then -62135596800000 else recorded end)
    ) virtual,
    closed_at integer, closed_by integer references edge (id) on delete set null,
    confidence real not null, trust text not null,
    touched integer not null, accesses integer not null default 0
);
create index edge_src on edge (agent, src_c, rkey, dst_c);
create index edge_dst on edge (agent, dst_c, rkey);
create index edge_told_src on edge (src);
create index edge_told_dst on edge (dst);
create index edge_closed_by on edge (closed_by) where closed_by is not null;
create table source (
    edge integer not null references edge (id) on delete cascade, session text not null, ref text not null,
    at integer not null, trust text not null, primary key (edge, session, ref)
) without rowid;
create table merge (
    id integer primary key, agent text not null, at integer not null,
    kept integer not null references entity (id) on delete cascade,
    gone integer not null references entity (id) on delete cascade,
    undone integer not null default 0
);
create index merge_gone on merge (gone);
create index merge_kept on merge (kept);
create table apart (
    one integer not null references entity (id) on delete cascade,
    other integer not null references entity (id) on delete cascade, primary key (one, other)
) without rowid;
create index apart_other on apart (other);
"""

MIGRATIONS = (_TABLES,)


def rows(db: apsw.Connection, sql: str, *told: object) -> list[tuple[Any, ...]]:
    """All rows of a query, read before anything else is asked."""
    return list(db.execute(sql, told))

"""Entities in the store: found by any of their names, added once, known by what they are called since."""

from __future__ import annotations

import apsw
import msgspec

from perdure.contracts.memories import Trust
from perdure.errors import UsageError
from perdure.plugins.memories.graph import names
from perdure.plugins.memories.trust import highest, rank
from perdure.records import Record

MAX_CANDIDATES = 50
MAX_MENTIONED = 8
MAX_QUERY = 4_000
LEAST_SHARE = 0.5  # of an entity's words that a text must hold to be about it


class Entity(Record):
    """One that stands for itself and for those merged into it."""

    id: int
    kind: str
    name: str
    trust: Trust

    @property
    def ref(self) -> str:
        """How results and calls name it where the name doesn't suffice."""
        return f"e{self.id}"


def find(db: apsw.Connection, agent: str, name: str, *, vouched: bool = False) -> tuple[Entity, ...]:
    """All of that name, alias or reference (`e12`), whatever their kind; oldest first.

    `vouched`: not by aliases that only something untrusted gave them.
    """
    if name[:1] == "e" and name[1:].isascii() and name[1:].isdigit() and len(name) < 19:
        found = by_ids(db, agent, [int(name[1:])])
        if found:
            return found
    rows = db.execute(
        "select distinct e.canon from alias a join entity e on e.id = a.entity where a.agent = ? and a.key "
        "= ? "
        "and (not ? or a.key = e.key or a.trust <> 'untrusted') order by e.canon limit ?",
        (agent, names.key(name), vouched, MAX_CANDIDATES),
    )
    return by_ids(db, agent, [row[0] for row in rows])


def by_ids(db: apsw.Connection, agent: str, ids: list[int]) -> tuple[Entity, ...]:
    """Those of this agent; a merged one's id gives the one that stands for it."""
    found: dict[int, Entity] = {}
    for id in ids:
        row = db.execute(
            "select c.id, c.kind, c.name, c.trust from entity e join entity c on c.id = e.canon "
            "where e.id = ? and e.agent = ?",
            (id, agent),
        ).fetchone()
        if row is not None:
            found[row[0]] = Entity(*row)
    return tuple(found.values())


def the(db: apsw.Connection, agent: str, name: str) -> Entity | None:
    """The only one of that name, if there is one. Raises `UsageError` where there are several."""
    found = find(db, agent, name)
    if len(found) > 1:
        raise _ambiguous(name, found)
    return found[0] if found else None


def obtain(
    db: apsw.Connection, agent: str, name: str, kind: str, guess: str, trust: Trust, now: int
) -> Entity:
    """The entity of that name, added if there is none. `kind` as told ("": not), `guess` where it isn't.

    One whose kind was not told yet takes it on. Raises `UsageError` where the name alone leaves several.
    """
    found = find(db, agent, name, vouched=trust != "untrusted")
    fitting = [one for one in found if one.kind == (kind or guess)]
    if not kind and len(found) == 1:
        return _seen(db, found[0], trust)
    if fitting:
        return _seen(db, fitting[0], trust)
    if not kind and found:
        raise _ambiguous(name, found)
    vague = [one for one in found if one.kind == names.UNSPECIFIED]
    if len(vague) == 1 and rank(trust) >= rank(vague[0].trust):
        db.execute("update entity set kind = ? where id = ?", (kind, vague[0].id))
        return _seen(db, by_ids(db, agent, [vague[0].id])[0], trust)
    return _add(db, agent, name, kind or guess, trust, now)


def call(db: apsw.Connection, agent: str, id: int, name: str, trust: Trust) -> None:
    """One more name of an entity; a second time changes nothing, but that it may be trusted now."""
    db.execute(
        "insert into alias values (?,?,?,?,?) on conflict do update set trust = excluded.trust "
        "where trust = 'untrusted'",
        (id, agent, names.key(name), name, trust),
    )
    found = names.terms(name)
    for term in found:
        db.execute(
            "insert or ignore into term values (?,?,?,?,?)", (id, agent, term, names.key(name), len(found))
        )


def aliases(db: apsw.Connection, id: int) -> tuple[str, ...]:
    """All names of an entity and of those merged into it, sorted."""
    rows = db.execute(
        "select distinct a.name from entity e join alias a on a.entity = e.id where e.canon = ? order by "
        "a.name",
        (id,),
    )
    return tuple(row[0] for row in rows)


def mentioned(db: apsw.Connection, agent: str, text: str) -> tuple[int, ...]:
    """Entities that a text names, those first of whose name it holds the largest part."""
    wanted = names.terms(text[:MAX_QUERY], MAX_QUERY)
    rows = db.execute(
        "select e.canon, count(*) * 1.0 / t.size as share from term t join entity e on e.id = t.entity "
        "where t.agent = ? and t.term in (select value from json_each(?)) group by t.entity, t.key "
        "having share >= ? order by share desc, e.canon limit ?",
        (agent, msgspec.json.encode(wanted).decode(), LEAST_SHARE, MAX_CANDIDATES),
    )
    return tuple(dict.fromkeys(row[0] for row in rows))[:MAX_MENTIONED]


def _add(db: apsw.Connection, agent: str, name: str, kind: str, trust: Trust, now: int) -> Entity:
    db.execute(
        "insert into entity (agent, kind, name, key, canon, trust, created, touched) values "
        "(?,?,?,?,0,?,?,?)",
        (agent, kind, name, names.key(name), trust, now, now),
    )
    id = db.last_insert_rowid()
    db.execute("update entity set canon = id where id = ?", (id,))
    call(db, agent, id, name, trust)
    return Entity(id, kind, name, trust)


def _seen(db: apsw.Connection, one: Entity, trust: Trust) -> Entity:
    """Named again, by somebody more trusted: then the name is."""
    best = highest(one.trust, trust)
    if best != one.trust:
        db.execute("update entity set trust = ? where id = ?", (best, one.id))
    return Entity(one.id, one.kind, one.name, best)


def _ambiguous(name: str, found: tuple[Entity, ...]) -> UsageError:
    listed = ", ".join(f"{one.ref} ({one.name}, {one.kind})" for one in found[:5])
    return UsageError(f"{name!r} names several: {listed}; give one of these references instead of the name")

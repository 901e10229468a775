"""`Graph`: the one file of a host, opened at first use; every call is one transaction. All of it blocks."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import apsw

from perdure.contracts.memories import Forgotten, Trust
from perdure.plugins.memories.graph import entities, forgetting, merging, names, reading
from perdure.plugins.memories.graph.edges import Related, Told, relate
from perdure.plugins.memories.graph.entities import Entity
from perdure.plugins.memories.graph.reading import Edge, Scope
from perdure.plugins.memories.graph.schema import MIGRATIONS
from perdure.plugins.opened import Opened
from perdure.records import Record


class Statement(Record):
    """A relation between names, as it was told. Kinds are "" and times None where they were not."""

    source: str
    relation: str
    target: str
    session: str
    ref: str
    source_kind: str = ""
    target_kind: str = ""
    trust: Trust = "agent"
    valid_from: int | None = None
    valid_to: int | None = None
    confidence: float = 1.0


class Stored(Record):
    """What came of a statement: the entities, the edge, and what it ended."""

    source: Entity
    target: Entity
    related: Related
    ended: tuple[Edge, ...] = ()


class Question(Record):
    """What is asked; see the tool."""

    source: str = ""
    relation: str = ""
    target: str = ""
    hops: int = 1
    at: int | None = None
    past: bool = False
    limit: int = 20


class Answer(Record):
    """Edges that fit, or ways of several edges; names that nobody told."""

    edges: tuple[Edge, ...] = ()
    paths: tuple[tuple[Edge, ...], ...] = ()
    unknown: tuple[str, ...] = ()


class Graph:
    """`functional`: folded names of relations with one target at a time; `half`: of strength, in ms."""

    def __init__(self, path: Path, functional: Iterable[str], half: float, *, sync: bool = True) -> None:
        self._half, self._functional = half, frozenset(map(names.fold, functional))
        self._db = Opened(path, MIGRATIONS, sync=sync)

    def add(self, agent: str, name: str, kind: str, also: Iterable[str], trust: Trust, now: int) -> Entity:
        """An entity with its other names, new or known. Raises `UsageError`, `StorageFailed`."""
        with self._db.writing() as db:
            entity = entities.obtain(db, agent, name, kind, names.UNSPECIFIED, trust, now)
            for alias in also:
                entities.call(db, agent, entity.id, alias, trust)
            return entities.by_ids(db, agent, [entity.id])[0]

    def aliases(self, agent: str, id: int) -> tuple[str, ...]:
        """All names of an entity."""
        with self._db.reading() as db:
            return entities.aliases(db, id) if entities.by_ids(db, agent, [id]) else ()

    def tell(self, agent: str, said: Iterable[Statement], now: int) -> tuple[Stored, ...]:
        """Store statements, all or none; their entities are added as needed. Raises `UsageError`."""
        with self._db.writing() as db:
            return tuple(self._tell(db, agent, one, now) for one in said)

    def ask(self, agent: str, question: Question, now: int) -> Answer:
        """Relations by pattern, neighbourhood (one end, several hops) or paths (both ends). Raises
        `UsageError`.
        """
        with self._db.writing() as db:
            answer = self._ask(db, agent, question, now)
            reading.used(db, (*answer.edges, *(edge for path in answer.paths for edge in path)), now)
            return answer

    def about(self, agent: str, text: str, now: int, limit: int) -> Answer:
        """What bears on a text: relations of the entities it names. Counts as no use, else it fed itself."""
        with self._db.reading() as db:
            scope = self._scope(agent, Question(), now)
            named = entities.mentioned(db, agent, text)
            return Answer(reading.around(db, scope, named, 1, limit) if named else ())

    def consolidate(self, agent: str, now: int) -> tuple[merging.Merge, ...]:
        """Merge what is the same; what was merged."""
        with self._db.writing() as db:
            return merging.consolidate(db, agent, self._functional, now)

    def undo(self, agent: str, merge: int) -> merging.Merge:
        """Take a merge back. Raises `UsageError`."""
        with self._db.writing() as db:
            return merging.undo(db, agent, merge, self._functional)

    def forget(self, agent: str, text: str) -> Forgotten:
        """Take away what `text` names, to the last byte in the file."""
        with self._db.writing() as db:
            forgotten = forgetting.forget(db, agent, text, self._functional)
        if forgotten.sources:
            self._db.scrub()
        return forgotten

    def close(self) -> None:
        """Close the file; a later call opens it again."""
        self._db.close()

    def _tell(self, db: apsw.Connection, agent: str, one: Statement, now: int) -> Stored:
        guesses = names.ends(one.relation)
        source = entities.obtain(db, agent, one.source, one.source_kind, guesses[0], one.trust, now)
        target = entities.obtain(db, agent, one.target, one.target_kind, guesses[1], one.trust, now)
        told = Told(
            source.id, one.relation, target.id, one.session, one.ref, one.trust, one.valid_from, one.valid_to,
            one.confidence,
        )  # fmt: skip
        related = relate(db, agent, told, self._functional, now)
        scope = self._scope(agent, Question(past=True), now)
        return Stored(source, target, related, reading.by_ids(db, scope, related.ended))

    def _ask(self, db: apsw.Connection, agent: str, question: Question, now: int) -> Answer:
        ends = {name: entities.find(db, agent, name) for name in (question.source, question.target) if name}
        unknown = tuple(name for name, found in ends.items() if not found)
        if unknown:
            return Answer(unknown=unknown)
        source = [one.id for one in ends[question.source]] if question.source else None
        target = [one.id for one in ends[question.target]] if question.target else None
        scope = self._scope(agent, question, now)
        hops, limit = min(question.hops, reading.MAX_HOPS), question.limit
        if hops == 1 or (source is None and target is None):
            return Answer(reading.matching(db, scope, source, target, limit))
        if source is not None and target is not None:
            return Answer(paths=reading.paths(db, scope, source, target, hops, limit))
        return Answer(reading.around(db, scope, source or target or (), hops, limit))

    def _scope(self, agent: str, question: Question, now: int) -> Scope:
        rkey = names.fold(question.relation) or None
        at = now if question.at is None else question.at
        return Scope(agent, at, now, self._half, question.past, rkey)

"""What an agent's sessions noted, and what each session was shown of it: one SQLite file for each agent.

A note names its session and entry. What a session is shown are references to notes, so that forgetting a
session takes its notes out of every other one. All of it blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from perdure.context.text.characters import encodable
from perdure.contracts import Trust
from perdure.edges.sqlite import Database, rows, value
from perdure.plugins.engines.cross_session.matters import Kind, Note, flat
from perdure.records import Record

CANDIDATES = 500
"""Notes of other sessions that are looked at, the newest."""

MIGRATIONS = (
    """
    create table note (
        id integer primary key, session text not null, key text not null, entry text not null,
        place integer not null, text text not null, flat text not null, kind text not null,
        trust text not null, at integer not null, unique (session, entry, place)
    ) strict;
    create index note_at on note (at);
    create table turn (
        session text not null, entry text not null, key text not null, primary key (session, entry)
    ) strict, without rowid;
    create table loaded (
        session text primary key, key text not null, at integer not null
    ) strict, without rowid;
    create table shown (
        session text not null references loaded on delete cascade, place integer not null,
        note integer not null references note on delete cascade, primary key (session, place)
    ) strict, without rowid;
    create index shown_note on shown (note);
    """,
)
_NEWEST = """
select id, session, entry, text, kind, trust, max(at) as newest from note where session != ?
group by flat order by newest desc, id desc limit ?
"""
_SHOWN = """
select note.id, note.session, note.entry, text, kind, trust, note.at from shown
join note on note.id = shown.note where shown.session = ? order by shown.place
"""


class Told(Record):
    """A note of another session; `at` in milliseconds since 1970."""

    id: int
    session: str
    entry: str
    text: str
    kind: Kind
    trust: Trust
    at: int


class Notes:
    """The notes of one agent. Raises `StorageFailed`, `DamagedStore`."""

    def __init__(self, path: Path) -> None:
        self._database = Database(path, migrations=MIGRATIONS)

    def close(self) -> None:
        self._database.close()

    def heard(self, session: str, entry: str) -> bool:
        """Whether the turn that ended with this entry was noted already."""
        with self._database.reading() as db:
            found = value(db, "select 1 from turn where session = ? and entry = ?", session, entry)
        return found is not None

    def note(self, session: str, key: str, entry: str, notes: Sequence[Note], at: int) -> int:
        """Keep the notes of the turn that ended with `entry`; how many. A second time changes nothing."""
        with self._database.writing() as db:
            rows(db, "insert or ignore into turn values (?, ?, ?)", session, entry, key)
            fresh = bool(db.changes())
            for each in notes if fresh else ():
                text = encodable(each.text)
                row = (session, key, each.entry, each.place, text, flat(text), each.kind, each.trust, at)
                rows(db, f"insert or ignore into note values (null{', ?' * 9})", *row)
            rows(db, "update loaded set at = ? where session = ?", at, session)
        return len(notes) if fresh else 0

    def others(self, session: str) -> list[Told]:
        """The newest notes of the agent's other sessions, each text once."""
        with self._database.reading() as db:
            return [Told(*row) for row in rows(db, _NEWEST, session, CANDIDATES)]

    def show(self, session: str, key: str, notes: Sequence[Told], at: int) -> None:
        """What the session is shown from now on."""
        with self._database.writing() as db:
            rows(db, "insert or replace into loaded values (?, ?, ?)", session, key, at)
            rows(db, "delete from shown where session = ?", session)
            made = ((session, place, each.id) for place, each in enumerate(notes))
            db.executemany("insert into shown values (?, ?, ?)", made)

    def loaded(self, session: str) -> int | None:
        """When notes were last chosen for the session, or it last used them; `None`: never."""
        with self._database.reading() as db:
            at: int | None = value(db, "select at from loaded where session = ?", session)
        return at

    def shown(self, session: str) -> list[Told]:
        """What the session is shown, in order."""
        with self._database.reading() as db:
            return [Told(*row) for row in rows(db, _SHOWN, session)]

    def forget(self, session: str) -> int:
        """Everything of a session, by its id or its key; how many notes. No byte of it stays in the file."""
        with self._database.writing() as db:
            rows(db, "delete from note where ? in (session, key)", session)
            gone = db.changes()
            rows(db, "delete from turn where ? in (session, key)", session)
            rows(db, "delete from loaded where ? in (session, key)", session)
        self._database.scrub()
        return gone


def path_of(store: Path, agent: str) -> Path:
    """Where an agent's notes are; a name says nothing about the file system."""
    return store / f"{sha256(agent.encode('utf-8', 'replace')).hexdigest()[:32]}.sqlite"


def purge(store: Path, session: str) -> int:
    """Forget a session (its id or key) in the notes of every agent; how many notes went."""
    gone = 0
    for path in sorted(store.glob("*.sqlite")):
        notes = Notes(path)
        try:
            gone += notes.forget(session)
        finally:
            notes.close()
    return gone

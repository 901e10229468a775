"""The engine's database: what is stored of sessions, and the two ways it changes: entries and decisions.

All of it blocks (run it through `PluginRuntime.run_blocking`) and raises `StorageFailed`. Each change is one
transaction, so that a crash at any point leaves the state before or after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal
from zlib import compress

import apsw

from perdure.context.tokens.estimator import Estimator
from perdure.edges.sqlite import Database, set_aside
from perdure.errors import DamagedStore
from perdure.plugins.engines.lossless import rows
from perdure.plugins.engines.lossless.codec import stored
from perdure.plugins.engines.lossless.derive import derive
from perdure.plugins.engines.lossless.journal import Journal, Line, Stubs
from perdure.plugins.engines.lossless.pieces import Node, Raw, View, trust_of
from perdure.plugins.engines.lossless.schema import MIGRATIONS
from perdure.records import Item, Record, Summary

NAME = "lossless.sqlite"
JOURNALS = "summaries"
INDEXED_CHARS = 1_000_000  # of one message in the full text; the rest is found by regular expression


class Loaded(Record):
    """A session as it is stored."""

    no: int
    version: int
    cursor: str
    view: View


class Ingested(Record):
    """What one delivery changed: `added` stand at the view's end; `revived` came back from another branch."""

    before: int
    version: int
    added: tuple[Raw, ...] = ()
    revived: bool = False


class Store:
    """One for an engine. `fresh`: the database was damaged and begun anew. `looking`: a connection for tools,
    so that a long search holds up nobody's entries.
    """

    def __init__(self, folder: Path, *, payload_chars: int, sync: bool = True) -> None:
        self.folder, self._most, self._sync = folder, payload_chars, sync
        self._estimator = Estimator()
        path, self.fresh = folder / NAME, False
        try:
            self.db = Database(path, migrations=MIGRATIONS, sync=sync)
        except DamagedStore:
            set_aside(path)
            self.fresh = True
            self.db = Database(path, migrations=MIGRATIONS, sync=sync)
        self.looking = Database(path, migrations=MIGRATIONS, sync=sync)

    def close(self) -> None:
        self.looking.close()
        self.db.close()

    def journal(self, id: str) -> Journal:
        """The journal of a session."""
        return Journal(self.folder / JOURNALS, id, sync=self._sync)

    def load(self, id: str) -> Loaded | None:
        """The session `id`; `None` where nothing is stored of it."""
        with self.db.reading() as db:
            found = rows.session(db, id)
            return Loaded(found.no, found.version, found.cursor, rows.view(db, found.no)) if found else None

    # --- entries ----------------------------------------------------------------------------------

    def ingest(self, id: str, key: str, items: Sequence[Item]) -> Ingested:
        """Store entries behind those that are there, with the cursor, in one transaction. Known ones, and
        summaries of the host's own, change nothing.
        """
        with self.db.writing() as db:
            session = self._session(db, id, key)
            added, revived = [], False
            for item in items:
                if isinstance(item.message, Summary) or not item.entry:
                    continue
                raw = self._insert(db, session.no, item)
                if raw is not None:
                    added.append(raw)
                else:
                    revived = revived or _is_off_path(db, session.no, item.entry)
            if not added:
                return Ingested(session.version, session.version, (), revived)
            db.execute(
                "update sessions set cursor = ?, version = version + 1 where no = ?",
                (added[-1].entry, session.no),
            )
            return Ingested(session.version, session.version + 1, tuple(added), revived)

    def _session(self, db: apsw.Connection, id: str, key: str) -> rows.Session:
        found = rows.session(db, id)
        if found is None:
            db.execute("insert into sessions (id, key) values (?, ?)", (id, key))
            return rows.Session(db.last_insert_rowid(), "", 0, 0)
        return found

    def _insert(self, db: apsw.Connection, no: int, item: Item) -> Raw | None:
        first, last = rows.span(no)
        number = db.execute(
            "select coalesce(max(no), ?) + 1 from messages where no between ? and ?", (first, first, last)
        ).get
        place = db.execute(
            "select coalesce(max(place), -1) + 1 from messages where session = ? and place is not null", (no,)
        ).get
        row = stored(item.message, self._most)
        trust, at = trust_of(item.message), item.message.timestamp
        tokens = self._estimator.item(item)
        db.execute(
            "insert into messages values (?,?,?,?,?,?,?,?,?,0) on conflict (session, entry) do nothing",
            (number, no, item.entry, place, row.role, trust, at, tokens, row.head),
        )
        if not db.changes():
            return None
        for n, part in enumerate(row.parts):
            if part.apart is not None:
                body = compress(part.apart.text.encode("utf-8", "surrogatepass"))
                db.execute(
                    "insert into payloads values (?,?,?,?) on conflict do nothing",
                    (no, part.apart.digest, len(part.apart.text), body),
                )
            db.execute(
                "insert into parts values (?,?,?,?,?,?,?)",
                (number, n, part.kind, part.text, part.data, no, part.apart and part.apart.digest),
            )
        text = row.text[:INDEXED_CHARS]
        db.execute("insert into messages_fts (rowid, text) values (?, ?)", (number, text))
        _append(db, no, message=number)
        return Raw(item.entry, place, row.role, tokens, at, trust)

    # --- decisions --------------------------------------------------------------------------------

    def commit(self, id: str, node: Node, covered: Sequence[str]) -> bool:
        """Put a summary in place of these pieces. False: they don't stand in the view in a row any more.

        The journal has it first: whatever happens then, it is applied again.
        """
        with self.db.writing() as db:
            session = rows.session(db, id)
            if session is None or not _in_a_row(db, session.no, covered):
                return False
            number = _numbered(db, session.no, self._told(db, id, session, node))
            _add(db, session.no, number, node)
            _replace(db, session.no, covered, number)
            return True

    def stub(self, id: str, entries: Sequence[str]) -> bool:
        """Show these payloads as their notes from now on."""
        with self.db.writing() as db:
            session = rows.session(db, id)
            if session is None:
                return False
            self._told(db, id, session, Stubs(tuple(entries)))
            _stub(db, session.no, entries)
            return True

    def _told(self, db: apsw.Connection, id: str, session: rows.Session, line: Line) -> int:
        """Write a line behind all others; the place behind it. What is not applied yet stays so.

        A journal that was lost is written again first, of what the database holds.
        """
        journal = self.journal(id)
        waiting: Sequence[tuple[int, Line]] = ()
        if journal.size() < session.journal:
            at = 0
            for known in _lines(db, session.no):
                at = journal.append(known, at)
        else:
            waiting = journal.read(session.journal)
            at = waiting[-1][0] if waiting else session.journal
        end = journal.append(line, at)
        db.execute(
            "update sessions set journal = ?, version = version + 1 where no = ?",
            (session.journal if waiting else end, session.no),
        )
        return end

    def settle(self, id: str, *, complete: bool, anew: bool = False) -> bool:
        """Apply what the journal holds and the database does not; whether anything changed.

        `complete`: all messages of the path are stored, so what stands for others is passed over; else it
        waits. `anew`: look at every line again.
        """
        with self.db.writing() as db:
            session = rows.session(db, id)
            if session is None:
                return False
            start, changed = 0 if anew else session.journal, False
            for end, line in self.journal(id).read(start):
                became = _apply(db, session.no, end, line)
                if became == "waits" and not complete:
                    break
                changed, start = changed or became == "applied", end
            if changed:
                _rederive(db, session.no)
            db.execute(
                "update sessions set journal = max(journal, ?), version = version + ? where no = ?",
                (start, changed, session.no),
            )
            return changed

    def path(self, id: str, entries: Sequence[str]) -> None:
        """The session's path is these entries, all of them stored; others are kept, off it."""
        with self.db.writing() as db:
            session = rows.session(db, id)
            if session is None:
                return
            now = [raw.entry for raw in rows.raws(db, session.no)]
            if now != list(entries):
                db.execute("update messages set place = null where session = ?", (session.no,))
                db.executemany(
                    "update messages set place = ? where session = ? and entry = ?",
                    ((place, session.no, entry) for place, entry in enumerate(entries)),
                )
                _rederive(db, session.no)
            db.execute(
                "update sessions set cursor = ?, version = version + 1 where no = ?",
                (entries[-1] if entries else "", session.no),
            )

    def of_key(self, key: str) -> tuple[str, ...]:
        """Ids of the sessions of a key, the latest first."""
        with self.db.reading() as db:
            found = db.execute("select id from sessions where key = ? order by no desc", (key,))
            return tuple(id for (id,) in found)

    def reset(self, id: str) -> None:
        """Forget what is stored of a session, but not what its journal tells."""
        with self.db.writing() as db:
            session = rows.session(db, id)
            if session is not None:
                _forget(db, session.no)

    def forget(self, id: str) -> bool:
        """Delete all that is stored of a session, its journal too; whether there was anything."""
        with self.db.writing() as db:
            session = rows.session(db, id)
            if session is not None:
                _forget(db, session.no)
        self.journal(id).remove()
        if session is not None:
            with suppress(apsw.Error):
                self.db.scrub()
        return session is not None


def _append(db: apsw.Connection, no: int, *, message: int | None = None, summary: int | None = None) -> None:
    db.execute(
        "insert into context_items select ?, coalesce(max(ordinal), 0) + 1, ?, ? from context_items "
        "where session = ?",
        (no, message, summary, no),
    )


def _is_off_path(db: apsw.Connection, no: int, entry: str) -> bool:
    found = db.execute("select place is null from messages where session = ? and entry = ?", (no, entry))
    return bool(found.get)


def _number(db: apsw.Connection, no: int, key: str) -> tuple[int | None, int | None]:
    """(message, None) or (None, summary); both `None` for what is not stored."""
    kind, _, name = key.partition(":")
    if kind == "m":
        return db.execute("select no from messages where session = ? and entry = ?", (no, name)).get, None
    return None, db.execute("select no from summaries where session = ? and id = ?", (no, name)).get


def _ordinal(db: apsw.Connection, no: int, key: str) -> int | None:
    message, summary = _number(db, no, key)
    column, number = ("message", message) if message is not None else ("summary", summary)
    ordinal: int | None = db.execute(
        f"select ordinal from context_items where {column} = ? and session = ?", (number, no)
    ).get
    return ordinal


def _in_a_row(db: apsw.Connection, no: int, keys: Sequence[str]) -> bool:
    places = [place for key in keys if (place := _ordinal(db, no, key)) is not None]
    if not places or len(places) != len(keys) or places != sorted(places):
        return False
    between = db.execute(
        "select count(*) from context_items where session = ? and ordinal between ? and ?",
        (no, places[0], places[-1]),
    ).get
    return bool(between == len(places))


def _lines(db: apsw.Connection, no: int) -> Iterator[Line]:
    """What a journal of this session has to hold."""
    yield from rows.nodes(db, no)
    stubs = db.execute("select entry from messages where session = ? and stub order by no", (no,))
    if entries := tuple(entry for (entry,) in stubs):
        yield Stubs(entries)


def _add(db: apsw.Connection, no: int, number: int, node: Node) -> bool:
    """A summary's rows. False where a source of it is not stored."""
    numbers = [_number(db, no, key) for key in node.sources]
    if any(message is None and summary is None for message, summary in numbers):
        return False
    db.execute(
        "insert into summaries values (?,?,?,?,?,?)",
        (number, no, node.id, node.depth, node.text, rows.facts_of(node)),
    )
    db.executemany(
        "insert into sources values (?,?,?,?)",
        ((number, n, message, summary) for n, (message, summary) in enumerate(numbers)),
    )
    db.execute("insert into summaries_fts (rowid, text) values (?, ?)", (number, node.text))
    return True


def _replace(db: apsw.Connection, no: int, covered: Sequence[str], number: int) -> None:
    places = [_ordinal(db, no, key) for key in (covered[0], covered[-1])]
    db.execute("delete from context_items where session = ? and ordinal between ? and ?", (no, *places))
    db.execute("insert into context_items values (?, ?, null, ?)", (no, places[0], number))


def _stub(db: apsw.Connection, no: int, entries: Iterable[str]) -> None:
    db.executemany(
        "update messages set stub = 1 where session = ? and entry = ?", ((no, entry) for entry in entries)
    )


def _apply(db: apsw.Connection, no: int, at: int, line: Line) -> Literal["applied", "known", "waits"]:
    """What became of a line of the journal; it waits while a source of it is not stored."""
    if isinstance(line, Stubs):
        _stub(db, no, line.entries)
        return "applied" if db.changes() else "known"
    if rows.node(db, no, line.id) is not None:
        return "known"
    return "applied" if _add(db, no, _numbered(db, no, at), line) else "waits"


def _numbered(db: apsw.Connection, no: int, at: int) -> int:
    """The row number of the summary whose line ends at byte `at`: they are in the journal's order."""
    first, last = rows.span(no)
    taken = db.execute("select 1 from summaries where no = ?", (first + at,)).get
    highest = db.execute("select max(no) from summaries where no between ? and ?", (first, last)).get
    return int(highest) + 1 if taken else first + at


def _rederive(db: apsw.Connection, no: int) -> None:
    """Make the view anew, as the function of path and summaries that it is."""
    view = derive(rows.raws(db, no), rows.nodes(db, no))
    db.execute("delete from context_items where session = ?", (no,))
    for n, piece in enumerate(view, 1):
        db.execute("insert into context_items values (?,?,?,?)", (no, n, *_number(db, no, piece.key)))


def _forget(db: apsw.Connection, no: int) -> None:
    span = rows.span(no)
    db.execute("delete from context_items where session = ?", (no,))
    db.execute("delete from sources where summary between ? and ?", span)
    for table in ("messages_fts", "summaries_fts"):
        db.execute(f"delete from {table} where rowid between ? and ?", span)
    db.execute("delete from parts where message between ? and ?", span)
    for table in ("summaries", "messages", "payloads"):
        db.execute(f"delete from {table} where session = ?", (no,))
    db.execute("delete from grants where parent = ?", (no,))
    db.execute("delete from sessions where no = ?", (no,))

"""What stands beside the files: messages not yet consolidated, the cursor, plans, and where lines came from.

A session's cursor is the last of its messages that is done; the text of done ones is deleted, their ids stay,
so that a message that comes again is known. A plan is a consolidation that the files may not have seen wholly
yet. Blocks.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import apsw
import msgspec

from perdure.contracts.memories import Trust
from perdure.edges.sqlite import storable
from perdure.plugins.memories.markdown.lines import digest, marked
from perdure.plugins.memories.said import Said
from perdure.plugins.memories.saying import says
from perdure.plugins.memories.trust import lowest
from perdure.plugins.opened import Opened
from perdure.records import Record

KNOWN_IDS = 2_000  # of a session, done: more than comes again after a crash
_TABLES = """
create table message (
    seq integer primary key autoincrement, agent text not null, session text not null, entry text not null,
    role text not null, text text not null, trust text not null, at integer not null, tools text not null,
    done integer not null default 0, unique (session, entry)
);
create index message_pending on message (session, done, seq);
create table trouble (
    session text primary key, count integer not null, next integer not null, why text not null
) without rowid;
create table plan (
    mark text primary key, agent text not null, root text not null, plan blob not null
) without rowid;
create table batch (
    mark text primary key, agent text not null, session text not null,
    first text not null, last text not null, trust text not null, at integer not null
) without rowid;
create table line (
    agent text not null, digest text not null, trust text not null, mark text not null,
    primary key (agent, digest)
) without rowid;
"""
_TRUST = "select trust from line where agent = ? and digest = ?"
MIGRATIONS = (_TABLES,)


class Batch(Record):
    """Messages of one session that are consolidated together. `refused`: why the last answer was."""

    agent: str
    session: str
    messages: tuple[Said, ...]
    last: int
    mark: str
    refused: str = ""

    @property
    def trust(self) -> Trust:
        return lowest(one.trust for one in self.messages)


class Plan(Record):
    """One consolidation: from `base` to `memory` in MEMORY.md, and `history` behind `size` bytes of
    HISTORY.md.
    """

    batch: Batch
    base: str
    memory: str
    history: str
    size: int
    at: int


class Origin(Record):
    """Where a line came from: its trust, first and last entry of the messages behind it, and when."""

    trust: Trust = "agent"
    entries: tuple[str, ...] = ()
    at: int = 0


class Beside:
    """See the module."""

    def __init__(self, path: Path, *, sync: bool = True) -> None:
        self._db = Opened(path, MIGRATIONS, sync=sync)

    def add(self, agent: str, session: str, messages: Iterable[Said]) -> None:
        """Keep messages until they are consolidated; one that is known changes nothing."""
        with self._db.writing() as db:
            for one in messages:
                told = (agent, session, one.entry, one.role, storable(one.text), one.trust, one.at)
                db.execute(
                    "insert or ignore into message (agent, session, entry, role, text, trust, at, tools) "
                    "values (?,?,?,?,?,?,?,?)",
                    (*told, msgspec.json.encode(one.tools).decode()),
                )

    def pending(self, session: str) -> list[tuple[int, Said]]:
        """What is not consolidated, oldest first."""
        with self._db.reading() as db:
            found = _rows(
                db,
                "select seq, entry, role, text, trust, at, tools from message where session = ? and done = 0 "
                "order by seq",
                session,
            )
        return [(seq, Said(*(*told, tuple(msgspec.json.decode(tools))))) for seq, *told, tools in found]

    def marked(self, batch: Batch, base: str, memory: str) -> str:
        """A new MEMORY.md with its untrusted lines marked, whatever the model made of the marks of before."""
        if memory == base:
            return memory
        with self._db.reading() as db:
            before, trust = _digests(base), _trust_of_new(db, batch, base, memory)
            untrusted = {one for one in before if _trust(db, batch.agent, one) == "untrusted"}
        return marked(memory, lambda one: one in untrusted if one in before else trust == "untrusted")

    def trouble(self, session: str) -> tuple[int, int, str]:
        """How often in a row it failed, at how many waiting messages it is tried again, and why it failed."""
        with self._db.reading() as db:
            found = _rows(db, "select count, next, why from trouble where session = ?", session)
        return (found[0][0], found[0][1], found[0][2]) if found else (0, 0, "")

    def failed(self, session: str, next: int, why: str) -> None:
        """One more failure: it is tried again once `next` messages wait."""
        with self._db.writing() as db:
            db.execute(
                "insert into trouble values (?,1,?,?) on conflict do update set count = count + 1, "
                "next = excluded.next, why = excluded.why",
                (session, next, why),
            )

    def plan(self, root: Path, plan: Plan) -> bool:
        """Write down what is about to be done; False if its messages are done already."""
        batch = plan.batch
        with self._db.writing() as db:
            open_ = _rows(
                db,
                "select 1 from message where session = ? and seq = ? and done = 0",
                batch.session,
                batch.last,
            )
            if open_:
                encoded = msgspec.json.encode(plan)
                db.execute(
                    "insert or replace into plan values (?,?,?,?)",
                    (batch.mark, batch.agent, str(root), encoded),
                )
            return bool(open_)

    def plans(self, agent: str, root: Path) -> tuple[Plan, ...]:
        """What was begun and not finished."""
        with self._db.reading() as db:
            found = _rows(
                db, "select plan from plan where agent = ? and root = ? order by mark", agent, str(root)
            )
        return tuple(msgspec.json.decode(plan, type=Plan) for (plan,) in found)

    def dropped(self, plan: Plan) -> None:
        """The files are as they were."""
        with self._db.writing() as db:
            db.execute("delete from plan where mark = ?", (plan.batch.mark,))

    def done(self, plan: Plan, written: str) -> None:
        """The files have it: the cursor moves, and new lines of MEMORY.md get the trust of their messages."""
        batch = plan.batch
        with self._db.writing() as db:
            db.execute(
                "update message set done = 1, text = '' where session = ? and seq <= ? and done = 0",
                (batch.session, batch.last),
            )
            db.execute(
                "delete from message where seq in (select seq from message where session = ? and done = 1 "
                "order by seq desc limit -1 offset ?)",
                (batch.session, KNOWN_IDS),
            )
            db.execute(
                "insert or ignore into batch values (?,?,?,?,?,?,?)",
                (
                    batch.mark, batch.agent, batch.session, batch.messages[0].entry, batch.messages[-1].entry,
                    batch.trust, plan.at,
                ),
            )  # fmt: skip
            _note_lines(db, plan, written)
            db.execute("delete from trouble where session = ?", (batch.session,))
            db.execute("delete from plan where mark = ?", (batch.mark,))

    def origin(self, agent: str, *, mark: str = "", row: str = "") -> Origin:
        """Of a line of HISTORY.md by its mark, of MEMORY.md by its text; what nobody noted is the agent's."""
        with self._db.reading() as db:
            if mark:
                sql = "select trust, first, last, at from batch where agent = ? and mark = ?"
                found = _rows(db, sql, agent, mark)
            else:
                sql = (
                    "select line.trust, first, last, at from line join batch on batch.mark = line.mark "
                    "where line.agent = ? and digest = ?"
                )
                found = _rows(db, sql, agent, digest(row))
        if not found:
            return Origin()
        trust, first, last, at = found[0]
        return Origin(trust, tuple(dict.fromkeys((first, last))), at)

    def forget(self, agent: str, text: str) -> int:
        """Waiting messages that say something, to the last byte; how many."""
        with self._db.writing() as db:
            found = _rows(db, "select seq, text from message where agent = ? and done = 0", agent)
            gone = [(seq,) for seq, said in found if any(says(row, text) for row in said.splitlines())]
            db.executemany("update message set text = '', done = 1 where seq = ?", gone)
        self._db.scrub()
        return len(gone)

    def close(self) -> None:
        """Close the file."""
        self._db.close()


def _note_lines(db: apsw.Connection, plan: Plan, written: str) -> None:
    """New lines are trusted as little as their messages, and as any line that went when they came."""
    batch, trust = plan.batch, _trust_of_new(db, plan.batch, plan.base, plan.memory)
    for one in sorted(_digests(written) - _digests(plan.base)):
        db.execute(
            "insert into line values (?,?,?,?) on conflict do update set trust = "
            "iif(excluded.trust = 'untrusted', excluded.trust, trust)",
            (batch.agent, one, trust, batch.mark),
        )


def _trust_of_new(db: apsw.Connection, batch: Batch, base: str, memory: str) -> Trust:
    gone = sorted(_digests(base) - _digests(memory))
    return lowest((batch.trust, *(_trust(db, batch.agent, one) for one in gone)))


def _trust(db: apsw.Connection, agent: str, one: str) -> Trust:
    found = _rows(db, _TRUST, agent, one)
    return found[0][0] if found else "agent"


def _digests(text: str) -> set[str]:
    return {digest(row) for row in text.splitlines() if row.strip()}


def _rows(db: apsw.Connection, sql: str, *told: object) -> list[tuple[Any, ...]]:
    return list(db.execute(sql, told))

"""What the engine knows of one session beside its index: which entries were told, and what was decided.

Entries are kept in the order in which they were told. Where they are told anew and another entry follows than
last time, the session has gone to another branch: what stood behind is left. All of it blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from perdure.context.text.characters import encodable
from perdure.edges.sqlite import Database, rows, value

MIGRATIONS = (
    """
    create table told (place integer primary key, entry text not null unique, source text not null) strict;
    create table about (name text primary key, value text not null) strict, without rowid;
    create table shown (entry text primary key, text text not null, entries text not null) strict;
    """,
)
KEPT = 256
"""Decisions that are kept: more messages of users don't stand in a tail."""


class State:
    """Of one session. Raises `StorageFailed`, `DamagedStore`."""

    def __init__(self, path: Path) -> None:
        self._database = Database(path, migrations=MIGRATIONS)

    def close(self) -> None:
        self._database.close()

    def about(self, name: str) -> str:
        """`cursor`: the last entry told; `rebuilding`: not all of the session is told yet."""
        with self._database.reading() as db:
            return value(db, "select value from about where name = ?", name) or ""

    def note(self, name: str, text: str) -> None:
        """Set one of these."""
        with self._database.writing() as db:
            rows(db, "insert or replace into about values (?, ?)", name, encodable(text))

    def known(self, entries: Sequence[str]) -> set[str]:
        """Which of these were told before."""
        query = "select 1 from told where entry = ?"
        with self._database.reading() as db:
            return {entry for entry in entries if value(db, query, encodable(entry)) is not None}

    def behind(self, entry: str) -> dict[str, str]:
        """Entries that were told after this one ("": all), each with the source that it is indexed under."""
        with self._database.reading() as db:
            query = "select place from told where entry = ?"
            place = value(db, query, encodable(entry)) if entry else 0
            if place is None:  # not told itself
                return {}
            found = rows(db, "select entry, source from told where place > ? order by place", place)
        return {told: source for told, source in found}  # noqa: C416

    def tell(self, entries: Sequence[str], source: str) -> None:
        """These entries are in the index, in this order."""
        told = [(encodable(entry), encodable(source)) for entry in entries]
        with self._database.writing() as db:
            db.executemany("insert or ignore into told (entry, source) values (?, ?)", told)
            rows(db, "insert or replace into about values ('cursor', ?)", encodable(entries[-1]))

    def untell(self, entries: Iterable[str]) -> None:
        """These are not any more."""
        with self._database.writing() as db:
            db.executemany("delete from told where entry = ?", [(encodable(entry),) for entry in entries])

    def decide(self, entry: str, text: str, of: Iterable[str]) -> None:
        """What stands before the user's message `entry` from now on, and of which entries it is made."""
        with self._database.writing() as db:
            rows(
                db,
                "insert or ignore into shown values (?, ?, ?)",
                encodable(entry),
                text,
                " ".join(sorted(of)),
            )
            keep = "select rowid from shown order by rowid desc limit ?"
            rows(db, f"delete from shown where rowid not in ({keep})", KEPT)

    def shown(self) -> dict[str, tuple[str, frozenset[str]]]:
        """All decisions: text, and the entries that it is made of, by the user's entry."""
        with self._database.reading() as db:
            found = rows(db, "select entry, text, entries from shown")
        return {entry: (text, frozenset(of.split())) for entry, text, of in found}

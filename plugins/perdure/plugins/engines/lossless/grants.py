"""What a subagent may read of its parent's conversation: a grant by the child's key, bounded, revocable."""

from __future__ import annotations

from perdure.plugins.engines.lossless import rows
from perdure.plugins.engines.lossless.store import Store
from perdure.records import Record


class Grant(Record):
    """`parent`: the session's id; `tokens`: what may still be read; `depth`: of one expansion."""

    parent: str
    tokens: int
    depth: int


def give(store: Store, child: str, grant: Grant, expires: int) -> bool:
    """Let `child` read until `expires` (ms since 1970). False: nothing is stored of that parent."""
    with store.db.writing() as db:
        parent = rows.session(db, grant.parent)
        if parent is None:
            return False
        db.execute(
            "insert or replace into grants values (?,?,?,?,?)",
            (child, parent.no, expires, grant.tokens, grant.depth),
        )
        return True


def revoke(store: Store, child: str) -> bool:
    """Take it back; whether there was one."""
    with store.db.writing() as db:
        db.execute("delete from grants where child = ?", (child,))
        return bool(db.changes())


def purge(store: Store, now: int) -> int:
    """Forget grants that have run out; how many."""
    with store.db.writing() as db:
        db.execute("delete from grants where expires <= ?", (now,))
        return db.changes()


def held(store: Store, child: str, now: int) -> Grant | None:
    """The grant of `child` that is good now."""
    with store.db.reading() as db:
        row = db.execute(
            "select s.id, g.tokens, g.depth from grants g join sessions s on s.no = g.parent "
            "where g.child = ? and g.expires > ? and g.tokens > 0",
            (child, now),
        ).fetchone()
        return Grant(*row) if row else None


def spend(store: Store, child: str, tokens: int) -> None:
    """Count what was read."""
    with store.db.writing() as db:
        db.execute("update grants set tokens = max(0, tokens - ?) where child = ?", (tokens, child))

"""Questions to the tables, each by the number of a session: no row of another can be reached."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, cast
from zlib import decompress

import apsw
import msgspec
from msgspec.structs import replace

from perdure.plugins.engines.lossless.codec import message_of
from perdure.plugins.engines.lossless.pieces import Node, Piece, Raw, View
from perdure.plugins.engines.lossless.schema import RANGE
from perdure.records import Item, Record, Text, ToolResult

_BATCH = 500
_RAW = "entry, place, role, tokens, at, trust, stub"


class Session(Record):
    """A session's own row. `cursor`: the newest entry stored; `journal`: bytes of it that are applied."""

    no: int
    cursor: str
    journal: int
    version: int


def span(no: int) -> tuple[int, int]:
    """First and last row number of a session."""
    return no << RANGE, ((no + 1) << RANGE) - 1


def session(db: apsw.Connection, id: str) -> Session | None:
    row = db.execute("select no, cursor, journal, version from sessions where id = ?", (id,)).fetchone()
    return Session(*row) if row else None


def raws(db: apsw.Connection, no: int) -> Iterator[Raw]:
    """All messages of the path, oldest first."""
    found = db.execute(
        f"select {_RAW} from messages where session = ? and place is not null order by place", (no,)
    )
    return map(_raw, found)


def nodes(db: apsw.Connection, no: int) -> Iterator[Node]:
    """All summaries ever made, in their order."""
    rows = db.execute("select text, facts from summaries where no between ? and ? order by no", span(no))
    return (decoded(text, facts) for text, facts in rows)


def node(db: apsw.Connection, no: int, id: str) -> Node | None:
    row = db.execute("select text, facts from summaries where session = ? and id = ?", (no, id)).fetchone()
    return decoded(*row) if row else None


def numbered(db: apsw.Connection, number: int) -> Node:
    """The summary of a row's number."""
    (row,) = db.execute("select text, facts from summaries where no = ?", (number,))
    return decoded(*cast("tuple[str, bytes]", row))


def earlier(db: apsw.Connection, first: int, before: int, limit: int) -> list[tuple[int, str]]:
    """(row's number, entry) of messages before a number, the latest first."""
    found = db.execute(
        "select no, entry from messages where no >= ? and no < ? order by no desc limit ?",
        (first, before, limit),
    )
    return cast("list[tuple[int, str]]", list(found))


def view(db: apsw.Connection, no: int) -> View:
    """The current view."""
    columns = ", ".join(f"m.{name.strip()}" for name in _RAW.split(","))
    rows = db.execute(
        f"select s.text, s.facts, {columns} from context_items c left join messages m on m.no = c.message "
        "left join summaries s on s.no = c.summary where c.session = ? order by c.ordinal",
        (no,),
    )
    return tuple(_piece(*row) for row in rows)


def _piece(text: str | None, facts: bytes | None, *raw: Any) -> Piece:
    return decoded(text, facts) if text is not None and facts is not None else _raw(raw)


def _raw(row: Sequence[Any]) -> Raw:
    entry, place, role, tokens, at, trust, stub = row
    return Raw(entry, place if place is not None else -1, role, tokens, at, trust, bool(stub))


def decoded(text: str, facts: bytes) -> Node:
    """A summary of its row."""
    return replace(msgspec.msgpack.decode(facts, type=Node), text=text)


def facts_of(node: Node) -> bytes:
    """What is stored of a summary beside its text."""
    return msgspec.msgpack.encode(replace(node, text=""))


def items(db: apsw.Connection, no: int, entries: Iterable[str], *, whole: bool = False) -> dict[str, Item]:
    """Messages by entry. `whole`: with the texts that are kept apart, else with their notes."""
    found: dict[str, Item] = {}
    for batch in _batches(entries):
        heads = {
            number: (entry, role, head)
            for number, entry, role, head in db.execute(
                "select no, entry, role, head from messages "
                f"where session = ? and entry in ({_marks(batch)})",
                (no, *batch),
            )
        }
        parts: dict[int, list[tuple[str, str, bytes]]] = {number: [] for number in heads}
        for number, kind, text, data, apart in _parts(db, list(heads)):
            if apart is not None and (whole or kind == "Image"):
                text = payload(db, no, apart)
            parts[number].append((kind, text, data))
        for number, (entry, role, head) in heads.items():
            found[entry] = Item(entry, message_of(role, head, parts[number]))
    return found


def _parts(db: apsw.Connection, numbers: Sequence[int]) -> Iterator[Any]:
    return db.execute(
        "select message, kind, text, data, payload from parts "
        f"where message in ({_marks(numbers)}) order by message, ordinal",
        tuple(numbers),
    )


def payload(db: apsw.Connection, no: int, digest: str) -> str:
    """A text that is kept apart. Raises `LookupError` where this session has none of that hash."""
    row = db.execute("select body from payloads where session = ? and digest = ?", (no, digest)).fetchone()
    if row is None:
        raise LookupError(digest)
    return decompress(row[0]).decode("utf-8", "surrogatepass")


def digests(db: apsw.Connection, no: int, prefix: str) -> list[str]:
    """Hashes of this session that begin so, two at most."""
    rows = db.execute(
        "select digest from payloads where session = ? and digest >= ? and digest < ? limit 2",
        (no, prefix, prefix + "g"),
    )
    return [digest for (digest,) in rows]


def below(db: apsw.Connection, no: int, id: str) -> Iterator[str]:
    """Entries of all messages below a summary, oldest first."""
    rows = db.execute(
        "with recursive below(no) as (select no from summaries where session = ? and id = ? union "
        "select child from sources join below on summary = below.no where child is not null) "
        "select m.entry from below join sources s on s.summary = below.no "
        "join messages m on m.no = s.message order by m.place, m.no",
        (no, id),
    )
    return (entry for (entry,) in rows)


def covered(db: apsw.Connection, no: int, entries: Iterable[str]) -> set[str]:
    """Those of the entries that lie below the view's summaries."""
    found: set[str] = set()
    for batch in _batches(entries):
        rows = db.execute(
            "select entry from messages m where session = ? and place is not null "
            f"and entry in ({_marks(batch)}) "
            "and not exists (select 1 from context_items c where c.message = m.no)",
            (no, *batch),
        )
        found.update(entry for (entry,) in rows)
    return found


def pieces(db: apsw.Connection, no: int, keys: Iterable[str]) -> View:
    """What these keys name, in their order. Raises `LookupError` for one that is not stored."""
    found: list[Piece] = []
    for key in keys:
        kind, _, name = key.partition(":")
        if kind == "s":
            piece: Piece | None = node(db, no, name)
        else:
            row = db.execute(
                f"select {_RAW} from messages where session = ? and entry = ?", (no, name)
            ).fetchone()
            piece = _raw(row) if row else None
        if piece is None:
            raise LookupError(key)
        found.append(piece)
    return tuple(found)


def stubs(db: apsw.Connection, no: int, entries: Sequence[str]) -> dict[str, str]:
    """Notes of messages whose payload is kept apart, by entry: the texts that stand for them."""
    found: dict[str, str] = {}
    for batch in _batches(entries):
        rows = db.execute(
            "select m.entry, p.text from messages m join parts p on p.message = m.no "
            f"where m.session = ? and p.payload is not null and p.kind = 'Text' "
            f"and m.entry in ({_marks(batch)}) order by m.no, p.ordinal",
            (no, *batch),
        )
        for entry, text in rows:
            found[entry] = f"{found[entry]}\n{text}" if entry in found else text
    return found


def stubbed(item: Item, text: str) -> Item:
    """A tool's result with the note in place of its text."""
    assert isinstance(item.message, ToolResult)
    others = tuple(block for block in item.message.content if not isinstance(block, Text))
    return Item(item.entry, replace(item.message, content=(Text(text), *others)))


def _marks(values: Sequence[object]) -> str:
    return ",".join("?" * len(values))


def _batches(values: Iterable[str]) -> Iterator[tuple[str, ...]]:
    walk = iter(values)
    while batch := tuple(islice(walk, _BATCH)):
        yield batch

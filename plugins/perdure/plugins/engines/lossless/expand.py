"""What a summary stands for, as text: its sources, and theirs down to a depth, as far as a cap of tokens."""

from __future__ import annotations

from collections.abc import Iterator

import apsw

from perdure.plugins.engines.lossless import rows
from perdure.plugins.engines.lossless.access import Reader, Refused, fitting, size
from perdure.plugins.engines.lossless.pieces import Node
from perdure.plugins.engines.lossless.reading import facts, headed, readable
from perdure.records import Record

_LEAST = 60  # tokens of room: less holds nothing worth reading
_NOTE = 40


class Part(Record):
    """One piece below a summary, in reading order."""

    id: str
    text: str


def expanded(reader: Reader, id: str, depth: int, after: str, tokens: int) -> str:
    """The pieces in order, from behind `after` on. Raises `Refused`."""
    with reader.store.looking.reading() as db:
        node = rows.node(db, reader.no, id)
        if node is None:
            raise Refused(f"no summary {id} in this conversation")
        parts = _parts(db, reader.no, node, min(depth, reader.depth))
        return _page(parts, after, min(tokens, reader.tokens), id)


def _parts(db: apsw.Connection, no: int, node: Node, depth: int) -> Iterator[Part]:
    for piece in rows.pieces(db, no, node.sources):
        if isinstance(piece, Node):
            yield Part(piece.id, f"{facts(piece)}\n{piece.text}")
            if depth > 1:
                yield from _parts(db, no, piece, depth - 1)
        else:
            message = rows.items(db, no, (piece.entry,), whole=True)[piece.entry].message
            yield Part(piece.entry, f"{headed(piece.entry, message)}\n{readable(message)}")


def _page(parts: Iterator[Part], after: str, tokens: int, id: str) -> str:
    out: list[str] = []
    room, last, skipping = tokens - _NOTE, after, bool(after)
    for part in parts:
        if skipping:
            skipping = part.id != after
            continue
        cost = size(part.text) + 2
        if cost > room and out:
            out.append(f'[more: history_expand id="{id}" after="{last}"]')
            return "\n\n".join(out)
        if cost > room:  # alone it is too long: its beginning, and how to read on
            head = fitting(part.text, room - _NOTE)
            out.append(f'{head}\n[cut: history_describe id="{part.id}" start={len(head)} reads on]')
            room = 0
        else:
            out.append(part.text)
            room -= cost
        last = part.id
    if skipping:
        raise Refused(f"{after} is no part of {id}")
    return "\n\n".join(out) or "[nothing behind that]"

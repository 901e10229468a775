"""A session as one file again: every entry of the file and its segments, linked as they were at first."""

from __future__ import annotations

from collections.abc import Iterator

from perdure.context.truncation.dag import Node
from perdure.context.truncation.plan import RECORDS
from perdure.edges.session import lines, splice, tolerant
from perdure.edges.session.header import NEWEST, read_header, reading
from perdure.edges.session.load import Loaded
from perdure.edges.session.scan import BOM, read
from perdure.edges.session.upgrade import upgraded


def whole(loaded: Loaded) -> Iterator[bytes]:
    """The lines of the whole session: header, entries from segments, those of the file.

    What notes that truncation left about segments is left out: every entry is here again. `loaded.past.lost`
    names segments that are gone. Damaged lines hold no entry and don't come along.
    """
    if loaded.header.version < NEWEST:
        yield from upgraded(loaded)
        return
    yield _header(loaded)
    past = loaded.past
    with loaded.reading():
        for node in past.graph.nodes:
            if not (node.off_chain and node.custom in RECORDS):
                yield _linked(past.read(node), node) + b"\n"


def _linked(raw: bytes, node: Node) -> bytes:
    """The entry with its first parent; its bytes as they are where they name that one."""
    raw = raw.removeprefix(BOM)
    value = tolerant.loads(raw)
    told = value.get("parentId") if isinstance(value, dict) else None
    if not isinstance(told, str | None) or (told or None) == node.parent:
        return raw
    return splice.put(raw, "parentId", node.parent)


def _header(loaded: Loaded) -> bytes:
    """The header's own bytes; one is made where the file has none."""
    with reading(loaded.path) as file:
        found = read_header(file.fd, file.size)
        if found is not None:
            return read(file.fd, found.end - 1, 0).strip().rpartition(b"\n")[2].removeprefix(BOM) + b"\n"
    header = loaded.header
    return lines.header_line(header.id, 0, header.cwd, header.parent_session)

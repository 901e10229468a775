"""Older versions of the format, read as if they were the newest: nothing is written here.

Version 1 has no ids and no parents: ids are derived from byte offsets, entries form one chain, and a
compaction names what it keeps by index. Version 2 differs by one role's name, which decoding knows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from perdure.context.truncation.dag import COMPACTION, Node
from perdure.edges.session.decode import decode_entry


def chained(records: Sequence[Node], read: Callable[[Node], bytes]) -> list[Node]:
    """The records of a version 1 file (headers included, indexes count them) as linked entries.

    An index that points forward, at a header or out of range keeps nothing, as in the reference; one
    that points at the compaction itself says so on purpose.
    """
    nodes: list[Node] = []
    parent: str | None = None
    for at, record in enumerate(records):
        if record.type == "session":
            continue
        kept = _kept(records, at, decode_entry(read(record)).firstKeptEntryIndex) if _compacts(record) else ""
        node = replace(record, id=derived(record), parent=parent, kept=kept)
        nodes.append(node)
        parent = node.id
    return nodes


def derived(record: Node) -> str:
    """The id of an entry that has none: its byte offset, in 16 hex digits."""
    return f"{record.start:016x}"


def _compacts(record: Node) -> bool:
    return record.type == COMPACTION


def _kept(records: Sequence[Node], at: int, index: float | None) -> str:
    if index is None or not 0 <= index <= at or records[int(index)].type == "session":
        return ""
    return derived(records[int(index)])

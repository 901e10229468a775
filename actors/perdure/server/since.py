"""What became durable in sessions since an entry, read from their files and segments. Blocking.

`upto` is an id made when a stream began to listen: what is later comes live. Ids of ours are ordered by
time, so a message is told once, from the one side or the other.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from perdure.context.truncation.dag import Node
from perdure.edges.session.decode import decode_entry, entry_message
from perdure.edges.session.facts import Opened
from perdure.edges.session.load import load
from perdure.edges.session.tail import open_session
from perdure.records import Item, Record, Summary

OURS = 16  # digits of an id that we made, at least


class Since(Record):
    """`items` follow the entry `after`; where that is `None` they are the whole view, from its start.

    `leaf`: the last entry of the branch, not later than what was asked for.
    """

    after: str | None
    items: tuple[Item, ...]
    leaf: str


def since(path: Path, entry: str, upto: str) -> Since:
    """The messages behind `entry` on the session's branch, covered ones included; `""`: from the first.

    Raises `UnreadableFile`; a file that is not there holds nothing.
    """
    if not path.exists():
        return Since("" if not entry else None, (), "")
    opened = open_session(path)
    leaf = _leaf(opened, upto)
    at = next((n for n, each in enumerate(opened.entries) if each.id == entry), None)
    if at is not None:
        behind = {each.id for each in opened.entries[at + 1 :]}
        return Since(entry, _upto(_spoken(opened, behind), upto), leaf)
    found = _whole(path, entry)
    if found is not None:
        return Since(entry, _upto(found, upto), leaf)
    return Since(None, _upto(_spoken(opened, None), upto), leaf)


def leaf_of(path: Path, upto: str) -> str:
    """The last entry of the session's branch; `""` where there is none yet."""
    return _leaf(open_session(path), upto) if path.exists() else ""


def later(path: Path, entry: str, upto: str) -> tuple[Item, ...]:
    """The messages of the branch whose ids are later than `entry`; those of other programs have none."""
    opened = open_session(path)
    first = opened.entries[0].id if opened.entries else ""
    near = opened.compaction is None or (len(first) >= OURS and first <= entry)
    items = _spoken(opened, None) if near else _whole(path, "") or ()
    return _upto((item for item in items if _later(item.entry, entry)), upto)


def _leaf(opened: Opened, upto: str) -> str:
    return next((e.id for e in reversed(opened.entries) if not _later(e.id, upto)), "")


def whole(path: Path) -> tuple[Item, ...]:
    """All messages of the branch, covered ones included."""
    return _whole(path, "") or ()


def _later(id: str, than: str) -> bool:
    return len(id) >= OURS and id > than


def _upto(items: Iterable[Item], upto: str) -> tuple[Item, ...]:
    return tuple(item for item in items if not _later(item.entry, upto))


def _spoken(opened: Opened, behind: set[str] | None) -> tuple[Item, ...]:
    return tuple(
        item
        for item in opened.items
        if item.entry and not isinstance(item.message, Summary) and (behind is None or item.entry in behind)
    )


def _whole(path: Path, entry: str) -> tuple[Item, ...] | None:
    """From the whole file, with what truncation moved out; `None` where the branch hasn't the entry."""
    loaded = load(path)
    with loaded.reading():
        past = loaded.past
        branch = [past.graph.nodes[at] for at in past.graph.view(True).path]
        at = next((n for n, node in enumerate(branch) if node.id == entry), -1 if not entry else None)
        if at is None:
            return None
        found = (_item(node, past.read(node)) for node in branch[at + 1 :] if node.type == "message")
        return tuple(item for item in found if item is not None)


def _item(node: Node, raw: bytes) -> Item | None:
    message = entry_message(decode_entry(raw))
    return Item(node.id, message) if message is not None else None

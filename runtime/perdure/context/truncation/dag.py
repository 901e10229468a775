"""The entry graph of a session file: from heads in file order to the leaf, its branch and its view.

Pure. Rules are those of the format: the leaf is the last line, the last definition of an id wins, a walk
follows `parent`. Ours on top: no walk can be trapped, and a missing parent is bridged, never silent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeAlias

from perdure.records import Record

OWN: Final = "perdure."  # custom types of ours; they stand off the chain
COMPACTION: Final = "compaction"
_COVERABLE: Final = frozenset({"message", "custom_message", "branch_summary", COMPACTION})


class Node(Record):
    """The head of one entry: what links it, and the bytes of its record (`start`, `end`).

    `kept` is a compaction's `firstKeptEntryId`. `epoch` is -1 for lines that carry no facts of ours.
    """

    id: str
    type: str
    parent: str | None = None
    custom: str = ""
    kept: str = ""
    start: int = 0
    end: int = 0
    line: int = 0
    epoch: int = -1

    @property
    def off_chain(self) -> bool:
        """Whether this is a `perdure.*` custom entry, which never moves the leaf."""
        return self.type == "custom" and self.custom.startswith(OWN)


class Hole(Record):
    """`child` names a parent that is nowhere; `bridged_to` stands in for it (`None`: nothing is left)."""

    child: str
    missing: str
    bridged_to: str | None


class View(Record):
    """The live branch, root first, as positions in the node list.

    `first` is where the view begins in `path`, `compaction` the index of the latest one in `path`.
    `holes` are those inside the view, leaf first; `cycle` names the entry whose parent closed a circle.
    """

    leaf: str | None
    path: tuple[int, ...] = ()
    first: int = 0
    compaction: int | None = None
    holes: tuple[Hole, ...] = ()
    cycle: str | None = None

    @property
    def shown(self) -> tuple[int, ...]:
        """Positions from the first kept entry to the leaf."""
        return self.path[self.first :]


Bridges: TypeAlias = Mapping[tuple[str, str], str | None]
Step: TypeAlias = tuple[int | None, Hole | None]


class Graph:
    """Nodes by id. `bridges` are holes already decided: `(child, missing) -> bridged_to`."""

    def __init__(self, nodes: Sequence[Node], bridges: Bridges | None = None) -> None:
        self.nodes = nodes
        self.bridges: Bridges = bridges or {}
        self.by_id: dict[str, int] = {node.id: at for at, node in enumerate(nodes)}
        self._landing: dict[int, int | None] = {}

    def parent(self, at: int) -> Step:
        """The position of a node's parent, and the hole that had to be bridged on the way."""
        node = self.nodes[at]
        if not node.parent:
            return None, None
        found = self.by_id.get(node.parent)
        if found is not None:
            return found, None
        key = (node.id, node.parent)
        target = self.by_id.get(self.bridges[key] or "") if key in self.bridges else self._leaf_before(at)
        return target, Hole(node.id, node.parent, None if target is None else self.nodes[target].id)

    def _leaf_before(self, at: int) -> int | None:
        """Where the leaf stood just before the line at `at`: what the lost entry most likely followed."""
        passed: list[int] = []
        seen: set[int] = set()
        place = self._line_before(at)
        while place is not None and place not in seen and self.nodes[place].off_chain:
            if place in self._landing:
                place = self._landing[place]
                break
            seen.add(place)
            passed.append(place)
            place = self._behind(place)
        if place in seen:
            place = None
        for each in passed:
            self._landing[each] = place
        return place

    def _behind(self, at: int) -> int | None:
        parent = self.nodes[at].parent
        if not parent:
            return None
        return self.by_id[parent] if parent in self.by_id else self._line_before(at)

    def _line_before(self, at: int) -> int | None:
        return self.by_id[self.nodes[at - 1].id] if at else None

    def leaf(self) -> tuple[int | None, tuple[Hole, ...]]:
        """The last line, trailing entries of ours skipped to their parent."""
        at: int | None = len(self.nodes) - 1 if self.nodes else None
        holes: list[Hole] = []
        seen: set[int] = set()
        while at is not None and self.nodes[at].off_chain:
            if at in seen:
                return None, tuple(holes)
            seen.add(at)
            at, hole = self.parent(at)
            if hole:
                holes.append(hole)
        return at, tuple(holes)

    def walk(self, leaf: int | None) -> tuple[list[int], list[Hole], str | None]:
        """From a leaf to its root: positions leaf first, holes crossed, the entry that closed a cycle."""
        path: list[int] = []
        holes: list[Hole] = []
        seen: set[int] = set()
        at = leaf
        while at is not None:
            if at in seen:
                return path, holes, self.nodes[path[-1]].id
            seen.add(at)
            path.append(at)
            at, hole = self.parent(at)
            if hole:
                holes.append(hole)
        return path, holes, None

    def view(self, leaf: str | Literal[True] | None = True) -> View:
        """The view of a leaf: `True` the file's own, `None` none at all, or an id (`KeyError` if unknown)."""
        above: tuple[Hole, ...] = ()
        if leaf is True:
            start, above = self.leaf()
        else:
            start = None if leaf is None else self.by_id[leaf]
        if start is None:
            return View(None, holes=above)
        back, holes, cycle = self.walk(start)
        path = tuple(reversed(back))
        compaction, first = kept_range([self.nodes[at] for at in path])
        inside = {self.nodes[at].id for at in (path if compaction is None else path[first + 1 :])}
        crossed = tuple(hole for hole in holes if hole.child in inside)
        return View(self.nodes[start].id, path, first, compaction, (*above, *crossed), cycle)


def kept_range(path: Sequence[Node]) -> tuple[int | None, int]:
    """Index of the latest compaction on a path (root first), and where its view begins.

    An anchor may be any entry before the compaction; its own id, or one not on the path, keeps nothing.
    """
    at = next((n for n in range(len(path) - 1, -1, -1) if path[n].type == COMPACTION), None)
    if at is None:
        return None, 0
    kept = path[at].kept
    if not kept or kept == path[at].id:
        return at, at
    return at, next((n for n in range(at) if path[n].id == kept), at)


def cover(branch: Sequence[Node]) -> list[str]:
    """For each entry of a branch (root first) the id of the first compaction that covers it, else ""."""
    place = {node.id: at for at, node in enumerate(branch)}
    by = [""] * len(branch)
    done = 0
    for at, node in enumerate(branch):
        if node.type != COMPACTION:
            continue
        kept = place.get(node.kept, at)
        for n in range(done, min(kept, at)):
            if branch[n].type in _COVERABLE:
                by[n] = node.id
        done = max(done, min(kept, at))
    return by

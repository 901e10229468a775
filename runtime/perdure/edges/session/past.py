"""A session file together with what truncations moved out of it: the graph as it was before them.

A branch's end shows the same with or without its segments; an entry inside it may not, for what a later
compaction covers has moved. Every truncation notes in the file whose parent it changed (`cut`), so that
the links can be followed again, and so that a segment that is gone is noticed and never passed over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from perdure.context.truncation.dag import Bridges, Graph, Node, View
from perdure.context.truncation.plan import RECORDS
from perdure.edges import segments
from perdure.edges.segments import Segment
from perdure.edges.session import own
from perdure.edges.session.decode import decode_entry
from perdure.edges.session.fold import may_carry_checkpoint
from perdure.edges.session.heads import heads
from perdure.edges.session.scan import Line
from perdure.edges.session.view import Read
from perdure.errors import SegmentGone, UnreadableFile
from perdure.records import Decision, Record


class Mark(Record):
    """What a truncation, a restoring (no `segment`) or a discarding noted; `cut`: parents before it."""

    segment: str
    cut: Mapping[str, str]
    discarded: bool = False


def marks(path: Path, nodes: Sequence[Node], read: Read) -> list[Mark]:
    """The marks in a file. One without `cut` is of an earlier version: its segment knows it."""
    found = []
    for node in nodes:
        if node.off_chain and node.custom in RECORDS:
            segment, cut = own.mark_of(decode_entry(read(node)))
            gone = node.custom == f"{own.PREFIX}discarded"
            known = _of_segment(path, segment) if cut is None and segment and not gone else cut or {}
            found.append(Mark(segment, known, gone))
    return found


def parents(found: Sequence[Mark]) -> dict[str, str]:
    """The parent of each re-parented entry as it was first; every mark tells that one."""
    before: dict[str, str] = {}
    for mark in found:
        for child, parent in mark.cut.items():
            before.setdefault(child, parent)
    return before


def _of_segment(path: Path, name: str) -> dict[str, str]:
    try:
        return dict(Segment(segments.folder(path) / name).index.reparented)
    except (UnreadableFile, OSError):
        return {}


class Past:
    """Nodes of the segments before those of the file; `read` reads either.

    Reads every segment once when it is made: whole-file work.
    """

    def __init__(self, path: str, nodes: Sequence[Node], bridges: Bridges, read: Read) -> None:
        self.path = Path(path)
        self._read = read
        self._places: dict[int, tuple[Segment, str]] = {}
        self._whole: dict[str, Segment] = {}
        self.marks = marks(self.path, nodes, read)
        self.moved = self._moved({node.id for node in nodes})
        names = dict.fromkeys(mark.segment for mark in self.marks if mark.segment)
        self.lost = [name for name in names if name not in self._whole]
        before = parents(self.marks)
        known = {node.id for node in (*self.moved, *nodes)}
        told = {(c, m): to for s in self._whole.values() for c, m, to in s.index.bridges} | dict(bridges)
        self._cut_off = {child for (child, _), to in told.items() if to is not None and to not in known}
        for node in nodes:
            if (first := before.get(node.id)) is not None and first not in known:
                told[node.id, first] = node.parent
                self._cut_off.add(node.id)
        restored = [_under(node, before.get(node.id)) for node in (*self.moved, *nodes)]
        self._cut_off |= {n.id for n in self.moved if before.get(n.id, n.id) not in known}
        self.graph = Graph(restored, told)

    def read(self, node: Node) -> bytes:
        """The bytes of a record, wherever it stands."""
        if node.start >= 0:
            return self._read(node)
        segment, id = self._places[node.start]
        return segment.read(id)

    def segment_of(self, node: Node) -> str:
        """The name of the segment that holds a moved entry, empty for one of the file."""
        return self._places[node.start][0].path.name if node.start < 0 else ""

    def view(self, leaf: str) -> View:
        """The view of an entry. `KeyError` for an unknown one, `SegmentGone` where a part of it is gone."""
        if leaf not in self.graph.by_id and self.lost:
            raise SegmentGone(f"{self.path}: no entry {leaf} here; {self._fate()} it may have been there")
        view = self.graph.view(leaf)
        short = next((hole.child for hole in view.holes if hole.child in self._cut_off), None)
        short = short or self._unanchored(view)
        if short is not None:
            raise SegmentGone(
                f"{self.path}: the view of {leaf} goes back behind {short}, to entries that truncation moved "
                f"out; {self._fate()} choose a later entry, or bring the segment back"
            )
        return view

    def _unanchored(self, view: View) -> str | None:
        """A compaction that was moved itself, of an anchor that may be in a segment that is gone.

        The anchor of one that stays in the file stays too.
        """
        if view.compaction is None or view.first != view.compaction or not self.lost:
            return None
        made = self.graph.nodes[view.path[view.compaction]]
        return made.id if made.start < 0 and made.kept not in self.graph.by_id else None

    def decisions(self) -> dict[str, Decision]:
        """Every decision that was ever recorded, the last about each key."""
        found: dict[str, Decision] = {}
        for node in self.graph.nodes:
            if may_carry_checkpoint(node):
                told = own.checkpoint_of(decode_entry(self.read(node)))
                made = told.decisions if told is not None else ()
            elif node.type == "message" and node.epoch >= 0:
                facts = own.facts_of(decode_entry(self.read(node)))
                made = facts.decisions if facts is not None else ()
            else:
                continue
            found.update((decision.key, decision) for decision in made)
        return found

    def _fate(self) -> str:
        discarded = {mark.segment for mark in self.marks if mark.discarded}
        fates = (
            f"segment {name} {'was discarded' if name in discarded else 'is missing or damaged'}"
            for name in self.lost
        )
        return f"{', '.join(fates)}:"

    def _moved(self, here: set[str]) -> list[Node]:
        """Entries that only segments have, with places below zero."""
        return list(self._from_segments(set(here)))

    def _from_segments(self, told: set[str]) -> Iterator[Node]:
        at = 0
        for place in segments.segments_of(self.path):
            try:
                segment = Segment(place)
                entries = [entry for entry in segment.entries() if entry.id not in told]
            except (UnreadableFile, OSError):
                continue
            self._whole[place.name] = segment
            for entry in entries:
                told.add(entry.id)
                found = heads(Line(0, 0, entry.raw))[0]
                if not found:
                    continue
                at -= len(entry.raw) + 1
                self._places[at] = segment, entry.id
                yield replace(found[0], id=entry.id, start=at, end=at + len(entry.raw))


def _under(node: Node, parent: str | None) -> Node:
    return node if parent is None else replace(node, parent=parent)

"""Truncation on disk: covered entries move into a verified segment, the rest is spliced into a new file.

The plan is pure (`context/truncation/plan`); this module reads what heads don't tell, writes the segment,
reads it back, stages the new file, and looks once more before the swap whether anything that came since
leans on what would go. Bytes that don't move are copied; only `parentId` values of re-parented entries
change. Damage, blank lines and unknown entries stay where they are.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import BinaryIO, TypeAlias

import msgspec

from perdure.context.truncation import plan as truncation
from perdure.context.truncation.dag import Node, cover
from perdure.context.truncation.plan import Plan, Ties
from perdure.edges import disk, segments
from perdure.edges.segments import Moved, SegmentInfo
from perdure.edges.session import lines, own, past, scan, splice, swap
from perdure.edges.session.decode import WireEntry, decode_entry
from perdure.edges.session.heads import heads, whole
from perdure.edges.session.load import Loaded, load
from perdure.edges.session.swap import Staged
from perdure.edges.session.writer import LocalSessionFile
from perdure.errors import PerdureError, StorageFailed, UnreadableFile
from perdure.records import Record

_COPY = 1 << 20


class Truncated(Record):
    """What a truncation did, or (`done` false, `reason`) why it did nothing."""

    done: bool
    reason: str = ""
    moved: int = 0
    entries_before: int = 0
    entries_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    segment: str = ""

    @property
    def percent(self) -> float:
        """By how much the file became smaller."""
        return 0.0 if not self.bytes_before else 100.0 * (1 - self.bytes_after / self.bytes_before)

    def line(self) -> str:
        """One line for the log."""
        if not self.done:
            return f"nothing truncated: {self.reason}"
        return (
            f"truncated: {self.moved} entries moved ({self.entries_before} to {self.entries_after}), "
            f"{self.bytes_before:,} to {self.bytes_after:,} bytes, {self.percent:.1f}% less"
        )


@dataclass(frozen=True, slots=True)
class Prepared:
    """A finished segment and a staged file, waiting for the owner's `commit` or `discard`."""

    staged: Staged
    segment: Path
    inode: int
    gone: frozenset[str]
    report: Truncated


def truncate(file: LocalSessionFile, new_id: Callable[[], str], now_ms: int, *, sync: bool) -> Truncated:
    """Both halves at once, for an owner that appends nothing meanwhile. Blocking."""
    prepared = prepare(file, new_id, now_ms, sync=sync)
    return prepared if isinstance(prepared, Truncated) else commit(file, prepared)


def prepare(
    file: LocalSessionFile, new_id: Callable[[], str], now_ms: int, *, sync: bool
) -> Prepared | Truncated:
    """First half, for a worker's thread: appends may go on. Changes nothing in the session file.

    Raises `UnreadableFile`, `StorageFailed`, `Fenced`.
    """
    loaded = load(file.path)
    sweep(loaded)
    plan = planned(loaded)
    if plan.reason:
        return Truncated(False, plan.reason)
    return _stage(file, loaded, plan, new_id(), now_ms, sync=sync)


def planned(loaded: Loaded) -> Plan:
    """What a truncation of the file would do; its `reason` says why nothing."""
    if loaded.header.version < 3:
        return Plan(reason=f"version {loaded.header.version}: it is migrated when opened for writing")
    bridges = loaded.graph.bridges
    plan = truncation.plan(loaded.nodes, ties_of(loaded), bridges)
    if not plan.reason and (differing := truncation.differing_views(loaded.nodes, plan, bridges)):
        return Plan(reason=f"the view of {len(differing)} branches would change, for damage in the file")
    return plan


def sweep(loaded: Loaded) -> tuple[str, ...]:
    """Delete what a truncation left behind that was killed before its end; the names of those files.

    A segment goes only if the file names it nowhere and holds each of its entries itself. For the owner,
    while no other truncation of the session is under way.
    """
    path = Path(loaded.path)
    named = {mark.segment for mark in past.marks(path, loaded.nodes, loaded.raw)}
    gone = []
    for place in segments.segments_of(path):
        if place.name not in named and _all_here(loaded, place):
            disk.unlink(place)
            gone.append(place.name)
    for temp in swap.leftovers(path):
        disk.unlink(temp)
        gone.append(temp.name)
    return tuple(gone)


def _all_here(loaded: Loaded, segment: Path) -> bool:
    try:
        return all(loaded.node(id) is not None for id in segments.Segment(segment).ids())
    except (UnreadableFile, OSError):
        return False  # doctor tells of it; nobody knows what it holds


def commit(file: LocalSessionFile, prepared: Prepared) -> Truncated:
    """Second half, by the owner, with no append at the same time. Offsets have changed afterwards."""
    if _leans_on(file.path, prepared.staged.base, prepared.gone):
        discard(prepared)
        return Truncated(False, "the branch moved meanwhile: try again")
    try:
        ack = file.commit(prepared.staged)
    except PerdureError:
        if file.path.exists() and os.stat(file.path).st_ino == prepared.inode:
            discard(prepared)  # nothing was swapped; else the segment may be needed already
        raise
    return msgspec.structs.replace(prepared.report, bytes_after=ack.size)


def discard(prepared: Prepared) -> None:
    """Forget a prepared truncation; nothing has changed."""
    disk.unlink(prepared.staged.temp, missing_ok=True)
    disk.unlink(prepared.segment, missing_ok=True)


# --- what heads don't tell ------------------------------------------------------------------------


def ties_of(loaded: Loaded) -> Ties:
    """Labels, branch summaries, left branches and letters of a file."""
    ties = _Ties(loaded)
    for node, raw in loaded.entries():
        ties.add(node, raw)
    return ties.finish()


class _Ties:
    def __init__(self, loaded: Loaded) -> None:
        self._loaded = loaded
        self._labels: dict[str, str] = {}
        self._from: list[str] = []
        self._abandoned: list[str] = []
        self._inboxes: dict[tuple[str, str], str] = {}
        self._messages: dict[tuple[str, str], str] = {}

    def add(self, node: Node, raw: bytes) -> None:
        if node.type in ("label", "branch_summary") or node.off_chain:
            self._pointer(node, decode_entry(raw))
        elif node.type == "message" and node.epoch >= 0:
            facts = own.facts_of(decode_entry(raw))
            if facts is not None and facts.origin is not None:
                self._messages[facts.origin.sender, facts.origin.mid] = node.id

    def _pointer(self, node: Node, entry: WireEntry) -> None:
        if node.type == "label" and entry.targetId:
            self._labels[entry.targetId] = entry.label or ""
        elif node.type == "branch_summary" and entry.fromId:
            self._from.append(entry.fromId)
        elif node.custom == "perdure.inbox" and (found := own.inbox_of(entry)) is not None:
            self._inboxes.setdefault((found[1].sender, found[1].mid), node.id)
        elif node.custom == "perdure.branch" and (left := _abandoned(entry)):
            self._abandoned.append(left)

    def finish(self) -> Ties:
        labels = [target for target, label in self._labels.items() if label]
        taken = [(i, self._messages[who]) for who, i in self._inboxes.items() if who in self._messages]
        pinned = (*labels, *self._from, *self._only_in_entries())
        return Ties(pinned, tuple(self._abandoned), tuple(taken))

    def _only_in_entries(self) -> list[str]:
        """Recent letters that no checkpoint remembers: without their entry they would be taken again."""
        checkpoint = self._loaded.checkpoint
        known = {(s.sender, s.mid) for s in checkpoint.recent} if checkpoint is not None else set()
        return [s.entry for s in self._loaded.known().recent if (s.sender, s.mid) not in known]


class _Branch(msgspec.Struct):
    abandoned: str = ""


def _abandoned(entry: WireEntry) -> str:
    try:
        return msgspec.json.decode(entry.data, type=_Branch).abandoned
    except msgspec.MsgspecError:
        return ""


# --- the new file ---------------------------------------------------------------------------------


def _stage(
    file: LocalSessionFile, loaded: Loaded, plan: Plan, id: str, now_ms: int, *, sync: bool
) -> Prepared:
    nodes = loaded.nodes
    gone = frozenset(nodes[at].id for at in plan.moved)
    before = tuple((nodes[at].id, nodes[at].parent or "") for at, _ in plan.parents)
    try:
        info = segments.write_segment(
            file.path,
            _moved(loaded, plan),
            session_id=loaded.header.id,
            reparented=before,
            bridges=tuple(_bridged(loaded)),
            covered=tuple(_covered(loaded, plan)),
            sync=sync,
        )
    except OSError as error:
        raise StorageFailed(f"{file.path}: the segment can't be written ({error.strerror})") from None
    segment = segments.folder(file.path) / info.name
    try:
        edits = [*_cuts(loaded, plan), *_links(loaded, plan), _note(loaded, plan, info, id, now_ms)]
        staged = file.stage(builder(loaded, edits), loaded.file.size)
    except BaseException:
        disk.unlink(segment, missing_ok=True)
        raise
    report = Truncated(
        True,
        moved=len(plan.moved),
        entries_before=len(nodes),
        entries_after=len(nodes) - len(plan.moved) + 1,
        bytes_before=loaded.file.size,
        bytes_after=staged.size,
        segment=info.name,
    )
    return Prepared(staged, segment, loaded.file.inode, gone, report)


def _covered(loaded: Loaded, plan: Plan) -> Iterable[tuple[str, int]]:
    """Runs of the compactions that cover what moves."""
    branch = loaded.branch()
    by = {node.id: made for node, made in zip(branch, cover(branch), strict=True)}
    for made, run in groupby(by.get(loaded.nodes[at].id, "") for at in plan.moved):
        yield made, sum(1 for _ in run)


def _bridged(loaded: Loaded) -> Iterable[tuple[str, str, str | None]]:
    """Holes, decided by the order of lines, which is about to change."""
    for at in range(len(loaded.nodes)):
        hole = loaded.graph.parent(at)[1]
        if hole is not None:
            yield hole.child, hole.missing, hole.bridged_to


def _moved(loaded: Loaded, plan: Plan) -> Iterable[Moved]:
    wanted = {loaded.nodes[at].start for at in plan.moved}
    return (Moved(n.id, n.start, _whole(loaded, raw)) for n, raw in loaded.entries() if n.start in wanted)


def _whole(loaded: Loaded, raw: bytes) -> bytes:
    if whole(raw) is None:
        raise UnreadableFile(f"{loaded.path}: it was rewritten by another program while it was read")
    return raw


Edit: TypeAlias = tuple[int, int, bytes]


def _cuts(loaded: Loaded, plan: Plan) -> Iterable[Edit]:
    """Each moved record with its newline, where it has its line to itself."""
    with Path(loaded.path).open("rb") as file:
        for at in plan.moved:
            node = loaded.nodes[at]
            file.seek(max(0, node.start - 1))
            alone = node.start == 0 or file.read(1) == b"\n"
            file.seek(node.end)
            after = file.read(2)
            newline = 1 if after[:1] == b"\n" else 2 if after == b"\r\n" else 0
            yield node.start, node.end + (newline if alone else 0), b""


def _links(loaded: Loaded, plan: Plan) -> Iterable[Edit]:
    parents = {loaded.nodes[at].start: parent for at, parent in plan.parents}
    for node, raw in loaded.entries():
        if node.start in parents:
            yield node.start, node.end, splice.put(_whole(loaded, raw), "parentId", parents[node.start])


def _note(loaded: Loaded, plan: Plan, info: SegmentInfo, id: str, now_ms: int) -> Edit:
    """The line that names the segment, off the chain, where its first entry stood.

    It carries the epoch in force at that place: a higher one would void the lines behind it.
    """
    first = loaded.nodes[plan.moved[0]]
    epoch = max((n.epoch for n in loaded.nodes[: plan.moved[0] + 1]), default=0)
    going = {loaded.nodes[at].id for at in plan.moved}
    parent = first.parent
    while parent in going:
        node = loaded.node(parent)
        parent = None if node is None else node.parent
    known = past.parents(past.marks(Path(loaded.path), loaded.nodes, loaded.raw))
    changed = [loaded.nodes[at] for at, _ in plan.parents]
    cut = {node.id: known.get(node.id, node.parent or "") for node in changed}
    told = info.name, info.digest, info.entries
    line = lines.segment_line(id, parent, now_ms, max(0, epoch), *told, cut)
    return first.start, first.start, line


def builder(loaded: Loaded, edits: Sequence[Edit], tail: bytes = b"") -> Callable[[BinaryIO], None]:
    """Copies the file with the edits in it, and `tail` behind it.

    Edits are (begin, end, new bytes); they don't overlap. Insertions come before their place, several at
    one place in the order in which they are given.
    """

    def build(out: BinaryIO) -> None:
        with Path(loaded.path).open("rb") as file:
            at = 0
            for start, end, text in sorted(edits, key=lambda edit: edit[:2]):
                _copy(file, at, start, out)
                out.write(text)
                at = max(at, end)
            _copy(file, at, loaded.file.size, out)
            out.write(tail)

    return build


def _copy(file: BinaryIO, start: int, end: int, out: BinaryIO) -> None:
    file.seek(start)
    while start < end:
        block = file.read(min(_COPY, end - start))
        if not block:
            raise OSError(5, "the file became shorter while it was read")
        out.write(block)
        start += len(block)


def _leans_on(path: Path, base: int, gone: frozenset[str]) -> bool:
    """Whether a line behind `base` is a child of, is anchored at, or names an entry that would go."""
    with path.open("rb") as file:
        start = swap.whole_lines(file.fileno(), base)  # the last line may have been half written then
        for line in scan.forward(file.fileno(), start, os.fstat(file.fileno()).st_size):
            for node in heads(line)[0]:
                if node.parent in gone or node.kept in gone:
                    return True
                if node.type == "label" and decode_entry(_bytes(file, node)).targetId in gone:
                    return True
    return False


def _bytes(file: BinaryIO, node: Node) -> bytes:
    file.seek(node.start)
    return file.read(node.end - node.start)

"""What the doctor looks at, one check a function: links between entries, bodies, calls, compactions.

Each takes a loaded session and yields findings; none changes or keeps anything.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from perdure.context.truncation.dag import COMPACTION, Node
from perdure.edges import segments
from perdure.edges.session import own, past
from perdure.edges.session.decode import WireEntry, decode_entry, entry_message
from perdure.edges.session.load import Loaded
from perdure.edges.session.problems import Kind, Problem, problem
from perdure.errors import UnreadableFile
from perdure.records import Assistant, Message, Record, Text, ToolCall, ToolResult

_EVIDENCE: Final = re.compile(r"evidence sha256:([0-9a-f]{64})")


def _at(node: Node, kind: Kind, detail: str) -> Problem:
    return problem(kind, node.line, node.start, detail)


# --- links ----------------------------------------------------------------------------------------


def repeated(loaded: Loaded) -> Iterator[Problem]:
    """Lines whose id is defined again later: the last one counts."""
    for at, node in enumerate(loaded.nodes):
        last = loaded.graph.by_id[node.id]
        if last != at:
            again = loaded.nodes[last]
            same = loaded.raw(node) == loaded.raw(again)
            kind = "the same line stands" if same else "the id is given to another entry"
            yield _at(node, "repeated", f"{node.id}: {kind} again in line {again.line}, which counts")


def missing_parents(loaded: Loaded) -> Iterator[Problem]:
    """Entries whose parent is nowhere in the file, and what stands in for it."""
    for at, node in enumerate(loaded.nodes):
        if node.parent and node.parent not in loaded.graph.by_id and loaded.graph.by_id[node.id] == at:
            _, hole = loaded.graph.parent(at)
            instead = (
                f"read as if it followed {hole.bridged_to}" if hole and hole.bridged_to else "read as a root"
            )
            yield _at(node, "missing_parent", f"{node.id}: its parent {node.parent} is nowhere; {instead}")


def cycles(loaded: Loaded) -> Iterator[Problem]:
    """Parents that lead in a circle, one finding for each circle, at its first line."""
    settled: set[int] = set()
    for start in range(len(loaded.nodes)):
        trail: dict[int, None] = {}
        at: int | None = start
        while at is not None and at not in settled and at not in trail:
            trail[at] = None
            at = loaded.graph.by_id.get(loaded.nodes[at].parent or "")
        if at is not None and at in trail:
            ring = list(trail)[list(trail).index(at) :]
            first = loaded.nodes[min(ring)]
            yield _at(
                first, "cycle", f"{first.id}: its parent {first.parent} leads back to it; the walk ends here"
            )
        settled.update(trail)


# --- bodies and calls -----------------------------------------------------------------------------


class Calls:
    """Calls and results by id over the whole file: each result answers one call."""

    def __init__(self) -> None:
        self._open: dict[str, list[tuple[Node, str]]] = {}
        self._orphans: list[tuple[Node, ToolResult]] = []
        self.assistants = 0

    def add(self, node: Node, message: Message) -> None:
        """One message entry, in file order."""
        if isinstance(message, Assistant):
            self.assistants += 1
            for block in message.content:
                if isinstance(block, ToolCall):
                    self._open.setdefault(block.id, []).append((node, block.name))
        elif isinstance(message, ToolResult):
            if waiting := self._open.get(message.call_id):
                waiting.pop(0)
            else:
                self._orphans.append((node, message))

    def problems(self) -> Iterator[Problem]:
        """Calls nobody answered, results nobody asked for."""
        for id, waiting in self._open.items():
            for node, name in waiting:
                yield _at(node, "unpaired_call", f"{node.id}: the call {id} of {name} has no result")
        for node, result in self._orphans:
            yield _at(node, "orphan_result", f"{node.id}: no call {result.call_id} stands before this result")


def bodies(loaded: Loaded, has_evidence: Callable[[str], bool] | None) -> Iterator[Problem]:
    """What is wrong inside records: bytes, messages, evidence; and calls without results."""
    calls = Calls()
    for node, raw in loaded.entries():
        if (stray := _stray(raw)) is not None:
            detail = f"{node.id}: bytes that are no UTF-8, shown as U+FFFD"
            yield problem("undecodable", node.line, node.start + stray, detail)
        if node.type != "message":
            continue
        entry = decode_entry(raw)
        message = entry_message(entry)
        if message is None:
            if not bytes(entry.message).startswith(b"{"):
                yield _at(node, "undecodable", f"{node.id}: a message entry without a message")
            continue
        calls.add(node, message)
        if getattr(message, "content", None) == ():
            yield _at(node, "empty_content", f"{node.id}: a message without content")
        if has_evidence is not None and isinstance(message, ToolResult) and node.epoch >= 0:
            yield from _evidence(node, message, has_evidence)
    yield from calls.problems()
    if not calls.assistants:
        detail = "no assistant message yet: programs of the reference empty such a file or write it twice"
        yield problem("no_assistant", 1, 0, detail)


def _stray(raw: bytes) -> int | None:
    try:
        raw.decode()
    except UnicodeDecodeError as error:
        return error.start
    return None


def _evidence(node: Node, message: ToolResult, has: Callable[[str], bool]) -> Iterator[Problem]:
    for block in message.content:
        for digest in _EVIDENCE.findall(block.text) if isinstance(block, Text) else ():
            if not has(digest):
                yield _at(
                    node, "missing_evidence", f"{node.id}: the evidence {digest} is not in the state folder"
                )


# --- compactions and segments ---------------------------------------------------------------------


class Archive(Record):
    """What left the file: ids in its segments, segments that can't be read, and names of discarded ones."""

    ids: frozenset[str] = frozenset()
    unreadable: tuple[str, ...] = ()
    discarded: frozenset[str] = frozenset()  # by somebody who asked for it: no damage


def archive(loaded: Loaded) -> Archive:
    """The segments beside a session file."""
    path = Path(loaded.path)
    told = past.marks(path, loaded.nodes, loaded.raw)
    ids: set[str] = set()
    bad: list[str] = []
    for place in segments.segments_of(path):
        try:
            ids.update(segments.Segment(place).ids())
        except (UnreadableFile, OSError):
            bad.append(place.name)
    return Archive(frozenset(ids), tuple(bad), frozenset(mark.segment for mark in told if mark.discarded))


def lost_segments(loaded: Loaded, moved: Archive) -> Iterator[Problem]:
    """Segments the file names that are gone or damaged."""
    present = {place.name for place in segments.segments_of(Path(loaded.path))}
    for node in loaded.nodes:
        if node.custom == f"{own.PREFIX}segment" and node.off_chain:
            name = own.segment_of(decode_entry(loaded.raw(node)))
            if name is None or name in moved.discarded:
                continue
            if name not in present or name in moved.unreadable:
                fate = "damaged" if name in present else "missing"
                yield _at(
                    node, "missing_segment", f"the segment {name} is {fate}: its entries can't be recalled"
                )


def compactions(loaded: Loaded, moved: Archive) -> Iterator[Problem]:
    """Anchors, proofs, and who made each compaction."""
    branch = loaded.branch()
    latest = next((node for node in reversed(branch) if node.type == COMPACTION), None)
    on_branch = {node.id for node in branch}
    for node in loaded.nodes:
        if node.type != COMPACTION:
            continue
        where = on_branch if node is latest else loaded.graph.by_id.keys() | moved.ids
        if node.kept not in where and node.kept != node.id and (node is latest or not moved.discarded):
            named = node.kept or "nothing"
            yield _at(node, "missing_anchor", f"{node.id}: it keeps from {named}, which is not before it")
        if node.epoch < 0:
            yield _at(node, "foreign_compaction", f"{node.id}: made by another program, without a proof")
        elif (broken := _broken(loaded, decode_entry(loaded.raw(node)), moved)) is not None:
            yield _at(node, "broken_proof", f"{node.id}: {broken}")


class _Span(Record):
    first: str
    last: str
    count: int


class _Proof(Record):
    first: str
    last: str
    entries: int
    spans: tuple[_Span, ...]
    tokens_before: int
    tokens_after: int


def _broken(loaded: Loaded, entry: WireEntry, moved: Archive) -> str | None:
    """Why the proof of a compaction of ours does not hold, `None` if it does."""
    try:
        proof = msgspec.convert(own.proof_of(entry), _Proof)
    except msgspec.ValidationError:
        return "its proof is missing or unreadable"
    ends = [id for span in proof.spans for id in (span.first, span.last)]
    for id in (proof.first, proof.last, *ends):
        if id not in loaded.graph.by_id and id not in moved.ids and not moved.discarded:
            return f"the covered entry {id} is neither in the file nor in a segment"
    if sum(span.count for span in proof.spans) != proof.entries:
        return f"it accounts for another number of entries than the {proof.entries} it covers"
    return "it did not shrink the view" if proof.tokens_after >= proof.tokens_before else None

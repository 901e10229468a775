"""Reading a whole session file: every record, what is wrong with it, and the view of any leaf.

Versions 1, 2 and 3 are read; not a byte is changed. Bodies stay in the file: a loaded session holds
heads, and reads a record again when it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path

from perdure.context.truncation.dag import Graph, Node, View
from perdure.context.truncation.plan import RECORDS
from perdure.edges.session import own, tolerant
from perdure.edges.session.decode import decode_entry
from perdure.edges.session.facts import Checkpoint, Opened
from perdure.edges.session.fold import Known, epochs_of, may_carry_checkpoint, tells
from perdure.edges.session.header import NEWEST, File, Header, foreign, parse_header, reading
from perdure.edges.session.heads import TYPE, TYPES, heads
from perdure.edges.session.migrate import chained
from perdure.edges.session.opened import Sight, opened
from perdure.edges.session.past import Past
from perdure.edges.session.problems import Problem, problem
from perdure.edges.session.scan import LARGEST_BLOCK, forward, read
from perdure.edges.session.view import Read, settings_of
from perdure.errors import UnreadableFile

MOST_TOLD = 10_000  # damaged places listed; a file with more of them is no session that was ever whole


class Loaded:
    """A session file as it stood when it was read. `nodes` are its entries in file order, headers apart.

    Lines of an owner that had already lost the file are `stale`: reported, and part of nothing.
    """

    def __init__(
        self, file: File, header: Header, nodes: list[Node], problems: list[Problem], torn: bool
    ) -> None:
        self.file, self.header, self.problems, self.torn = file, header, problems, torn
        self.epoch, self.stale = epochs_of(nodes)
        gone = {node.start for node in self.stale}
        self.nodes = [node for node in nodes if node.start not in gone] if gone else nodes
        self.problems += [_stale(node, self.epoch) for node in self.stale]
        self.checkpoint: Checkpoint | None = None
        self.checkpoint_end = -1
        self._graph: Graph | None = None
        self._past: Past | None = None
        self._fd = file.fd
        self._newest_checkpoint()
        self._fd = -1

    @property
    def path(self) -> str:
        """Where the file is."""
        return self.file.path

    # --- records ----------------------------------------------------------------------------------

    def raw(self, node: Node) -> bytes:
        """The bytes of one record, as they stand in the file."""
        if self._fd >= 0:
            return read(self._fd, node.end - node.start, node.start)
        with reading(self.path) as file:
            return read(file.fd, node.end - node.start, node.start)

    def entry(self, id: str) -> bytes:
        """The bytes of an entry. Raises `KeyError` for an id that is not in the file."""
        return self.raw(self.nodes[self.graph.by_id[id]])

    def node(self, id: str) -> Node | None:
        """The head of an entry; of several with one id the last."""
        at = self.graph.by_id.get(id)
        return None if at is None else self.nodes[at]

    def entries(self) -> Iterator[tuple[Node, bytes]]:
        """All records in file order, with their bytes."""
        with reading(self.path) as file:
            for node in self.nodes:
                yield node, read(file.fd, node.end - node.start, node.start)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Keep the file open while many records are read."""
        with reading(self.path) as file:
            self._fd = file.fd
            try:
                yield
            finally:
                self._fd = -1

    @property
    def count(self) -> int:
        """How many entries there are; lines that repeat one count once."""
        return len(self.graph.by_id)

    # --- the graph --------------------------------------------------------------------------------

    @property
    def graph(self) -> Graph:
        """The entries by id; holes are bridged as the newest checkpoint says, else by file order."""
        if self._graph is None:
            known = self.checkpoint.gaps if self.checkpoint else ()
            self._graph = Graph(self.nodes, {(gap.child, gap.missing): gap.bridged_to for gap in known})
        return self._graph

    def view(self, leaf: str | None = None) -> View:
        """The branch of a leaf (`None`: the file's own)."""
        return self.graph.view(True if leaf is None else leaf)

    def branch(self, leaf: str | None = None) -> tuple[Node, ...]:
        """The nodes from the root to a leaf, as far as they are in the file."""
        return tuple(self.nodes[at] for at in self.view(leaf).path)

    @property
    def past(self) -> Past:
        """The file with its segments, read once."""
        if self._past is None:
            self._past = Past(self.path, self.nodes, self.graph.bridges, self.raw)
        return self._past

    def labels(self) -> dict[str, str]:
        """Labels by target: the last one counts, an empty one takes it away."""
        found: dict[str, str] = {}
        for node in self.nodes:
            if node.type != "label":
                continue
            entry = decode_entry(self.raw(node))
            if entry.targetId and entry.targetId in self.graph.by_id:
                found[entry.targetId] = entry.label or ""
        return {target: label for target, label in found.items() if label}

    # --- waking -----------------------------------------------------------------------------------

    def opened(self, leaf: str | None = None, *, decode: bool = True) -> Opened:
        """What waking yields, for the file's own leaf or another; `decode` false leaves `items` empty.

        An entry inside a branch is seen as before truncations, through its segments. `KeyError` for an
        unknown one, `SegmentGone` where what its view needs is gone.
        """
        with self.reading():
            if leaf is None or not any(node.custom in RECORDS for node in self.nodes):
                return self._opened(self.graph, self.view(leaf), self.raw, decode)
            return self._opened(self.past.graph, self.past.view(leaf), self.past.read, decode)

    def _opened(self, graph: Graph, view: View, read: Read, decode: bool) -> Opened:
        branch = [graph.nodes[at] for at in view.path]
        compaction = None if view.compaction is None else branch[view.compaction]
        sight = Sight(view.leaf, branch, view.first, compaction, view.holes)
        found = settings_of(reversed(branch), read)
        known = self.known()
        return opened(self.file, self.header, sight, known, found, read, torn=self.torn, decode=decode)

    def known(self) -> Known:
        """The newest checkpoint and all facts after it."""
        known = Known(self.header.id, self.checkpoint, self.checkpoint_end)
        for node in self.nodes:
            if node.start >= self.checkpoint_end and tells(node):
                known.add(node, self.raw(node))
        known.epoch = max(known.epoch, self.epoch)
        return known

    def _newest_checkpoint(self) -> None:
        for node in reversed(self.nodes):
            if may_carry_checkpoint(node):
                found = own.checkpoint_of(decode_entry(self.raw(node)))
                if found is not None:
                    self.checkpoint, self.checkpoint_end = found, node.end
                    return


def load(path: str | PathLike[str]) -> Loaded:
    """Read a whole file. Raises `UnreadableFile`, in one line, for what is no session.

    Damage is reported in `problems` and costs the damaged records only.
    """
    with reading(path) as file:
        if not _promising(file):
            raise UnreadableFile(_refusal(file))
        records, problems, last = _records(file)
        header = _header(file, records, problems)
        if header.version == 1:
            nodes = chained(records, lambda node: read(file.fd, node.end - node.start, node.start))
        else:
            nodes = [node for node in records if node.type != "session"]
        torn = any(p.kind == "torn" and p.line == last for p in problems)
        torn = torn and read(file.fd, 1, file.size - 1) != b"\n"
        return Loaded(file, header, nodes, problems, torn)


def _promising(file: File) -> bool:
    """Whether the file holds what every record holds; most files given by mistake don't, however large."""
    overlap = len(TYPE) - 1
    for at in range(0, file.size, LARGEST_BLOCK):
        if TYPE in read(file.fd, min(LARGEST_BLOCK + overlap, file.size - at), at):
            return True
    return False


def _records(file: File) -> tuple[list[Node], list[Problem], int]:
    records: list[Node] = []
    problems: list[Problem] = []
    last = more = 0
    for line in forward(file.fd, 0, file.size):
        found, wrong = heads(line)
        records += found
        last = line.number
        if len(problems) < MOST_TOLD:
            problems += wrong
        else:
            more += len(wrong)
    if more:
        told = problems[-1]
        detail = f"{more} more damaged places follow; this one was the last to be listed"
        problems.append(problem("undecodable", told.line, told.byte, detail))
    return records, problems, last


def _header(file: File, records: list[Node], problems: list[Problem]) -> Header:
    """The header, or the best that can be made of a file whose first record is none."""
    first = next((node for node in records if node.type == "session"), None)
    if first is None and (not any(node.type in TYPES for node in records) or _foreign(file)):
        raise UnreadableFile(_refusal(file))
    stem = Path(file.path).stem
    header = Header(stem, 1 if all(node.parent is None for node in records) else NEWEST, good=False)
    if first is not None:
        raw = read(file.fd, first.end - first.start, first.start)
        header = parse_header(raw, stem) or header
    if not header.good or first is not records[0]:
        at = records[0]
        problems.insert(0, problem("bad_header", at.line, at.start, _bad_header(first, records[0])))
    problems += [
        problem("repeated", node.line, node.start, "a header in the middle of the file")
        for node in records
        if node.type == "session" and node is not first
    ]
    return header


def _bad_header(first: Node | None, top: Node) -> str:
    if first is None:
        return "the file has no header line; programs of the reference would overwrite it"
    if first is not top:
        return f"the header is not the first record but stands in line {first.line}"
    return "the header has no id that is a text; programs of the reference would overwrite the file"


def _foreign(file: File) -> str | None:
    return foreign(read(file.fd, min(file.size, LARGEST_BLOCK), 0))


def _refusal(file: File) -> str:
    sample = read(file.fd, min(file.size, LARGEST_BLOCK), 0)
    if kind := _foreign(file):
        return f"a {kind} transcript, not a session: bring it in with `perdure import {file.path}`"
    if not sample.strip(b"\0 \t\r\n"):
        return "there is nothing but blanks in the file, no session: delete it, or name another file"
    if b"\0" in sample or tolerant.text(sample).count("\ufffd") > len(sample) // 10:
        return "binary data, not a session file: name another file"
    return "not a session file, no line of it is a session header or entry: name another file"


def _stale(node: Node, epoch: int) -> Problem:
    detail = f"written under epoch {node.epoch} after the file went over to epoch {epoch}: not read"
    return problem("stale_owner", node.line, node.start, detail)


def descends(opened: Opened, ours: str) -> bool:
    """Whether the file's leaf descends from ours; a foreign compaction may have covered our own."""
    if any(entry.id == ours for entry in opened.entries):
        return True
    return opened.compaction is not None and any(node.id == ours for node in load(opened.path).branch())

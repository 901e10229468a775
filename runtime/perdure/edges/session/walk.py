"""One reading of a file from its end: collects the branch leaf first, and the facts it passes.

Exact with side branches, parents later in the file, repeated ids and cycles: lines passed over are
remembered by id, the definition nearest the end counts. Byte ranges of a checkpoint are hints only.
"""

from __future__ import annotations

from typing import Final

from perdure.context.truncation.dag import COMPACTION, Hole, Node
from perdure.edges.session import own
from perdure.edges.session.decode import decode_entry
from perdure.edges.session.facts import Checkpoint
from perdure.edges.session.fold import Known, epochs_of, may_carry_checkpoint, tells
from perdure.edges.session.header import File
from perdure.edges.session.heads import heads
from perdure.edges.session.opened import Sight
from perdure.edges.session.scan import Line, backward, read

_READ_ON: Final = -1
_USED_UP: Final = -2


class Walk:
    """State of one reading. `done`: the view is complete; `start_reached`: so are all facts of the file.

    `low` is where the line behind the header begins.
    """

    def __init__(self, file: File, low: int, *, hints: bool, window_bytes: int | None) -> None:
        self.file, self.low, self.hints, self.window = file, low, hints, window_bytes
        self.path: list[Node] = []  # leaf first
        self.holes: list[Hole] = []
        self.compaction: Node | None = None
        self.checkpoint: Checkpoint | None = None
        self.checkpoint_end = -1
        self.read_to = file.size  # nothing before this offset was read
        self.done = self.torn = self.unread = self.own_lines = self.start_reached = self.jumped = False
        self.rooted = False  # the branch was followed to its root
        self._facts: list[tuple[Node, bytes]] = []  # after the checkpoint, last first
        self._bodies: dict[int, bytes] = {}
        self._skipped: dict[str, Node] = {}
        self._visited: set[str] = set()
        self._passed: set[str] = set()  # entries of ours between the end of the file and the leaf
        self._bridges: dict[tuple[str, str], str | None] = {}
        self._want: str | None = None
        self._child = ""
        self._begun = self._on_branch = False
        self._bytes = 0
        self._ranges: list[tuple[int, int]] | None = None
        self._floor = -1

    def run(self) -> bool:
        """Read back as far as needed; false where this reading can't decide."""
        lines = backward(self.file.fd, self.file.size)
        first = True
        while (line := next(lines, None)) is not None:
            self._line(line, first)
            self.read_to = line.start
            first = first and bool(line.lost)  # padding: the line before it may be torn
            self.start_reached = line.start <= self.low and not self.jumped
            if self.done and (self.checkpoint is not None or not self.own_lines):
                return self._sound()
            if not self.done and self._ranges is not None:
                end = self._jump(line.start)
                if end == _USED_UP:
                    return False
                if end != _READ_ON:
                    lines = backward(self.file.fd, end)
        self.start_reached = not self.jumped
        if not self._begun:
            self.done = self.rooted = True
        return self.done and self._sound()

    def body(self, node: Node) -> bytes:
        """The bytes of a record; those of the branch are kept while they pass."""
        kept = self._bodies.get(node.start)
        return read(self.file.fd, node.end - node.start, node.start) if kept is None else kept

    def sight(self) -> Sight:
        """The branch as far as it was read, and where its view begins."""
        branch = self.path[::-1]
        leaf = branch[-1].id if branch else None
        if self.compaction is None:
            return Sight(leaf, branch, 0, None, tuple(self.holes))
        at = branch.index(self.compaction)
        kept = self.compaction.kept
        first = 0 if self.unread or (branch[0].id == kept and at) else at
        inside = {node.id for node in branch[first + 1 :]} | self._passed
        return Sight(leaf, branch, first, self.compaction, tuple(h for h in self.holes if h.child in inside))

    def known(self, session: str) -> Known:
        """The facts of the file as far as it was read."""
        known = Known(session, self.checkpoint, self.checkpoint_end)
        for node, raw in reversed(self._facts):
            known.add(node, raw)
        return known

    # --- passing lines ----------------------------------------------------------------------------

    def _line(self, line: Line, first: bool) -> None:
        nodes, wrong = heads(line)
        if first and any(problem.kind == "torn" for problem in wrong):
            self.torn = read(self.file.fd, 1, self.file.size - 1) != b"\n"
        for node in reversed(nodes):
            if node.type != "session":
                self._entry(node, line.data[node.start - line.start : node.end - line.start])
        self._follow()

    def _entry(self, node: Node, raw: bytes) -> None:
        self.own_lines = self.own_lines or node.epoch >= 0 or node.off_chain
        if self.checkpoint is None and tells(node):
            self._tell(node, raw)
        if self.done:
            return
        if not self._begun or node.id == self._want:
            self._begun = True
            self._bodies[node.start] = raw
            self._arrive(node)
            self._follow()
        elif node.id not in self._visited:
            self._skipped.setdefault(node.id, node)

    def _tell(self, node: Node, raw: bytes) -> None:
        if may_carry_checkpoint(node) and (found := own.checkpoint_of(decode_entry(raw))) is not None:
            self.checkpoint, self.checkpoint_end = found, node.end
            self._bridges = {(gap.child, gap.missing): gap.bridged_to for gap in found.gaps}
            if self.hints:
                good = [(a, b) for a, b in found.ranges if 0 <= a < b <= node.start]
                self._ranges = sorted(good, key=lambda r: r[1]) or None
                self._floor = node.start
        else:
            self._facts.append((node, raw))

    # --- the branch -------------------------------------------------------------------------------

    def _follow(self) -> None:
        """Go on along the branch through lines already passed and holes already known."""
        while not self.done and self._want is not None:
            if (node := self._skipped.get(self._want)) is not None:
                self._arrive(node)
            elif (self._child, self._want) in self._bridges:
                target = self._bridges[self._child, self._want]
                self.holes.append(Hole(self._child, self._want, target))
                self._expect(target)
            else:
                return

    def _arrive(self, node: Node) -> None:
        self._child = node.id
        if not self._on_branch and node.off_chain:
            self._passed.add(node.id)
            self._skipped.setdefault(node.id, node)
            self._expect(node.parent)
            return
        self._on_branch = True
        self.path.append(node)
        self._visited.add(node.id)
        self._bytes += node.end - node.start
        if node.type == COMPACTION and self.compaction is None:
            self.compaction = node
            self.done = node.kept in {"", node.id} or self._nothing_kept(node)
        elif self.compaction is not None and node.id == self.compaction.kept:
            self.done = True
        self._expect(node.parent)
        if self.window is not None and self._bytes > self.window and not self.done:
            self.unread = self.done = True

    def _expect(self, parent: str | None) -> None:
        self._want = parent
        seen = self._visited if self._on_branch else self._passed
        if not parent or parent in seen:
            self.done = self.rooted = True

    def _nothing_kept(self, compaction: Node) -> bool:
        """Whether the newest checkpoint already found that this compaction's anchor is nowhere.

        Believed only where its view began with the compaction's own line, at the same place as now.
        """
        known = self.checkpoint
        if known is None or known.kept is not None or known.prev != compaction.id:
            return False
        return min((start for start, _ in known.ranges), default=-1) == compaction.start

    def _jump(self, at: int) -> int:
        """The end of the next live range below `at`, `_READ_ON` if it is right here, or `_USED_UP`."""
        if at > self._floor or self._ranges is None:
            return _READ_ON
        while self._ranges and self._ranges[-1][0] >= at:
            self._ranges.pop()
        if not self._ranges:
            return _USED_UP if self.jumped else _READ_ON
        low, high = self._ranges.pop()
        self._floor = low
        if high >= at - 1:
            return _READ_ON
        self.jumped = True
        return high

    def _sound(self) -> bool:
        """False if a line was written by an owner that had already lost the file: the full load decides."""
        at_least = 0 if self.checkpoint is None else self.checkpoint.epoch
        return not epochs_of((node for node, _ in reversed(self._facts)), at_least)[1]

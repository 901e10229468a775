"""Which entries of a session file move into a segment, and who becomes whose child. Pure, on heads.

The rule: message entries that the live branch's latest compaction covers move, unless another branch,
a label, a branch summary or an older compaction still needs them. Configuration entries stay. The view
before equals the view after on every branch (`differing_views` checks it). The reference also removes
labels and branch summaries of removed entries, and messages that forks share: it loses the kept tail in
three known cases, and a fork its history. We keep those.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from msgspec.structs import replace

from perdure.context.truncation.dag import COMPACTION, Bridges, Graph, Node, View
from perdure.records import Record

CHECKPOINT = "perdure.checkpoint"
CARRIED = frozenset({"perdure.outbox", "perdure.timer", "perdure.child"})  # by every later checkpoint
RECORDS = frozenset({"perdure.segment", "perdure.restored", "perdure.discarded"})
"""What tells of earlier truncations: without it nobody knew where the entries of a segment stood."""


class Plan(Record):
    """What a truncation does: positions that move, and `(position, new parent)` of kept children.

    `reason` says why nothing is to do (then both are empty), in the reference's words.
    """

    moved: tuple[int, ...] = ()
    parents: tuple[tuple[int, str | None], ...] = ()
    reason: str = ""


class Ties(Record):
    """What the heads don't tell.

    `pinned` are ids that must stay (targets of labels and branch summaries, letters that only the entry
    itself remembers); `abandoned` are leaves of branches that a rewrite left behind for good; `taken`
    pairs each `perdure.inbox` entry with the message entry it became.
    """

    pinned: tuple[str, ...] = ()
    abandoned: tuple[str, ...] = ()
    taken: tuple[tuple[str, str], ...] = ()


def plan(nodes: Sequence[Node], ties: Ties | None = None, bridges: Bridges | None = None) -> Plan:
    """The truncation of a session whose entries are `nodes`, in file order."""
    ties = ties or Ties()
    graph = Graph(nodes, bridges)
    view = graph.view()
    if (reason := _nothing_to_do(graph, view)) is not None:
        return Plan(reason=reason)
    need = _Need(graph, view, ties)
    left, stays = need.settle()
    covered = {at for at in view.path[: view.first] if nodes[at].type == "message"}
    moved = {at for at in (covered - stays) | left if need.movable(at)}
    moved |= {inbox for inbox, message in need.taken if message in moved}
    if not moved:
        needed = (
            "all that is covered is needed still: by another branch, a label, an anchor or a recent letter"
        )
        return Plan(reason=needed if covered else "no entries to remove")
    moved |= {at for at in _replaced(nodes, view) - stays if need.movable(at)}
    return Plan(tuple(sorted(moved)), tuple(_reparented(graph, moved)))


def after(nodes: Sequence[Node], plan: Plan) -> list[Node]:
    """The entries that stay, with their new parents."""
    parents, moved = dict(plan.parents), set(plan.moved)
    return [
        replace(node, parent=parents[at]) if at in parents else node
        for at, node in enumerate(nodes)
        if at not in moved
    ]


def differing_views(
    nodes: Sequence[Node], plan: Plan, bridges: Bridges | None = None, most: int = 256
) -> tuple[str | None, ...]:
    """Leaves whose view the plan would change: none, or it must not be carried out.

    Looks at the live branch and at the `most` newest others that the plan leaves in the file.
    """
    before, later = Graph(nodes, bridges), Graph(after(nodes, plan), bridges)
    moved = set(plan.moved)
    live = before.leaf()[0]
    others = [at for at in leaves(before) if at not in moved and at != live][-most:]
    names = [nodes[at].id for at in others]
    found: list[str | None] = [name for name in names if _shown(before, name) != _shown(later, name)]
    if _shown(before, None) != _shown(later, None):
        found.append(None if live is None else nodes[live].id)
    return tuple(found)


def leaves(graph: Graph) -> list[int]:
    """Ends of branches in file order: entries that no entry on the chain follows.

    (An entry of ours may have got on the chain, if another program went on behind it.)
    """
    followed: set[int] = set()
    for at, node in enumerate(graph.nodes):
        up = None if node.off_chain else graph.parent(at)[0]
        while up is not None and up not in followed:
            followed.add(up)
            up = graph.parent(up)[0] if graph.nodes[up].off_chain else None
    return [
        at
        for at, node in enumerate(graph.nodes)
        if at not in followed and not node.off_chain and graph.by_id[node.id] == at
    ]


_SPEAKING = frozenset({"message", "custom_message", "branch_summary"})


def _shown(graph: Graph, leaf: str | None) -> list[str]:
    """Ids of what a view shows, its summary first; `None` is the file's own leaf."""
    view = graph.view(True if leaf is None else leaf)
    summary = [] if view.compaction is None else [graph.nodes[view.path[view.compaction]].id]
    return summary + [graph.nodes[at].id for at in view.shown if graph.nodes[at].type in _SPEAKING]


def _nothing_to_do(graph: Graph, view: View) -> str | None:
    if not view.path:
        return "empty session"
    if view.compaction is None:
        return "no compaction entry found"
    if view.compaction == 0:
        return "compaction already at root"
    latest = graph.nodes[view.path[view.compaction]]
    if view.first == view.compaction and latest.kept not in ("", latest.id):
        return f"the latest compaction keeps from {latest.kept}, which is not before it"
    return None


class _Need:
    """Which entries something in the file still needs."""

    def __init__(self, graph: Graph, view: View, ties: Ties) -> None:
        self.graph, self.view = graph, view
        self.abandoned = {at for at in _positions(graph, ties.abandoned) if not graph.nodes[at].off_chain}
        self.pinned = _positions(graph, ties.pinned) | _of_the_file(graph)
        by_id = graph.by_id
        self.taken = [(by_id[i], by_id[m]) for i, m in ties.taken if i in by_id and m in by_id]
        counts: dict[str, int] = {}
        for node in graph.nodes:
            counts[node.id] = counts.get(node.id, 0) + 1
        self.repeated = {name for name, count in counts.items() if count > 1}
        self.trailing = len(graph.nodes)
        while self.trailing and graph.nodes[self.trailing - 1].off_chain:
            self.trailing -= 1

    def movable(self, at: int) -> bool:
        """Two lines of one id can't be told apart by those who point at them, trailing lines of ours
        say where the leaf is, and some where earlier entries are: all stay.
        """
        node = self.graph.nodes[at]
        return node.id not in self.repeated and at < self.trailing and node.custom not in RECORDS

    def settle(self) -> tuple[set[int], set[int]]:
        """Entries left behind for good, and entries that must stay.

        A letter's inbox entry goes where its message goes, or neither does: alone it would wait again.
        """
        while True:
            left = self.left_behind()
            stays = self.entries(left)
            held = {m for i, m in self.taken if i in stays or not self.movable(i)}
            if held <= self.pinned:
                return left, stays
            self.pinned |= held

    def left_behind(self) -> set[int]:
        """Entries that only abandoned branches hold."""
        first = self._left(self.pinned)
        return first and self._left(self.pinned | self._anchors(first))

    def _left(self, pinned: set[int]) -> set[int]:
        ends = [at for at in leaves(self.graph) if at not in self.abandoned]
        alive: set[int] = set()
        for end in (*ends, *self.view.path, *pinned):
            self._up(end, alive)
        left: set[int] = set()
        for end in self.abandoned - alive:
            self._up(end, left, alive)
        return left

    def _anchors(self, left: Collection[int]) -> set[int]:
        nodes = self.graph.nodes
        return _positions(
            self.graph, [n.kept for at, n in enumerate(nodes) if n.type == COMPACTION and at not in left]
        )

    def _up(self, end: int | None, into: set[int], stop: Collection[int] = ()) -> None:
        while end is not None and end not in into and end not in stop:
            into.add(end)
            end = self.graph.parent(end)[0]

    def entries(self, left: Collection[int]) -> set[int]:
        """Entries that stay: what other branches show, pinned ones, anchors of all compactions."""
        needed: set[int] = set(self.pinned)
        walked: set[int] = set()
        for end in leaves(self.graph):
            if end not in left and end not in self.view.path:
                self._shown_from(end, needed, walked)
        return needed | self._anchors(left)

    def _shown_from(self, end: int, needed: set[int], walked: set[int]) -> None:
        """What the view of a branch shows, as far as no branch walked before has told already."""
        at: int | None = end
        while at is not None and at not in walked:
            walked.add(at)
            needed.add(at)
            if self.graph.nodes[at].type == COMPACTION:
                needed |= self._kept_of(at)
                return
            at = self.graph.parent(at)[0]

    def _kept_of(self, compaction: int) -> set[int]:
        kept, found = self.graph.nodes[compaction].kept, set()
        at = self.graph.parent(compaction)[0]
        while at is not None and at not in found:
            found.add(at)
            if self.graph.nodes[at].id == kept:
                return found
            at = self.graph.parent(at)[0]
        return set()  # the anchor is not on the path: nothing is kept


def _of_the_file(graph: Graph) -> set[int]:
    """Labels and names count for the whole file, whatever branch they stand on."""
    return {at for at, node in enumerate(graph.nodes) if node.type in ("label", "session_info")}


def _positions(graph: Graph, ids: Collection[str]) -> set[int]:
    return {graph.by_id[name] for name in ids if name in graph.by_id}


def _replaced(nodes: Sequence[Node], view: View) -> set[int]:
    """Checkpoints before the view that a newer one has replaced; what else a later one carries."""
    found = [at for at, node in enumerate(nodes) if node.off_chain and node.custom == CHECKPOINT]
    made = [at for at, node in enumerate(nodes) if node.type == COMPACTION and node.epoch >= 0]
    told = [at for at, node in enumerate(nodes) if node.off_chain and node.custom in CARRIED]
    newest = max((*found, *made), default=-1)
    old = (*found[:-1], *(at for at in told if at < newest))
    return {at for at in old if at < view.path[view.first]}


def _reparented(graph: Graph, moved: Collection[int]) -> list[tuple[int, str | None]]:
    """Children of moved entries become children of the nearest ancestor that stays."""
    changed = []
    for at, node in enumerate(graph.nodes):
        if at in moved or not node.parent or graph.by_id.get(node.parent) not in moved:
            continue
        changed.append((at, _staying(graph, node.parent, moved)))
    return changed


def _staying(graph: Graph, parent: str, moved: Collection[int]) -> str | None:
    seen: set[str] = set()
    above: str | None = parent
    while above is not None and above not in seen and graph.by_id.get(above) in moved:
        seen.add(above)
        above = graph.nodes[graph.by_id[above]].parent
    return None if above in seen else above  # a parent that is nowhere stays named: the hole stays visible

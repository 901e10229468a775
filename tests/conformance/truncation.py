"""Truncation of the file: what moves, who becomes whose child, and that no branch shows less."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from conformance.rules import Case, Departure, Function, holds, same
from perdure.context.truncation import plan as truncation
from perdure.context.truncation.dag import Graph, Node
from perdure.context.truncation.plan import Plan, Ties, after, differing_views, plan

SPEAKING = frozenset({"message", "custom_message", "branch_summary"})


def entries(text: str | None) -> list[dict[str, Any]]:
    """Entries behind a header; a damaged line is nothing."""
    found = []
    for line in (text or "").split("\n"):
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    found = [entry for entry in found if isinstance(entry, dict)]
    return [e for e in found if e["type"] != "session"] if found and "version" in found[0] else []


def heads(found: list[dict[str, Any]]) -> list[Node]:
    """The heads of entries, as a reader sees them."""
    return [
        Node(e["id"], e["type"], e.get("parentId"), e.get("customType", ""), e.get("firstKeptEntryId") or "")
        for e in found
    ]


def _named(found: list[dict[str, Any]]) -> tuple[str, ...]:
    """Ids that labels and branch summaries point at."""
    labels = {e["targetId"]: e.get("label") for e in found if e["type"] == "label"}
    named = tuple(target for target, label in labels.items() if label)
    return named + tuple(e["fromId"] for e in found if e["type"] == "branch_summary")


class _Run:
    """One case: the file's heads, our plan for them, and what stays by it."""

    def __init__(self, case: Case) -> None:
        self.text = case["input"]["file_text"]
        self.found = entries(self.text)
        self.nodes = heads(self.found)
        self.graph = Graph(self.nodes)
        self.named = frozenset(_named(self.found))
        self.plan: Plan = plan(self.nodes, Ties(tuple(self.named)))
        self.ours = after(self.nodes, self.plan)

    def theirs(self, case: Case) -> list[Node]:
        done = case["expected"]["file_after"]
        return heads(entries(self.text if done == "(unchanged)" else done))

    def shown(self, leaf: Any) -> list[str]:
        view = self.graph.view(leaf)
        return [self.nodes[at].id for at in view.shown if self.nodes[at].type in SPEAKING]

    def needed(self) -> set[str]:
        """Ids that must stay, told independently: pointed at, an anchor, or shown on some branch."""
        anchors = {node.kept for node in self.nodes}
        shown = {id for at in truncation.leaves(self.graph) for id in self.shown(self.nodes[at].id)}
        return self.named | anchors | shown | set(self.shown(True))

    @property
    def anchor_lost(self) -> bool:
        """The latest compaction keeps from an entry that does not stand before it."""
        view = self.graph.view()
        if view.compaction is None:
            return False
        latest = self.nodes[view.path[view.compaction]]
        return view.first == view.compaction and latest.kept not in ("", latest.id)

    def covered(self) -> set[str]:
        """Messages of the live path that its latest compaction covers, where there is one."""
        view = self.graph.view()
        if view.compaction is None or self.anchor_lost:
            return set()
        path = [self.nodes[at] for at in view.path[: view.first]]
        return {node.id for node in path if node.type == "message"}


def _no_view_differs(case: Case) -> None:
    """Every branch shows after it what it showed before, and just what nobody needs has moved."""
    run = _Run(case)
    same(differing_views(run.nodes, run.plan), (), "views that differ")
    moved = {run.nodes[at].id for at in run.plan.moved}
    ids = [node.id for node in run.nodes]
    alone = {id for id in ids if ids.count(id) == 1}
    same(moved, (run.covered() - run.needed()) & alone, "what moved")
    holds(not run.plan.reason or not moved, "a reason is told for doing nothing")
    parents = {node.id for node in run.ours} | {None}
    was = {node.parent for node in run.nodes}
    holds(all(n.parent in parents or n.parent in was - set(ids) for n in run.ours), "no parent has moved")


def _agrees(case: Case) -> None:
    run = _Run(case)
    same(run.ours, run.theirs(case), "entries that stay")
    same(run.plan.reason, case["expected"]["result"].get("reason", ""), "reason")


def _kept(check: Callable[[_Run, set[str]], bool]) -> Callable[[Case], bool]:
    """A predicate on what the live branch's compaction covers, or what hangs on it."""

    def applies(case: Case) -> bool:
        run = _Run(case)
        return check(run, run.covered())

    return applies


def _hangs(run: _Run, covered: set[str], kind: str) -> bool:
    """An entry of this type hangs on a covered message, on others of its kind, or points at one."""
    gone = set(covered)
    for node, entry in zip(run.nodes, run.found, strict=True):
        of_kind = node.type in ("label", "branch_summary")
        if of_kind and (node.parent in gone or entry.get("targetId") in gone):
            gone.add(node.id)
            if node.type == kind:
                return True
    return False


def _pointed_at(run: _Run, covered: set[str]) -> bool:
    return bool(covered & run.named)


def _anchored(run: _Run, covered: set[str]) -> bool:
    return bool(covered & {node.kept for node in run.nodes})


def _forked(run: _Run, covered: set[str]) -> bool:
    """A branch beside the live one shows a covered message."""
    live = {run.nodes[at].id for at in run.graph.view().path}
    ends = (run.nodes[at].id for at in truncation.leaves(run.graph))
    return any(covered & set(run.shown(end)) for end in ends if end not in live)


def _damaged(case: Case) -> bool:
    run = _Run(case)
    ids = {node.id for node in run.nodes}
    holes = any(node.parent and node.parent not in ids for node in run.nodes)
    return holes or "null" in (run.text or "").split("\n")


def _rule(name: str, reason: str, applies: Callable[[Case], bool]) -> Departure:
    return Departure(name, reason, applies, _no_view_differs)


FUNCTIONS = {
    "truncateSessionAfterCompaction": Function(
        _agrees,
        (
            _rule(
                "a hole is bridged, and a line that is no entry costs itself",
                "the compaction covers what stands before the hole, too; the reference stops or throws there",
                _damaged,
            ),
            _rule(
                "an anchor that is nowhere is damage, and nothing moves",
                "nobody knows what the compaction meant to keep; the reference removes all before it",
                lambda case: _Run(case).anchor_lost,
            ),
            _rule(
                "labels stay, with what they name",
                "the reference removes both, even if the compaction is anchored at them",
                _kept(lambda run, covered: _hangs(run, covered, "label")),
            ),
            _rule(
                "branch summaries stay",
                "they stand for a branch; the reference removes them with the message they hang on",
                _kept(lambda run, covered: _hangs(run, covered, "branch_summary")),
            ),
            _rule(
                "what a label or a branch summary points at stays",
                "or it would name nothing",
                _kept(_pointed_at),
            ),
            _rule(
                "the anchor of every compaction stays",
                "on a branch with an older compaction its kept messages would be lost",
                _kept(_anchored),
            ),
            _rule(
                "a fork keeps the history that it shows",
                "no summary of its own covers it; the reference cuts the fork off",
                _kept(_forked),
            ),
        ),
        always=_no_view_differs,
    ),
}

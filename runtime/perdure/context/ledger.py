"""The ledger: one line for each entry of a request, recomputed from what the steps report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from perdure.context.results.parts import is_blank, placeholder
from perdure.context.tokens.estimator import Estimator
from perdure.records import Assistant, Decision, Items, LedgerLine, ToolResult

_WEIGHT = {
    "in": 0,
    "synthesised": 1,
    "shortened": 2,
    "placeholder": 3,
    "pruned": 3,
    "covered": 4,
    "left_out": 4,
}


def ledger(
    items: Items, lines: tuple[LedgerLine, ...], estimator: Estimator, unseen: frozenset[str]
) -> tuple[LedgerLine, ...]:
    """What became of every entry: what a step reported last and strongest, else plainly `in`."""
    told: dict[str, LedgerLine] = {}
    made_up: list[LedgerLine] = []
    for line in lines:
        if line.decision == "synthesised":
            made_up.append(line)
        elif line.entry and _WEIGHT[line.decision] >= _WEIGHT[told.get(line.entry, line).decision]:
            told[line.entry] = line
    sent = {item.entry for item in items if item.entry}
    out = [line for entry, line in told.items() if entry not in sent]
    last = max(len(items) - 2, 0)
    for at, item in enumerate(items):
        known = told.get(item.entry)
        fate = known.decision if known is not None and known.decision != "left_out" else "in"
        rule = known.rule if known is not None else "kept"
        fresh = at >= last or item.entry in unseen
        if item.entry:
            size = estimator.item(item)
            out.append(LedgerLine(item.entry, fate, rule, size, "tail" if fresh else "stable"))
    return (*out, *(_sized(made_up, items, estimator) if made_up else ()))


def _sized(lines: list[LedgerLine], items: Items, estimator: Estimator) -> Iterator[LedgerLine]:
    """What was made up has no entry: a result is found behind the message whose call it answers."""
    sizes: dict[str, list[int]] = {}
    asked = ""
    for item in items:
        if isinstance(item.message, Assistant):
            asked = item.entry
        elif not item.entry and isinstance(item.message, ToolResult):
            sizes.setdefault(asked, []).append(estimator.item(item))
    for line in lines:
        waiting = sizes.get(line.entry)
        yield replace(line, tokens=waiting.pop(0)) if line.entry and waiting else line


def told_decisions(
    lines: tuple[LedgerLine, ...], decisions: tuple[Decision, ...]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """What one request did to tool results for the first time, as events for the log: pruning and guard.

    One event each, with counts by rule and the first entries. Where results were blanked the event holds
    the text that stands for them: people count those lines.
    """
    forms = {decision.key: decision for decision in decisions}
    if not decisions:
        return
    for event, step in (("context.pruned", "prune."), ("context.shortened", "guard.")):
        new = [line for line in lines if line.entry in forms and line.rule.startswith(step)]
        new = [line for line in new if not line.rule.endswith("replayed")]
        if not new:
            continue
        rules = dict(sorted(Counter(line.rule for line in new).items()))
        told: dict[str, Any] = {"results": len(new), "rules": rules}
        blanked = [forms[line.entry] for line in new if is_blank(forms[line.entry])]
        if blanked:
            told |= {"blanked": len(blanked), "placeholder": placeholder(blanked[0])}
        yield event, told | {"entries": [line.entry for line in new[:TOLD]]}


TOLD = 10  # entries that an event names

"""The reference's pairing vectors: ours agrees, or departs by a rule that holds for unseen cases too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from helpers_conformance import cases as vectors
from helpers_conformance import ident
from helpers_messages import view
from helpers_pairing import DEPARTURES, by_our_rules, shown, turns
from perdure.context.repair import DUPLICATE, ORPHAN, SYNTHESISED, SYNTHETIC, repair
from perdure.records import Items, Message, Text, ToolResult

REPAIR = [
    case
    for case in vectors("repair_pairing")
    # What isn't a list of objects never becomes a view: the decoder refuses it.
    if isinstance(case["input"]["messages"], list)
    and all(isinstance(m, dict) for m in case["input"]["messages"])
]


def plain(message: Message) -> Any:
    """For comparison with the reference: its placeholder is ours, its clock is left out."""
    if isinstance(message, ToolResult):
        texts = [Text(SYNTHETIC) if b == Text("{{SYNTHETIC_RESULT}}") else b for b in message.content]
        return (message.call_id, message.tool, tuple(texts), message.is_error)
    return message


@pytest.mark.parametrize("case", REPAIR, ids=ident)
def test_a_vector_of_the_reference_is_paired_as_it_should_be(case: dict[str, Any]) -> None:
    source = view(case["input"]["messages"])
    done = repair(source)
    assert shown(done.items, source) == by_our_rules(source)
    if any(applies(source) for applies in DEPARTURES.values()):
        return
    wanted = case["expected"]["out"]
    theirs = view(wanted["messages"])
    assert [plain(item.message) for item in done.items] == [plain(item.message) for item in theirs]
    rules = [line.rule for line in done.lines]
    assert rules.count(SYNTHESISED) == len(wanted["added"])
    dropped = wanted["droppedDuplicateCount"] + wanted["droppedOrphanCount"]
    assert rules.count(DUPLICATE) + rules.count(ORPHAN) == dropped
    assert bool(rules) == wanted["moved"] or only_flagged(source)
    if case["expected"]["same_ref"]:
        assert done.items is source


def only_flagged(items: Items) -> bool:
    """The reference says "moved" of any turn with results and other messages, in whatever order."""
    return any(
        any(isinstance(m, ToolResult) for m in rest) and any(not isinstance(m, ToolResult) for m in rest)
        for _, rest in turns(items)
    )


@pytest.mark.parametrize("applies", DEPARTURES.values(), ids=DEPARTURES)
def test_every_rule_of_departure_is_met_by_a_vector(applies: Callable[[Items], bool]) -> None:
    whole = [case for case in vectors("sanitize") if "policy_name" in case["params"]]
    assert any(applies(view(case["input"]["messages"])) for case in [*REPAIR, *whole])

"""Pairing of calls and results: ours agrees, or comes to what our rules demand, told independently."""

from __future__ import annotations

from typing import Any

from conformance.messages import messages, source, unreadable, view
from conformance.rules import Case, Departure, Function, holds, same
from conformance.sanitize import never_refused
from helpers_pairing import DEPARTURES, by_our_rules, shown, turns
from perdure.context.safety.repair import DUPLICATE, ORPHAN, SYNTHESISED, SYNTHETIC, repair
from perdure.records import Items, Message, Text, ToolResult


def _by_the_rules(case: Case) -> None:
    items = source(case)
    done = repair(items)
    same(shown(done.items, items), by_our_rules(items), "by our rules")
    holds(repair(done.items).items == done.items, "repairing what is repaired changes nothing")
    never_refused(case)


def _agrees(case: Case) -> None:
    items, wanted = source(case), case["expected"]["out"]
    done = repair(items)
    theirs = messages(view(wanted["messages"]))
    same([_plain(m) for m in messages(done.items)], [_plain(m) for m in theirs], "messages")
    rules = [line.rule for line in done.lines]
    same(rules.count(SYNTHESISED), len(wanted["added"]), "results made up")
    dropped = wanted["droppedDuplicateCount"] + wanted["droppedOrphanCount"]
    same(rules.count(DUPLICATE) + rules.count(ORPHAN), dropped, "results dropped")
    flagged = _only_flagged(items) or _padded(items)
    holds(bool(rules) == wanted["moved"] or flagged, "something changed where it did there")
    holds(done.items is items or not case["expected"]["same_ref"], "untouched where it was there")


def _plain(message: Message) -> Any:
    """For comparison: the placeholder is ours; its time, and blanks around a tool's name, say nothing."""
    if isinstance(message, ToolResult):
        texts = [Text(SYNTHETIC) if b == Text("{{SYNTHETIC_RESULT}}") else b for b in message.content]
        return (message.call_id, message.tool.strip(), tuple(texts), message.is_error)
    return message


def _only_flagged(items: Items) -> bool:
    """The reference says "moved" of any turn with results and other messages, in whatever order."""
    return any(len({isinstance(m, ToolResult) for m in rest}) > 1 for _, rest in turns(items))


def _padded(items: Items) -> bool:
    """Blanks stand around a result's name: they never reach a provider, which gets no name of results."""
    return any(isinstance(m, ToolResult) and m.tool != m.tool.strip() for m in messages(items))


def _departure(name: str, reason: str) -> Departure:
    return Departure(name, reason, lambda case: DEPARTURES[name](source(case)), _by_the_rules)


REASONS = {
    "of a turn that failed nothing is sent, of an aborted one its text": (
        "its calls never ran, and a block that was cut off is refused by providers"
    ),
    "ids are unique within a turn only: a reused id keeps its own result": (
        "the reference takes the real result for a duplicate and leaves its call unanswered"
    ),
    "results are shown in call order, even if nothing else is wrong": (
        "the reference leaves the order where it is all that is wrong"
    ),
    "a second result of one call is always taken out": "the reference keeps it where nothing else changed",
    "a real result that comes after the model went on is sent as a note": "the reference loses it",
    "a call without an id must not stay unanswered": "providers refuse the request",
    "a result whose call is covered by the summary is sent as a note": "it is news: its call is covered",
    "a result without a name gets one, whatever else changed": (
        "the reference names it only where it changes something else, too"
    ),
}

FUNCTIONS = {
    "repairToolUseResultPairing": Function(
        _agrees,
        (
            *(_departure(name, reason) for name, reason in REASONS.items()),
            Departure(
                "what is no message gets into no view",
                "the reference throws, or carries it through; ours pairs the messages that are there",
                unreadable,
                _by_the_rules,
            ),
        ),
        always=_by_the_rules,
    ),
}

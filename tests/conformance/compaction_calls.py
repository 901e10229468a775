"""Compaction's calls: what a summariser is asked, in which order, and what failures lead to.

The fake summariser of a case throws where its parameters say so. As here, one place repeats a call that
failed, three times in all; the ladder sees the last outcome only.
"""

from __future__ import annotations

import re
from typing import Any

from conformance.compaction_sizes import PLAIN, weigh
from conformance.messages import source
from conformance.rules import Case, Departure, Function, has_error, holds, same
from helpers_messages import items as listed
from helpers_messages import user
from perdure.context.compaction.digest import unavailable
from perdure.context.compaction.fold import Answered, Ask, Done, Failed, Fold, Reply, Stopped, Trigger
from perdure.context.compaction.plan import Nothing, Plan, plan
from perdure.context.compaction.prompts import Instructions
from perdure.context.compaction.serialize import serialize
from perdure.context.compaction.size import view_tokens
from perdure.context.compaction.stages import chunk_by_tokens, oversized, stages
from perdure.context.numbers import limits
from perdure.records import Item, Items, Summary

WIDE = limits(1_000_000)
KEPT = listed(user("kept " * 90_000))
TRIES = 3
RUNGS = ["staged", "partial", "subsets", "digest"]

# --- a fake summariser ----------------------------------------------------------------------------


class _Summariser:
    """Answers `S<n>` for its n-th call, or fails as the case tells; calls are repeated as at the edge."""

    def __init__(self, how: dict[str, Any], items: Items) -> None:
        self.how, self.count = how, 0
        self.sizes = {item.entry: weigh(item) for item in items}
        self.asked: list[tuple[tuple[str, ...], str, str]] = []  # entries, outcome, earlier summary

    def __call__(self, ask: Ask) -> Reply:
        reply: Reply = Failed("invalid")
        for _ in range(TRIES):
            self.count += 1
            reply = self.once(ask)
            if isinstance(reply, Answered) or reply.kind in ("aborted", "timeout"):
                break
        told = reply.text if isinstance(reply, Answered) else reply.kind
        merged = ("merge",) if ask.stage == "merge" else ask.entries
        self.asked.append((merged, told, _previous(ask.prompt)))
        return reply

    def once(self, ask: Ask) -> Reply:
        how = self.how
        if self.count in how.get("abortCalls", ()):
            return Failed("aborted")
        if self.count in how.get("timeoutCalls", ()):
            return Failed("timeout")
        poison = how.get("failIfHas")
        if how.get("failAll") or self.count in how.get("failCalls", ()) or (poison and poison in ask.entries):
            return Failed("invalid")
        size = 2 if ask.stage == "merge" else sum(self.sizes[entry] for entry in ask.entries)
        if size > how.get("failOverTokens", size):
            return Failed("overflow")
        return Answered("" if how.get("empty") else f"S{self.count}")


def _previous(prompt: str) -> str:
    found = re.search(r"<previous-summary>\n(.*?)\n</previous-summary>", prompt, re.DOTALL)
    return found[1] if found else ""


def _run(case: Case, trigger: Trigger = "overflow") -> tuple[_Summariser, Done | Stopped]:
    """The ladder on the case's messages, with its sizes and its summariser."""
    items, params = source(case), case["params"]
    summariser = _Summariser(params["summariser"], items)
    before = params.get("previousSummary") or ""
    made = Plan((*items, *KEPT), items, KEPT, "e1", previous=before)
    chunk = max(1, int(params["maxChunkTokens"]))
    rules = _rules(case)
    fold = Fold(
        made, limits=WIDE, estimator=PLAIN, rules=rules, trigger=trigger, chunk=chunk, weigh=weigh
    )  # fmt: skip
    # The windows of cases are smaller than any real prompt, so they only say what is too large.
    fold.large = [oversized(item, params["contextWindow"], weigh) for item in items]
    while isinstance(step := fold.step, Ask):
        fold.answer(summariser(step))
    return summariser, step


def _rules(case: Case) -> Instructions:
    given = case["params"].get("summarizationInstructions") or {}
    focus = case["params"].get("customInstructions") or ""
    return Instructions(
        given.get("identifierPolicy", "strict"), given.get("identifierInstructions", ""), focus
    )


# --- what was recorded ----------------------------------------------------------------------------


def _recorded(case: Case) -> list[tuple[tuple[str, ...], str, str]]:
    """The recorded calls, repetitions of one that failed taken together."""
    found: list[tuple[tuple[str, ...], str, str]] = []
    again = 0
    for call in case["expected"]["calls"]:
        merged = call["instr"].get("merge_rule")
        entries = ("merge",) if merged else tuple(call["messages"])
        outcome = call["returned"] if "returned" in call else call["threw"]
        previous = call["previousSummary"] or ""
        repeated = 0 < again < TRIES and found[-1][0] == entries
        if repeated:
            found[-1] = (entries, outcome, previous)
        else:
            found.append((entries, outcome, previous))
        failed = "returned" not in call and outcome not in ("aborted", "timed out")
        again = (again + 1 if repeated else 1) if failed else 0
    return found


_KINDS = {"fake failure": "invalid", "poison message": "invalid", "too many tokens": "overflow",
          "aborted": "aborted", "timed out": "timeout"}  # fmt: skip


def _same_calls(case: Case) -> None:
    summariser, outcome = _run(case)
    wanted = [(entries, _KINDS.get(told, told), before) for entries, told, before in _recorded(case)]
    same(summariser.asked[: len(wanted)], wanted, "calls")
    holds(isinstance(outcome, Done), "a compaction is done")
    assert isinstance(outcome, Done)
    if outcome.rung in ("staged", "partial"):
        same(outcome.draft.body.split("\n")[0], case["expected"]["summary"].split("\n")[0], "summary")
        same(len(summariser.asked), len(wanted), "calls")
    _accounted(case, outcome)


def _accounted(case: Case, outcome: Done) -> None:
    """A proof of every entry, and a note for each that was too large to be told."""
    items = source(case)
    same(sum(span.count for span in outcome.proof.spans), len(items), "entries that are proven")
    holds(outcome.proof.tokens_after < outcome.proof.tokens_before, "the view shrinks")
    if outcome.rung in ("partial", "subsets"):
        large = [oversized(item, case["params"]["contextWindow"], weigh) for item in items]
        same(outcome.draft.body.count("omitted from summary]"), sum(large), "notes")


# --- departures -----------------------------------------------------------------------------------


def _nothing_there(case: Case) -> bool:
    return not source(case)


def _nothing_to_compact(case: Case) -> None:
    previous = case["params"].get("previousSummary")
    head: Items = (Item("s", Summary(previous)),) if previous else ()
    same(plan(head, limits=WIDE, estimator=PLAIN), Nothing("only a summary" if head else "empty"), "plan")
    same(case["expected"].get("calls", []), [], "calls of the reference")


def _aborts(case: Case) -> bool:
    return _threw(case, "aborted")


def _threw(case: Case, what: str) -> bool:
    return any(call.get("threw") == what for call in case["expected"]["calls"])


def _aborted(case: Case) -> None:
    """An abort ends everything at once; nothing is asked or written after it."""
    summariser, outcome = _run(case)
    at = min(case["params"]["summariser"]["abortCalls"])
    if summariser.count < at:
        return
    holds(isinstance(outcome, Stopped) and outcome.why == "aborted", "an abort aborts")
    same(summariser.count, at, "calls until the abort")


def _times_out(case: Case) -> bool:
    return _threw(case, "timed out")


def _unanswered(case: Case) -> None:
    """Nobody answers: an automatic compaction waits, a commanded one fails, an overflow gets its digest."""
    first = min(case["params"]["summariser"]["timeoutCalls"])
    for trigger, why in (("threshold", "deferred"), ("manual", "failed")):
        summariser, outcome = _run(case, trigger)  # type: ignore[arg-type]
        if summariser.count < first:
            return
        holds(isinstance(outcome, Stopped) and outcome.why == why, f"{trigger}: {why}")
        same(summariser.count, first, "calls until nobody answered")
    _without_a_model(case, _run(case)[1], noted=False)


def _empty(case: Case) -> bool:
    return bool(case["params"]["summariser"].get("empty"))


def _never_empty(case: Case) -> None:
    _without_a_model(case, _run(case)[1])


def _without_a_model(case: Case, outcome: Done | Stopped, *, noted: bool = True) -> None:
    """What no summary helps: a digest that opens with the known line, or notes where all is too large.

    It must be smaller than what it covers, else nothing is written and the verdict says so.
    """
    items = source(case)
    large = [oversized(item, case["params"]["contextWindow"], weigh) for item in items]
    line = unavailable(len(items), sum(large))
    if isinstance(outcome, Stopped):
        same(outcome.why, "hopeless", "verdict")
        holds(view_tokens(items, WIDE, PLAIN) < 2 * PLAIN.text(line), "no digest could be smaller")
        return
    if noted and all(large):
        same(outcome.rung, "partial", "rung")
    else:
        same(outcome.rung, "digest", "rung")
        holds(outcome.draft.body.startswith(line), "the known line comes first")
    _accounted(case, outcome)


def _fails_for_good(case: Case) -> bool:
    """A call failed three times, and leaving out what is too large did not help at once."""
    calls = _recorded(case)
    failed = [at for at, (_, told, _) in enumerate(calls) if told in _KINDS]
    parts = stages(source(case), int(case["params"]["maxChunkTokens"]), weigh)
    staged = case["fn"] == "summarizeInStages" and len(parts) > 1
    return bool(failed) and (staged or len(failed) > 1 or failed[-1] == len(calls) - 1)


def _ladder(case: Case) -> None:
    """The rungs in their order: as recorded until the first failure, then smaller, at last the digest."""
    summariser, outcome = _run(case)
    wanted = [(entries, _KINDS.get(told, told), before) for entries, told, before in _recorded(case)]
    if not _other_parts(case):
        until = next((at for at, one in enumerate(wanted) if one[1] in _KINDS.values()), len(wanted))
        same(summariser.asked[: until + 1], wanted[: until + 1], "calls until the first failure")
    rungs = [told.split(":")[0] for told in outcome.tried]
    same(rungs, sorted(rungs, key=RUNGS.index), "rungs in their order")
    if isinstance(outcome, Stopped) or case["params"]["summariser"].get("failAll"):
        _without_a_model(case, outcome)
    else:
        holds(all(RUNGS.index(rung) <= RUNGS.index(outcome.rung) for rung in rungs), "no rung comes again")
        _accounted(case, outcome)


def _would_stage(case: Case) -> bool:
    return len(stages(source(case), int(case["params"]["maxChunkTokens"]), weigh)) > 1


def _other_parts(case: Case) -> bool:
    params = case["params"]
    if case["fn"] == "summarizeInStages":
        return params.get("parts", 2) != 2 or params.get("minMessagesForSplit", 4) != 4
    return _would_stage(case)


def _two_parts(case: Case) -> None:
    """Two parts of equal tokens, each in chunks, and one merge; chunks are those the reference made."""
    items, params = source(case), case["params"]
    most = int(params["maxChunkTokens"])
    summariser, outcome = _run(case)
    parts = stages(items, most, weigh)
    wanted = [tuple(i.entry for i in chunk) for part in parts for chunk in chunk_by_tokens(part, most, weigh)]
    wanted += [("merge",)] if len(parts) > 1 else []
    if not params["summariser"]:
        same([entries for entries, _, _ in summariser.asked], wanted, "calls")
        holds(isinstance(outcome, Done) and outcome.rung == "staged", "a compaction is done")
    if case["fn"] == "summarizeWithFallback":
        calls = [entries for entries, told, _ in _recorded(case) if told not in _KINDS]
        chunks = [tuple(i.entry for i in chunk) for chunk in chunk_by_tokens(items, most, weigh)]
        if not params["summariser"]:
            same(calls, chunks, "chunks of the whole")


def _malformed(case: Case) -> None:
    _, outcome = _run(case)
    holds(isinstance(outcome, Done), "a compaction is done")
    assert isinstance(outcome, Done)
    _accounted(case, outcome)


DEPARTURES = (
    Departure(
        "there is nothing to compact",
        "a plan of nothing is a verdict with its reason; the reference returns a text",
        _nothing_there,
        _nothing_to_compact,
    ),
    Departure(
        "one malformed message breaks no compaction",
        "the reference throws",
        has_error,
        _malformed,
    ),
    Departure(
        "an abort ends everything at once",
        "the reference goes on to its next attempt, or writes that no summary is available",
        _aborts,
        _aborted,
    ),
    Departure(
        "a model that can't be reached is no reason to lose detail",
        "the reference writes that no summary is available, and the history is gone",
        _times_out,
        _unanswered,
    ),
    Departure(
        "an empty answer is no summary",
        "the reference replaces the history with nothing",
        _empty,
        _never_empty,
    ),
    Departure(
        "after a failure come smaller subsets, then a digest made without a model",
        "the reference gives up one part, or writes that no summary is available",
        _fails_for_good,
        _ladder,
    ),
    Departure(
        "a long history is summarised in two parts",
        "other numbers of parts are no setting here, and every fold goes through the same stages",
        _other_parts,
        _two_parts,
    ),
)

# --- texts ----------------------------------------------------------------------------------------

_LABEL = re.compile(r"(?:^|\n\n)(?=\[(?:User|Assistant|Tool)[a-z ]*\]: )")


def _serialised(case: Case) -> None:
    ours, recorded = serialize(source(case)), case["expected"]["text"]
    parts, theirs = _LABEL.split(ours), _LABEL.split(recorded)
    same(len(parts), len(theirs), "parts")
    for mine, other in zip(parts, theirs, strict=True):
        if "more characters truncated" in other:  # ours may show the end of the result as well
            same(mine[:500], other[:500], "the head of a long result")
            holds(len(mine) <= 2_100, "a long result is clipped")
        else:
            same(mine, other, "part")


def _instructions(case: Case) -> None:
    given = case["input"]["instructions"] or {}
    rules = Instructions(
        given.get("identifierPolicy", "strict"),
        given.get("identifierInstructions", ""),
        case["input"]["customInstructions"] or "",
    )
    want = case["expected"]
    same(bool(rules.text()), want["present"], "whether there are any")
    if want["present"]:
        same("Additional focus:" in rules.text(), want["additional_focus"], "focus")
        same("Copy opaque identifiers" in rules.text(), want["identifier_rule"], "identifier rule")


FUNCTIONS = {
    "summarizeWithFallback": Function(_same_calls, DEPARTURES),
    "summarizeInStages": Function(_same_calls, DEPARTURES),
    "serializeConversation(convertToLlm)": Function(_serialised),
    "buildCompactionSummarizationInstructions": Function(_instructions),
}

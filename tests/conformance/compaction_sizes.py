"""Compaction's arithmetic: estimates, parts and chunks, where a history is cut, when it must be."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from conformance.guard import on_our_weights
from conformance.messages import decoded, source, units, unreadable, view
from conformance.rules import (
    Case,
    Departure,
    Function,
    always,
    fails,
    has_error,
    holds,
    is_number,
    never,
    number,
    same,
)
from perdure.context.compaction.batches import boundaries
from perdure.context.compaction.fold import Answered, Ask, Done, Fold
from perdure.context.compaction.plan import Nothing, Plan, cut, plan
from perdure.context.compaction.stages import adaptive_ratio, chunk_by_tokens, oversized, split_by_share
from perdure.context.numbers import limits
from perdure.context.results.guard import guard
from perdure.context.safety.strip import strip
from perdure.context.tokens.estimator import Estimator
from perdure.errors import ContextOverflow
from perdure.records import (
    Assistant,
    Bash,
    BranchSummary,
    Custom,
    Image,
    Item,
    Items,
    Summary,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
)

PLAIN = Estimator()


def weigh(item: Item) -> int:
    """The planner's weights: characters by four, images 4,800 in results and custom messages, else none."""
    message = item.message
    if isinstance(message, Summary | BranchSummary):
        return -(-units(message.summary) // 4)
    if isinstance(message, Bash):
        return -(-units(message.command + message.output) // 4)
    pictures = 4_800 if isinstance(message, ToolResult | Custom) else 0
    return -(-sum(_units(block, pictures) for block in message.content) // 4)


def _units(block: object, picture: int) -> int:
    if isinstance(block, Text):
        return units(block.text)
    if isinstance(block, Thinking):
        return units(block.thinking)
    if isinstance(block, ToolCall):
        return units(block.name) + units(block.arguments.decode("utf-8", "surrogatepass"))
    return picture if isinstance(block, Image) else 0


# --- estimates ------------------------------------------------------------------------------------


def _message(case: Case) -> dict[str, Any]:
    found = case["input"]["message"]
    return found if isinstance(found, dict) else {}


def _tokens(case: Case) -> int:
    message = decoded(case["input"]["message"])
    return 0 if message is None else PLAIN.item(Item("e", message))


def _estimate(case: Case) -> None:
    same(_tokens(case), case["expected"], "tokens")


def _other_price(case: Case) -> bool:
    """Results, pictures and calls have the guard's weights here; wide characters their own."""
    found = _message(case)
    text = json.dumps(found.get("content", found.get("summary", "")), ensure_ascii=False)
    plain = text.isascii() and not any(kind in text for kind in ('"image"', '"toolCall"', '"redacted'))
    string = found.get("role") == "assistant" and isinstance(found.get("content"), str)  # 0 there
    return found.get("role") == "toolResult" or string or not plain


def _not_below(case: Case) -> None:
    text = json.dumps(case["input"]["message"], ensure_ascii=False)
    most = 3 * units(text) + 4_000 * text.count('"image"')
    holds(case["expected"] <= _tokens(case) <= most, "the estimate is not below the planner's, nor absurd")


def _excluded(case: Case) -> bool:
    message = decoded(case["input"]["message"])
    return isinstance(message, Bash) and message.excluded


def _free(case: Case) -> None:
    same(_tokens(case), 0, "tokens of what is never sent")


def _no_picture(case: Case) -> bool:
    """An image block that holds no image."""
    content = _message(case).get("content")
    blocks = content if isinstance(content, list) else []
    return any(isinstance(b, dict) and b.get("type") == "image" and not b.get("data") for b in blocks)


def _costs_nothing(case: Case) -> None:
    found = _message(case)
    rest = [b for b in found["content"] if b.get("type") != "image" or b.get("data")]
    message = decoded(found | {"content": rest})
    assert message is not None
    same(_tokens(case), PLAIN.item(Item("e", message)), "tokens without it")


def _nothing_thrown(case: Case) -> None:
    """What can't be read is no message; of one that can, what isn't there counts nothing."""
    message = decoded(case["input"]["message"])
    blocks = getattr(message, "content", ())
    most = 3 * units(json.dumps(case["input"]["message"]))
    holds((0 if not blocks else 1) <= _tokens(case) <= most or not _said(blocks), "what is there is counted")


def _said(blocks: tuple[Any, ...]) -> bool:
    return any(getattr(b, "text", "") or isinstance(b, ToolCall | Image | Thinking) for b in blocks)


def _context_estimate(case: Case) -> None:
    """Not below what the planner adds up, and the same whatever usage is stored with the messages."""
    items = source(case)
    ours = sum(PLAIN.item(item) for item in items)
    holds(ours >= case["expected"]["trailingTokens"], "the estimate is not below what the planner adds up")
    bare = tuple(Item(i.entry, _without_usage(i.message)) for i in items)
    same(sum(PLAIN.item(item) for item in bare), ours, "the estimate without usage")


def _without_usage(message: Any) -> Any:
    return replace(message, usage=None) if isinstance(message, Assistant) else message


def _should_compact(case: Case) -> None:
    params, settings = case["params"], case["params"]["settings"]
    line = limits(params["contextWindow"], threshold=params["contextWindow"] - settings["reserveTokens"])
    same(params["contextTokens"] > line.threshold, case["expected"], "over the threshold")


def _switched_off(case: Case) -> bool:
    return not case["params"]["settings"].get("enabled", True)


def _only_by_hand(case: Case) -> None:
    same(case["expected"], False, "compacts although it is off")


def _usage_total(case: Case) -> None:
    same(_usage_sum(case), case["expected"], "tokens")


def _usage_sum(case: Case) -> int:
    found = decoded({"role": "assistant", "content": [], "usage": case["input"]["usage"]})
    assert isinstance(found, Assistant)
    usage = found.usage or Usage()
    return usage.prompt + usage.output


def _total_or_missing(case: Case) -> bool:
    usage = case["input"]["usage"]
    parts = [usage.get(key) for key in ("input", "output", "cacheRead", "cacheWrite")]
    return bool(usage.get("totalTokens")) or not all(is_number(part) for part in parts)


def _parts_count(case: Case) -> None:
    usage = case["input"]["usage"]
    parts = [usage.get(key) for key in ("input", "output", "cacheRead", "cacheWrite")]
    same(_usage_sum(case), sum(int(number(p)) for p in parts if is_number(p)), "the parts that are told")


# --- parts and chunks -----------------------------------------------------------------------------


def _tags(chunks: tuple[Items, ...]) -> list[list[str]]:
    return [[item.entry for item in chunk] for chunk in chunks]


def _split(case: Case) -> None:
    parts = int(number(case["params"].get("parts", 2)))
    same(_tags(split_by_share(source(case), parts, weigh)), case["expected"]["chunks"], "parts")


def _chunked(case: Case) -> None:
    most = int(number(case["params"]["maxTokens"]))
    same(_tags(chunk_by_tokens(source(case), most, weigh)), case["expected"]["chunks"], "chunks")


def _no_whole_number(name: str, default: int = 2) -> Callable[[Case], bool]:
    def applies(case: Case) -> bool:
        given = case["params"].get(name, default)
        return not is_number(given) or not math.isfinite(number(given))

    return applies


def _no_such_number(name: str) -> Callable[[Case], None]:
    return lambda case: fails(lambda: int(number(case["params"][name])), f"{name} that is no whole number")


def _all_in_order(divide: Callable[[Items], tuple[Items, ...]]) -> Callable[[Case], None]:
    """Every message in one part, in order; no part is empty and none splits a batch it could keep."""

    def check(case: Case) -> None:
        items = source(case)
        parts = divide(items)
        same(tuple(item for part in parts for item in part), items, "all messages in order")
        holds(all(parts), "no part is empty")

    return check


def _ratio(case: Case) -> None:
    window = int(number(case["params"]["contextWindow"]))
    ours = adaptive_ratio(source(case), window, weigh)
    wanted = number(case["expected"])
    holds(math.isclose(ours, wanted, rel_tol=1e-9), f"the share of a chunk is {ours}, not {wanted}")


def _large(case: Case) -> None:
    window = int(number(case["params"]["contextWindow"]))
    (item,) = view([case["input"]["message"]])
    same(oversized(item, window, weigh), case["expected"], "too large to summarise")


# --- what a compaction covers ---------------------------------------------------------------------


def _entries_view(entries: list[dict[str, Any]]) -> Items:
    made = []
    for entry in entries:
        message = decoded(entry.get("message"))
        if entry["type"] == "message" and message is not None:
            made.append(Item(entry["id"], message))
        elif entry["type"] in ("custom_message", "branch_summary"):
            made.append(Item(entry["id"], Custom("k", (Text(entry.get("content") or entry["summary"]),))))
    return tuple(made)


def _cut_view(case: Case) -> tuple[Items, int]:
    params = case["params"]
    entries = case["input"]["entries"][params["startIndex"] : params["endIndex"]]
    return _entries_view(entries), params["keepRecentTokens"]


def _theirs(items: Items, keep: int) -> int:
    """The planner's rule in its own words: the first place that may be cut, at or behind the crossing."""
    valid = [at for at, item in enumerate(items) if not isinstance(item.message, ToolResult)] or [0]
    total = 0
    for at in range(len(items) - 1, -1, -1):
        total += 0 if isinstance(items[at].message, Custom) else weigh(items[at])
        if total >= keep:
            return next((place for place in valid if place >= at), valid[0])
    return valid[0]


def _plain_cut(items: Items, keep: int) -> int:
    """Our rule in the plainest words: the boundary behind the crossing, but never one that covers nothing."""
    free = boundaries(items)
    tails = [sum(map(weigh, items[at:])) for at in range(len(items) + 1)]
    crossed = [at for at in range(len(items)) if tails[at] >= keep]
    if not crossed:
        return 0
    at = crossed[-1]
    later = [place for place in range(at, len(items)) if free[place]]
    behind = [place for place in later if place > at]
    too_much = tails[at] > 2 * keep or not later or later[0] == 0
    if too_much and behind and tails[at + 1] > 0:
        return behind[0]
    if later:
        return later[0]
    return max((place for place in range(1, at + 1) if free[place]), default=0)


def _cut_by_the_rule(case: Case) -> None:
    items, keep = _cut_view(case)
    free = boundaries(items)
    ours = cut(items, keep, weigh, free)
    holds(free[ours] or ours == 0, "no batch is split")
    same(ours, _plain_cut(items, keep), "where the tail begins")


def _cut_kind(items: Items, keep: int) -> str:
    """Which rule of ours moves the cut away from the planner's; none: empty."""
    if not items:
        return ""
    at = _theirs(items, keep)
    if at == 0 or sum(map(weigh, items)) < keep:
        return "nothing"
    if not boundaries(items)[at]:
        return "batch"
    if sum(map(weigh, items[at:])) > 2 * keep:
        return "twice"
    # The planner moves its cut back over entries that are no messages, custom ones among them.
    return "counted" if any(isinstance(item.message, Custom) for item in items[at - 1 :]) else ""


def _cut_agrees(case: Case) -> None:
    items, keep = _cut_view(case)
    ours = cut(items, keep, weigh, boundaries(items)) if items else 0
    entries = case["input"]["entries"]
    at = case["expected"]["firstKeptEntryIndex"]
    if not items:
        same(ours, 0, "where an empty tail begins")
        return
    # The planner moves its cut back over entries that are no messages; the first message behind it is ours.
    recorded = next(e["id"] for e in entries[at:] if e["id"] in {item.entry for item in items})
    same(items[ours].entry, recorded, "where the tail begins")


def _cut_rule(name: str, reason: str, kind: str) -> Departure:
    return Departure(name, reason, lambda case: _cut_kind(*_cut_view(case)) == kind, _cut_by_the_rule)


CUTS = (
    _cut_rule(
        "a compaction that would cover nothing covers what it can",
        "the planner compacts nothing, and the window stays full",
        "nothing",
    ),
    _cut_rule(
        "a batch is never split",
        "an answer without its call would be dropped from the tail",
        "batch",
    ),
    _cut_rule(
        "a tail twice its size saves nothing",
        "what crosses the line is covered if it is larger than the tail itself",
        "twice",
    ),
    _cut_rule(
        "every message of the tail counts",
        "the planner takes custom messages and branch summaries for nothing",
        "counted",
    ),
)


class _Weights(Estimator):
    """The planner's weights where the estimator is asked."""

    def item(self, item: Item) -> int:
        return weigh(item)


def _branch(case: Case) -> tuple[Items, str, int]:
    """The view of a path of entries: what its last compaction left, the earlier summary, tokens to keep."""
    entries, keep = case["input"]["entries"], case["params"]["settings"]["keepRecentTokens"]
    last = max((at for at, e in enumerate(entries) if e["type"] == "compaction"), default=-1)
    if last < 0:
        return _entries_view(entries), "", keep
    kept = entries[last].get("firstKeptEntryId")
    first = next((at for at, e in enumerate(entries) if e["id"] == kept), last)
    items = _entries_view(entries[first:last]) + _entries_view(entries[last + 1 :])
    return items, entries[last].get("summary") or "", keep


def _planned(case: Case) -> Plan | Nothing:
    items, previous, keep = _branch(case)
    head = (Item("summary", Summary(previous)),) if previous else ()
    return plan((*head, *items), limits=limits(1_000_000), estimator=_Weights(), keep=keep)


def _plan_by_the_rule(case: Case) -> None:
    """Everything is covered or kept, in order; the earlier summary is folded in; no batch is split."""
    items, previous, keep = _branch(case)
    made = _planned(case)
    wanted = _plain_cut(items, keep) if items else 0
    if isinstance(made, Nothing):
        same(wanted, 0, "a cut that was possible")
        return
    same(made.covered + made.kept, items, "all messages, covered and kept")
    same(len(made.covered), wanted, "where the tail begins")
    same(made.previous, previous, "the earlier summary")
    same(made.first_kept, made.kept[0].entry, "the first kept entry")


def _plan_departs(case: Case) -> bool:
    items, _, keep = _branch(case)
    return bool(_cut_kind(items, keep)) or any(isinstance(item.message, Custom) for item in items)


def _just_compacted(case: Case) -> bool:
    entries = case["input"]["entries"]
    return bool(entries) and entries[-1]["type"] == "compaction"


def _plan_agrees(case: Case) -> None:
    want, made = case["expected"], _planned(case)
    if want is None or "$js" in want:
        holds(isinstance(made, Nothing), "there is nothing to compact")
        return
    tags = want["messagesToSummarize"] + want["turnPrefixMessages"]
    if not tags:
        holds(isinstance(made, Nothing), "there is nothing to compact")
        return
    holds(isinstance(made, Plan), "there is something to compact")
    assert isinstance(made, Plan)
    names = {e["id"]: e["message"].get("mid") for e in case["input"]["entries"] if e["type"] == "message"}
    same([names.get(item.entry) for item in made.covered], tags, "messages that are covered")
    same(made.split_turn, want["isSplitTurn"], "whether a turn is split")
    same(made.previous or None, want["previousSummary"], "the earlier summary")


# --- history over its share, and the route before a prompt ------------------------------------------


def _nothing_dropped_unread(case: Case) -> None:
    """What doesn't fit its share is covered with a proof of every entry, never dropped unread."""
    items = source(case)
    budget = max(1, int(number(case["expected"]["budgetTokens"])))
    made = plan(items, limits=limits(1_000_000), estimator=_Weights(), keep=budget)
    if isinstance(made, Nothing):
        holds(sum(map(weigh, items)) < budget or _plain_cut(items, budget) == 0, "nothing can be covered")
        return
    same(made.covered + made.kept, items, "all messages, covered and kept")
    fold = Fold(made, limits=limits(1_000_000), estimator=PLAIN, weigh=weigh, trigger="overflow")
    while isinstance(step := fold.step, Ask):
        fold.answer(Answered("S"))
    if isinstance(step, Done):
        same(sum(span.count for span in step.proof.spans), len(made.covered), "entries that are proven")
        holds(step.proof.tokens_after < step.proof.tokens_before, "a compaction shrinks the view")


def _route(case: Case) -> None:
    """Results give way first, by the plain rule; what is over the line then must be compacted."""
    params, items = case["params"], strip(source(case)).items
    window = int(number(params["contextTokenBudget"]))
    fixed = PLAIN.text(params.get("systemPrompt") or "") + PLAIN.text(params.get("prompt") or "")
    fates = on_our_weights(items, window, fixed=fixed * 4)
    try:
        changed = guard(items, fixed_tokens=fixed, limits=limits(window), estimator=PLAIN)
    except ContextOverflow as error:
        same(fates, None, "an overflow")
        holds(error.tokens > error.limit, "the error tells both numbers")
        return
    holds(fates is not None, "no overflow where the plain rule sees one")
    forms = {d.key: d.form for d in changed.decisions}
    same([{"blank": "placeholder", "cut": "shortened"}.get(f, "") for f in fates or []],
         [forms.get(item.entry, "") for item in items], "what becomes of each message")  # fmt: skip


FUNCTIONS = {
    "estimateTokens": Function(
        _estimate,
        (
            Departure(
                "one malformed message breaks no estimate",
                "the reference throws, and with it every compaction of the session",
                lambda case: has_error(case) or decoded(case["input"]["message"]) is None,
                _nothing_thrown,
            ),
            Departure(
                "a command that is kept out of the context costs nothing",
                "it is never sent; the planner counts it",
                _excluded,
                _free,
            ),
            Departure(
                "a picture without data is none, and costs nothing",
                "it can't be sent; the planner counts it",
                _no_picture,
                _costs_nothing,
            ),
            Departure(
                "results, pictures, calls and wide characters have their price",
                "the planner's weights are below what models charge, and let requests overflow",
                _other_price,
                _not_below,
            ),
        ),
    ),
    "estimateContextTokens": Function(
        never,
        (
            Departure(
                "usage teaches the estimator; it is not added to it",
                "a recorded usage tells of the prompt it was, not of the view as it is now",
                always,
                _context_estimate,
            ),
        ),
    ),
    "shouldCompact": Function(
        _should_compact,
        (
            Departure(
                "a trigger that is off never fires by itself",
                "it is the slot's policy, not a flag beside the threshold",
                _switched_off,
                _only_by_hand,
            ),
        ),
    ),
    "calculateContextTokens": Function(
        _usage_total,
        (
            Departure(
                "a total is the sum of its parts",
                "the reference takes a stored total, or NaN where a part is missing",
                _total_or_missing,
                _parts_count,
            ),
        ),
    ),
    "splitMessagesByTokenShare": Function(
        _split,
        (
            Departure(
                "a number of parts is a whole number",
                "types let no other through",
                _no_whole_number("parts"),
                _no_such_number("parts"),
            ),
            Departure(
                "what is no message gets into no view",
                "the reference throws, or counts it",
                lambda case: has_error(case) or unreadable(case),
                _all_in_order(lambda items: split_by_share(items, 2, weigh)),
            ),
        ),
    ),
    "chunkMessagesByMaxTokens": Function(
        _chunked,
        (
            Departure(
                "a limit is a whole number",
                "types let no other through",
                _no_whole_number("maxTokens"),
                _no_such_number("maxTokens"),
            ),
            Departure(
                "what is no message gets into no view",
                "the reference throws, or counts it",
                lambda case: has_error(case) or unreadable(case),
                _all_in_order(lambda items: chunk_by_tokens(items, 100, weigh)),
            ),
        ),
    ),
    "computeAdaptiveChunkRatio": Function(_ratio),
    "isOversizedForSummary": Function(_large),
    "findCutPoint": Function(_cut_agrees, CUTS, always=_cut_by_the_rule),
    "prepareCompaction": Function(
        _plan_agrees,
        (
            Departure(
                "what a compaction left is judged like any other view",
                "the planner takes it for compacted, however large the kept tail is",
                _just_compacted,
                _plan_by_the_rule,
            ),
            Departure(
                "the same rules of the cut hold for a whole branch",
                "see the cut: whole batches, every message counted, never a tail that saves nothing",
                _plan_departs,
                _plan_by_the_rule,
            ),
        ),
        always=_plan_by_the_rule,
    ),
    "pruneHistoryForContextShare": Function(
        never,
        (
            Departure(
                "history over its share is covered, never dropped unread",
                "the reference drops the oldest parts before the summary and makes up results for torn pairs",
                always,
                _nothing_dropped_unread,
            ),
        ),
    ),
    "shouldPreemptivelyCompactBeforePrompt": Function(
        never,
        (
            Departure(
                "the guard decides before every call, on the request that will be sent",
                "results give way by its plain rule; what is over the line then is compacted",
                always,
                _route,
            ),
        ),
    ),
}

"""Pairing: every call is answered once, right behind the message that made it, whatever is stored.

Total and idempotent. A call is paired with results of its own turn (up to the next assistant
message), because some providers restart their ids every turn. This is also the recovery of an
unfinished batch: a call without a result becomes "interrupted", and nobody runs it again by itself.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Literal

from msgspec.structs import replace

from perdure.context.changed import NOTHING_DECIDED, Changed, Decisions
from perdure.context.text.characters import clean
from perdure.records import (
    Assistant,
    Block,
    Decision,
    Fate,
    Item,
    Items,
    LedgerLine,
    Summary,
    Text,
    ToolCall,
    ToolResult,
    User,
)

SYNTHETIC = (
    "[interrupted: no result of this call was recorded. It may have run, wholly or in part; "
    "it was not repeated. Check before you call it again.]"
)
LATE_NOTE = "[late result of `{tool}`, call {call}; the call was answered as interrupted before]"
COVERED_NOTE = "[result of `{tool}`, call {call}; the call itself is part of the summary above]"

MOVED = "repair: result moved to its call"
SYNTHESISED = "repair: missing result made up"
DUPLICATE = "repair: second result of one call"
ORPHAN = "repair: result without a call"
LATE = "repair: late result sent as a note"
COVERED = "repair: result of a covered call sent as a note"
COVERED_ERROR = "repair: failed result of a covered call"
NAMED = "repair: tool name filled in"
ERROR_TURN = "repair: failed turns are not sent"
ABORTED_TURN = "repair: of an aborted turn only the text is sent"
ABORTED_RESULT = "repair: result of a turn that ended before its calls"

_Answer = Literal["real", "error", "synthetic", "none"]


def repair(
    items: Items,
    *,
    decided: Decisions = NOTHING_DECIDED,
    covered: Container[str] | None = None,
    unseen: Container[str] | None = None,
) -> Changed:
    """The items with every call of every turn paired.

    `decided`: a call with the decision `call:<entry>:<n>` (n counts its message's calls from 0) keeps
    the result that was made up for it; the real one, come late, is sent as a note. `covered`: ids of
    calls inside the latest compaction, where known; without it, results that stand between a leading
    summary and the first assistant message are taken to be theirs.
    """
    work = _Repair(decided, covered, unseen, items)
    at = 0
    while at < len(items):
        at = work.turn(items, at)
    if not work.lines:
        return Changed(items)
    return Changed(tuple(work.out), tuple(work.lines), tuple(work.decisions))


def is_synthetic(result: ToolResult) -> bool:
    """Whether this result is one that repair made up."""
    return result.is_error and result.content == (_SYNTHETIC_TEXT,)


def calls_of(message: Assistant) -> tuple[ToolCall, ...]:
    """The calls of a message, in order."""
    return tuple(block for block in message.content if type(block) is ToolCall)


def unfinished(item: Item) -> tuple[Item | None, LedgerLine | None]:
    """What is sent of an assistant item by the way its call to the model ended.

    Of a failed turn nothing. Of an aborted one its text, since none of its calls ran; thinking goes
    too, because a cut block has no valid signature.
    """
    message = item.message
    if type(message) is not Assistant or message.stop not in ("error", "aborted"):
        return item, None
    if message.stop == "error":
        return None, LedgerLine(item.entry, "left_out", ERROR_TURN)
    text = tuple(block for block in message.content if type(block) is Text)
    if len(text) == len(message.content):
        return item, None
    kept = Item(item.entry, replace(message, content=text)) if text else None
    return kept, LedgerLine(item.entry, "in" if text else "left_out", ABORTED_TURN)


_SYNTHETIC_TEXT = Text(SYNTHETIC)


class _Repair:
    """One pass over a history. `answered` says how the latest call of each id was answered."""

    __slots__ = ("answered", "covered", "decided", "decisions", "head", "lines", "out", "unseen")

    def __init__(
        self,
        decided: Decisions,
        covered: Container[str] | None,
        unseen: Container[str] | None,
        items: Items,
    ) -> None:
        self.decided, self.covered, self.unseen = decided, covered, unseen
        self.head = bool(items) and type(items[0].message) is Summary
        self.answered: dict[str, _Answer] = {}
        self.out: list[Item] = []
        self.lines: list[LedgerLine] = []
        self.decisions: list[Decision] = []

    def turn(self, items: Items, at: int) -> int:
        """Take the item at `at` with all that belongs to it; the index behind them."""
        item = items[at]
        if type(item.message) is not Assistant:
            self.loose(item)
            return at + 1
        end = at + 1
        while end < len(items) and type(items[end].message) is not Assistant:
            end += 1
        self.head = False
        self.assistant(item, items[at + 1 : end])
        return end

    def assistant(self, item: Item, rest: Items) -> None:
        message = item.message
        assert type(message) is Assistant
        calls = calls_of(message)
        if message.stop in ("error", "aborted"):
            self.broken(item, calls, rest)
            return
        self.out.append(item)
        if not calls:
            for each in rest:
                self.loose(each)
        elif not self.in_order(calls, rest, item.entry):
            _Batch(self, item, calls, rest).run()

    def in_order(self, calls: tuple[ToolCall, ...], rest: Items, entry: str) -> bool:
        """The common case, without any bookkeeping: the results follow, one for each call."""
        if len(rest) < len(calls):
            return False
        for n, (call, item) in enumerate(zip(calls, rest, strict=False)):
            result = item.message
            if type(result) is not ToolResult or result.call_id != call.id or not result.tool.strip():
                return False
            kept = self.decided.get(f"call:{entry}:{n}")
            if kept is not None and not _keeps(item, kept):
                return False
        if len({call.id for call in calls}) != len(calls):
            return False
        if any(type(item.message) is ToolResult for item in rest[len(calls) :]):
            return False
        for call, item in zip(calls, rest, strict=False):
            self.answered[call.id] = answer_of(item.message)
        self.out.extend(rest)
        return True

    def broken(self, item: Item, calls: Sequence[ToolCall], rest: Items) -> None:
        kept, line = unfinished(item)
        if kept is not None:
            self.out.append(kept)
        if line is not None:
            self.lines.append(line)
        ids = {call.id for call in calls}
        for each in rest:
            if type(each.message) is ToolResult and each.message.call_id in ids:
                self.left_out(each, ABORTED_RESULT)
            else:
                self.loose(each)

    def loose(self, item: Item) -> None:
        """An item that no open batch claims: sent as it is, or, a result, as a note or not at all."""
        result = item.message
        if type(result) is not ToolResult:
            self.out.append(item)
            return
        known = self.answered.get(result.call_id)
        if known is not None:
            self.late(item, result, known)
        elif self.is_covered(result):
            self.note(item, result, COVERED_NOTE, COVERED, COVERED_ERROR)
        else:
            self.left_out(item, ORPHAN)

    def late(self, item: Item, result: ToolResult, known: _Answer) -> None:
        """A result behind a later answer of the model: news only if its call had no real result."""
        if known == "real":
            self.left_out(item, DUPLICATE)
            return
        if not result.is_error:
            self.answered[result.call_id] = "real"
        self.note(item, result, LATE_NOTE, LATE, DUPLICATE)

    def note(self, item: Item, result: ToolResult, text: str, rule: str, failed_rule: str) -> None:
        if result.is_error or not result.content:
            self.left_out(item, failed_rule)
            return
        head = Text(text.format(tool=_said(result.tool), call=_said(result.call_id)))
        content: tuple[Block, ...] = (head, *result.content)
        self.out.append(Item(item.entry, User(content, result.timestamp)))
        self.lines.append(LedgerLine(item.entry, "in", rule))

    def is_covered(self, result: ToolResult) -> bool:
        return self.head if self.covered is None else result.call_id in self.covered

    def left_out(self, item: Item, rule: str) -> None:
        self.line(item.entry, "left_out", rule)

    def line(self, entry: str, fate: Fate, rule: str) -> None:
        self.lines.append(LedgerLine(entry, fate, rule))


class _Batch:
    """The calls of one message and all that follows it up to the next message of the model."""

    __slots__ = ("calls", "entry", "pending", "rest", "timestamp", "work")

    def __init__(self, work: _Repair, item: Item, calls: tuple[ToolCall, ...], rest: Items) -> None:
        self.work, self.calls, self.rest = work, calls, rest
        self.entry, self.timestamp = item.entry, item.message.timestamp
        self.pending: dict[str, list[Item]] = {call.id: [] for call in calls}
        for each in rest:
            if type(each.message) is ToolResult and each.message.call_id in self.pending:
                self.pending[each.message.call_id].append(each)

    def run(self) -> None:
        """Results first, in call order, one for each call; then the rest in its own order."""
        ids = [call.id for call in self.calls]
        chosen = [self.choose(n, call, ids.count(call.id) > 1) for n, call in enumerate(self.calls)]
        self.report_moves([item for item in chosen if item is not None])
        for n, item in enumerate(chosen):
            answer = self.made_up(n) if item is None else self.named(item)
            self.work.answered[self.calls[n].id] = answer_of(answer.message)
            self.work.out.append(answer)
        taken = {id(item) for item in chosen}
        for item in self.rest:
            if id(item) not in taken:
                self.other(item)

    def choose(self, n: int, call: ToolCall, twins: bool) -> Item | None:
        """The stored result for one call: a real one before a failed one, else the first.

        What a request has shown stays, though: a placeholder, and a failed result.
        """
        waiting = self.pending[call.id]
        best = waiting[0] if waiting else None
        kept = self.work.decided.get(f"call:{self.entry}:{n}")
        if kept is not None:
            best = next((item for item in waiting if _keeps(item, kept)), None)
        elif best is not None and _failed(best) and not twins:
            real = next((item for item in waiting if not _failed(item)), best)
            if self.was_shown(best, real):
                key = f"call:{self.entry}:{n}"
                self.work.decisions.append(Decision(key, "synthesised", value=best.entry))
            else:
                best = real
        if best is not None:
            waiting.remove(best)
        return best

    def was_shown(self, failed: Item, real: Item) -> bool:
        unseen = self.work.unseen
        return unseen is not None and real.entry in unseen and failed.entry not in unseen

    def report_moves(self, chosen: list[Item]) -> None:
        """A line for every result that now stands before something it was stored behind."""
        places = {id(item): place for place, item in enumerate(self.rest)}
        before = -1
        for count, item in enumerate(chosen):
            place = places[id(item)]
            if place < before or any(type(each.message) is not ToolResult for each in self.rest[count:place]):
                self.work.line(item.entry, "in", MOVED)
            before = max(before, place)

    def made_up(self, n: int) -> Item:
        call = self.calls[n]
        key = f"call:{self.entry}:{n}"
        if key not in self.work.decided:
            self.work.decisions.append(Decision(key, "synthesised"))
        self.work.line(self.entry, "synthesised", SYNTHESISED)
        name = call.name.strip() or "unknown"
        return Item("", ToolResult(call.id, name, (_SYNTHETIC_TEXT,), True, timestamp=self.timestamp))

    def named(self, item: Item) -> Item:
        result = item.message
        assert type(result) is ToolResult
        if result.tool.strip():
            return item
        name = next((call.name.strip() for call in self.calls if call.id == result.call_id), "")
        self.work.line(item.entry, "in", NAMED)
        return Item(item.entry, replace(result, tool=name or "unknown"))

    def other(self, item: Item) -> None:
        """What stands among the results: messages stay in order, surplus results are judged."""
        result = item.message
        if type(result) is ToolResult and _synthetic(item):
            self.work.left_out(item, DUPLICATE)
        else:
            self.work.loose(item)


def answer_of(message: object) -> _Answer:
    """How a result answers its call."""
    if type(message) is not ToolResult:
        return "none"
    if is_synthetic(message):
        return "synthetic"
    return "error" if message.is_error else "real"


def _said(name: str) -> str:
    return clean(name, foreign=True).strip() or "unknown"


def _synthetic(item: Item) -> bool:
    return type(item.message) is ToolResult and is_synthetic(item.message)


def _keeps(item: Item, kept: Decision) -> bool:
    """Whether this is the result that the decision speaks of: a stored one by its entry, else ours."""
    return item.entry == kept.value and (bool(kept.value) or _synthetic(item))


def _failed(item: Item) -> bool:
    return type(item.message) is ToolResult and item.message.is_error

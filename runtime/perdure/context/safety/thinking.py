"""Thinking blocks: sent whole with their signature, in their place, or left out whole; never between.

A signature is valid for the model that made it and, on some models, only behind the same messages.
"""

from __future__ import annotations

import re
from collections.abc import MutableMapping
from typing import Any

from msgspec.structs import replace

from perdure.context.changed import Changed
from perdure.context.policy import TranscriptPolicy
from perdure.context.safety.gemini import is_base64
from perdure.context.safety.reasoning import (
    RESPONSES,
    cut_pairs,
    drop_alone,
    drop_repeated,
    replayable,
    says_something,
)
from perdure.records import (
    Assistant,
    Item,
    Items,
    LedgerLine,
    ModelInfo,
    Summary,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)

FOREIGN = "thinking: made by another model"
UNSIGNED = "thinking: without a valid signature"
MISPLACED = "thinking: not at the head of its message"
COVERED = "thinking: older than the latest compaction"
CLOSED = "thinking: of an earlier turn, which this model does not read"
OFF = "thinking: turned off for this request"
EMPTIED = "thinking: the message held nothing else"

MIN_BUDGET = 1024
BUDGETS = {"minimal": 1024, "low": 4096, "medium": 8192, "high": 16_384, "xhigh": 32_000}

CHAT = "openai-completions"
_DATED = re.compile(r"-20\d{6}$")


def settle(
    items: Items,
    model: ModelInfo,
    policy: TranscriptPolicy,
    *,
    on: bool = True,
    since: int = -1,
    used: MutableMapping[str, bool] | None = None,
) -> Changed:
    """The items with the thinking that may be sent to `model`.

    `on=False` takes all of it out. `.thinking` of the outcome is false if the request must be made
    with thinking off: the open tool loop holds thinking of another model, or (models with a thinking
    budget) doesn't begin with thinking although the provider demands it. `since`: when the latest
    compaction before these items was made (ms), if there was one. `used`: ids sent before these items,
    to which those of reasoning items are added.
    """
    if model.api in RESPONSES:
        return _reasoning(items, model, since, {} if used is None else used)
    start, last = open_loop(items), _last_assistant(items)
    since = max(since, compacted_at(items))
    out: list[Item] = []
    lines: list[LedgerLine] = []
    foreign = False
    for place, item in enumerate(items):
        message = item.message
        if type(message) is not Assistant or not _has_thinking(message):
            out.append(item)
            continue
        rule = _fault(message, model, policy, place >= start, place == last, since) if on else OFF
        if not rule and not policy.reasoning_field and not _heads_its_run(out):
            rule = MISPLACED
        if not rule:
            out.append(item)
            continue
        foreign = foreign or (place >= start and rule != OFF)
        kept, line = _without(item, message, rule)
        lines.append(line)
        if kept is not None:
            out.append(kept)
    thinking = model.api == CHAT or (not foreign and _may_think(out, model))
    return Changed(tuple(out) if lines else items, tuple(lines), thinking=thinking)


def open_loop(items: Items) -> int:
    """Where the open tool loop begins: its first assistant message; `len(items)` if none is open.

    It is open while the last assistant message waits for the model to read its results.
    """
    last = _last_assistant(items)
    if last < 0 or not _calls(items[last]):
        return len(items)
    start = last
    while start > 0 and type(items[start - 1].message) in (Assistant, ToolResult):
        start -= 1
    while type(items[start].message) is not Assistant:
        start += 1
    return start


def asked(model: ModelInfo, level: bool | str) -> bool:
    """Whether a request with this level (or simply on) asks this model for thinking.

    OpenAI's models can't be told not to reason at all, so that the level never decides what is sent back.
    """
    by_itself = model.api in RESPONSES or model.api == CHAT
    return model.thinking != "none" and (by_itself or level is True or level in BUDGETS)


def parameter(model: ModelInfo, level: str, max_tokens: int) -> dict[str, Any]:
    """The parts of a request body that ask for thinking; empty where none is asked for or possible.

    `level`: off, minimal, low, medium, high or xhigh. A budget is at least 1,024 tokens and leaves
    room for the answer; where that shrinks it falls in steps, for each change costs the cached messages.
    """
    if not asked(model, level):
        return {}
    if model.thinking == "adaptive":
        effort = {"minimal": "low", "xhigh": "high"}.get(level, level)
        return {"thinking": {"type": "adaptive"}, "output_config": {"effort": effort}}
    budget = max(
        step for step in BUDGETS.values() if step <= max(MIN_BUDGET, min(BUDGETS[level], max_tokens // 2))
    )
    if budget >= max_tokens:
        return {}
    return {"thinking": {"type": "enabled", "budget_tokens": budget}}


def same_model(message: Assistant, model: ModelInfo) -> bool:
    """Whether `model` made this message; a date at the end of an id names the same model."""
    return message.provider == model.provider and _undated(message.model) == _undated(model.id)


def _fault(
    message: Assistant, model: ModelInfo, policy: TranscriptPolicy, in_loop: bool, last: bool, since: int
) -> str:
    """The rule by which this message's thinking is left out; empty if it is sent."""
    if not same_model(message, model) or model.thinking == "none":
        return FOREIGN
    if policy.reasoning_field:
        wanted = all(b.signature == policy.reasoning_field for b in message.content if type(b) is Thinking)
        if not says_something(message.content):
            return MISPLACED
        return "" if in_loop and wanted else CLOSED if wanted else UNSIGNED
    if not policy.keep_signatures or not _all_signed(message, model):
        return UNSIGNED
    # Blank text is not sent, so the block before it would be the last one.
    sent = [block for block in message.content if type(block) is not Text or block.text.strip()]
    if not sent or type(sent[0]) is not Thinking or type(sent[-1]) is Thinking:
        return MISPLACED
    if in_loop:
        return ""
    if message.timestamp <= since:
        return COVERED
    return CLOSED if policy.drop_thinking and not last else ""


def _reasoning(items: Items, model: ModelInfo, since: int, used: MutableMapping[str, bool]) -> Changed:
    """The rules of the Responses API (see `reasoning`); it never demands reasoning."""
    start, since = open_loop(items), max(since, compacted_at(items))
    out: list[Item] = []
    lines: list[LedgerLine] = []
    for place, item in enumerate(items):
        message = item.message
        if type(message) is not Assistant or not _has_thinking(message):
            out.append(item)
            continue
        rule = "" if same_model(message, model) and model.thinking != "none" else FOREIGN
        if not rule and place < start and message.timestamp <= since:
            rule = COVERED
        kept = tuple(b for b in message.content if type(b) is not Thinking or (not rule and replayable(b)))
        if len(kept) == len(message.content):
            out.append(item)
            continue
        said = says_something(kept)
        lines.append(LedgerLine(item.entry, "in" if said else "left_out", rule or UNSIGNED))
        if said:
            out.append(Item(item.entry, replace(message, content=kept)))
    done = Changed(tuple(out), tuple(lines)) if lines else Changed(items)
    return done.then(drop_alone).then(lambda now: drop_repeated(now, used)).then(cut_pairs)


def _may_think(items: list[Item], model: ModelInfo) -> bool:
    """Models with a budget demand that the open loop begins with thinking, and its last message too.

    Adaptive ones may skip thinking at any step, so nothing is demanded of them.
    """
    start = open_loop(tuple(items))
    if start == len(items) or model.thinking != "enabled":
        return True
    last = max(n for n, item in enumerate(items) if type(item.message) is Assistant)
    while last > 0 and type(items[last - 1].message) is Assistant:
        last -= 1
    return _begins_with_thinking(items[start]) and _begins_with_thinking(items[last])


def _heads_its_run(before: list[Item]) -> bool:
    """Neighbouring messages of the model are one on the wire, which then must begin with thinking."""
    head = len(before)
    while head > 0 and type(before[head - 1].message) is Assistant:
        head -= 1
    return head == len(before) or _begins_with_thinking(before[head])


def _begins_with_thinking(item: Item) -> bool:
    return type(item.message) is Assistant and type(item.message.content[0]) is Thinking


def _without(item: Item, message: Assistant, rule: str) -> tuple[Item | None, LedgerLine]:
    kept = tuple(block for block in message.content if type(block) is not Thinking)
    if not says_something(kept):
        return None, LedgerLine(item.entry, "left_out", EMPTIED)
    return Item(item.entry, replace(message, content=kept)), LedgerLine(item.entry, "in", rule)


def compacted_at(items: Items) -> int:
    """When the latest compaction of this view was made (ms); -1 if there is none."""
    for item in reversed(items):
        if type(item.message) is Summary:
            return item.message.timestamp
    return -1


def _last_assistant(items: Items) -> int:
    last = len(items) - 1
    while last >= 0 and type(items[last].message) is not Assistant:
        last -= 1
    return last


def _all_signed(message: Assistant, model: ModelInfo) -> bool:
    blobs = model.api == "bedrock-converse-stream"  # it decodes redacted thinking; others take it as text
    return all(
        _signed(block) and not (blobs and block.redacted and not is_base64(block.signature))
        for block in message.content
        if type(block) is Thinking
    )


def _signed(block: Thinking) -> bool:
    if not block.signature or "\x00" in block.thinking:
        return False
    try:
        block.thinking.encode()
        block.signature.encode("ascii")
    except UnicodeEncodeError:
        return False
    return True


def _has_thinking(message: Assistant) -> bool:
    return any(type(block) is Thinking for block in message.content)


def _calls(item: Item) -> bool:
    return type(item.message) is Assistant and any(type(b) is ToolCall for b in item.message.content)


def _undated(name: str) -> str:
    return _DATED.sub("", name.strip().lower())

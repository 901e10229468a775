"""The guard against recorded runs of a newest-first loop: equal, or apart by a rule that is checked."""

from __future__ import annotations

import json
from typing import Any

import pytest

from helpers_conformance import cases, ident, number
from helpers_messages import view
from perdure.context.guard import guard
from perdure.context.numbers import COMPACTED_PLACEHOLDER, limits
from perdure.context.results import images_of, render, text_of
from perdure.context.strip import strip
from perdure.context.tokens import Estimator, measure
from perdure.errors import ContextOverflow
from perdure.records import Decision, Item, Items, Message, ToolResult

PLAIN = Estimator()


def usable(case: dict[str, Any]) -> bool:
    """A window that is one, and messages that the session format knows."""
    return number(case["params"]["contextWindowTokens"]) >= 1 and all(map(known, case["input"]["messages"]))


def known(message: Any) -> bool:
    if not isinstance(message, dict) or message.get("role") not in ROLES:
        return False
    content = message.get("content")
    return isinstance(content, str) or (
        isinstance(content, list) and all(isinstance(block, dict) for block in content)
    )


ROLES = ("user", "assistant", "toolResult", "custom")
CASES = [case for case in cases("guard_newestfirst_derived") if usable(case)]


def their_size(message: dict[str, Any]) -> int:
    """The weights of the recorded program, with its flaws."""
    content, role = message.get("content"), message["role"]
    if role == "user":
        return len(content) if isinstance(content, str) else sum(map(their_block, content))
    if role == "assistant":
        return sum(map(their_block, content)) if isinstance(content, list) else 0
    if role != "toolResult":
        return 256
    body = len(content) if isinstance(content, str) else sum(map(their_block, content))
    details = message.get("details")
    return (body + (len(json.dumps(details, separators=(",", ":"))) if details is not None else 0)) * 2


def their_block(block: Any) -> int:
    if block["type"] == "text":
        return len(block["text"].encode("utf-16-le", "surrogatepass")) // 2
    if block["type"] == "thinking":
        return len(block["thinking"])
    if block["type"] == "image":
        return 8_000
    if block["type"] == "toolCall":
        return len(json.dumps(block.get("arguments") or {}, separators=(",", ":")))
    return len(json.dumps(block, separators=(",", ":")))


def our_sizes(stored: Items) -> list[int]:
    return [PLAIN.chars(measure(item.message)) for item in stored]


def expected(stored: Items, window: int, sizes: list[int], *, bare: bool = False) -> list[str] | None:
    """The seed's rule on any weights, in the plainest words: which results stay; None: overflow."""
    lines = limits(window)
    state = [("in", item.message, size) for item, size in zip(stored, sizes, strict=True)]
    for at, (_, message, size) in enumerate(state):
        if isinstance(message, ToolResult):
            raw = len(text_of(message)) + 8_000 * len(images_of(message))
            if raw > lines.single_chars:
                state[at] = ("cut", message, min(size, PLAIN.chars(measure(cut(message, window)))))
    for at in range(len(state) - 1, -1, -1):
        _, message, size = state[at]
        if sum(s for *_, s in state) <= lines.total_chars:
            break
        blank = len(COMPACTED_PLACEHOLDER) * 2 if bare else blanked(message, stored[at].entry)
        if isinstance(message, ToolResult) and size > blank:
            state[at] = ("blank", message, blank)
    return None if sum(s for *_, s in state) > lines.overflow_chars else [kind for kind, *_ in state]


def blanked(message: Message, entry: str) -> int:
    """What a blanked result weighs: the seed's text, and ours that says how to read it again."""
    if not isinstance(message, ToolResult):
        return 0
    return PLAIN.chars(measure(render(message, Decision(entry, "placeholder"))))


def cut(message: ToolResult, window: int) -> ToolResult:
    """What the single limit alone leaves, in a window where nothing else is over a line."""
    room = limits(window)
    wide = type(room)(**{f: getattr(room, f) for f in room.__struct_fields__} | WIDE)
    only = guard(view_of(message), fixed_tokens=0, limits=wide, estimator=PLAIN).items[0].message
    assert isinstance(only, ToolResult)
    return only


WIDE = {"total_chars": 10**9, "overflow_chars": 10**9}


def view_of(message: ToolResult) -> Items:
    return (Item("e0", message),)


def ours(stored: Items, window: int) -> list[str] | None:
    try:
        changed = guard(stored, fixed_tokens=0, limits=limits(window), estimator=PLAIN)
    except ContextOverflow:
        return None
    forms = {decision.key: decision.form for decision in changed.decisions}
    names = {"placeholder": "blank", "shortened": "cut"}
    return [names[forms[item.entry]] if item.entry in forms else "in" for item in changed.items]


def theirs(case: dict[str, Any]) -> list[str] | None:
    if "error" in case["expected"]:
        return None
    fates = []
    for before, after in zip(case["input"]["messages"], case["expected"]["messages"], strict=True):
        text = json.dumps(after["content"], ensure_ascii=False)
        blank = COMPACTED_PLACEHOLDER in text and COMPACTED_PLACEHOLDER not in json.dumps(before["content"])
        fates.append("blank" if blank else "cut" if after["content"] != before["content"] else "in")
    return fates


def departure(case: dict[str, Any], stored: Items, window: int) -> str:
    """Why ours may differ: rules of the design, not names of cases."""
    for message, item in zip(case["input"]["messages"], stored, strict=True):
        if message.get("details") is not None:
            return "details never reach a model, so they don't count"
        if isinstance(item.message, ToolResult) and images_of(item.message):
            return "images are cut with a notice, never silently"
        text = text_of(item.message) if isinstance(item.message, ToolResult) else ""
        if max(text, default="") > "\uffff":
            return "a character counts once, not in UTF-16 units"
        raw = len(text)
        if raw > limits(window).single_chars:
            return "a cut text ends in a notice that says how to read on"
    sizes = [their_size(message) for message in case["input"]["messages"]]
    if expected(stored, window, sizes) != expected(stored, window, our_sizes(stored)):
        return "names, ids, summaries and wide characters have their weight"
    if expected(stored, window, sizes) != expected(stored, window, sizes, bare=True):
        return "a blanked result says how to read it again"
    return ""


def test_most_recorded_runs_are_met_exactly() -> None:
    plain = [case for case in CASES if not departure(case, view(case["input"]["messages"]), window_of(case))]
    assert len(plain) > len(CASES) // 3


def window_of(case: dict[str, Any]) -> int:
    return int(number(case["params"]["contextWindowTokens"]))


@pytest.mark.parametrize("case", CASES, ids=ident)
def test_the_guard_does_what_was_recorded_or_departs_by_a_rule(case: dict[str, Any]) -> None:
    window = window_of(case)
    stored = view(case["input"]["messages"])
    clean = strip(stored).items
    assert ours(clean, window) == expected(clean, window, our_sizes(clean))
    if not departure(case, stored, window):
        assert ours(clean, window) == theirs(case)

"""The guard, against a newest-first loop and against the nearest release.

Both are judged by the rule in its plainest words, run twice: on our weights it must give what ours does,
and where it gives the same on the weights of the recorded program, ours must be what was recorded.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from conformance.messages import messages, source, units, unreadable
from conformance.rules import Case, Departure, Function, fails, has_error, holds, number, same
from perdure.context.numbers import COMPACTED_PLACEHOLDER, IMAGE_CHAR_ESTIMATE, limits
from perdure.context.results.guard import guard
from perdure.context.results.parts import images_of, render, text_of
from perdure.context.safety.strip import strip
from perdure.context.tokens.estimator import Estimator, measure
from perdure.errors import ConfigError, ContextOverflow
from perdure.records import Decision, Item, Items, ToolResult

PLAIN = Estimator()
NAMES = {"placeholder": "blank", "shortened": "cut"}
BLANK = len(COMPACTED_PLACEHOLDER) * 2
CUT_NOTICE = "\n[truncated: output exceeded context limit]"
Fates = list[str] | None


def _window(case: Case) -> float:
    return number(case["params"]["contextWindowTokens"])


def _no_window(case: Case) -> bool:
    return not (math.isfinite(_window(case)) and _window(case) >= 1)


def _refused(case: Case) -> None:
    if math.isfinite(_window(case)):
        fails(lambda: limits(int(_window(case))), "a window below one token")
        try:
            limits(int(_window(case)))
        except ConfigError as error:
            holds("window" in str(error), "the error names the window")
    else:
        fails(lambda: limits(int(_window(case))), "a window that is no number")


# --- the rule in its plainest words ----------------------------------------------------------------


def _plainly(
    items: Items,
    window: int,
    sizes: list[int],
    cuts: list[int],
    blanks: list[int],
    length: Callable[[str], int] = len,
    fixed: int = 0,
) -> Fates:
    """What becomes of each message, None for overflow.

    `cuts`, `blanks`: what a result weighs after the single limit, and as a placeholder.
    """
    lines = limits(window)
    state = [("in", size) for size in sizes]
    for at, item in enumerate(items):
        if isinstance(item.message, ToolResult) and _raw(item.message, length) > lines.single_chars:
            state[at] = ("cut", cuts[at])
    for at in range(len(state) - 1, -1, -1):
        if fixed + sum(size for _, size in state) <= lines.total_chars:
            break
        if isinstance(items[at].message, ToolResult) and state[at][1] > blanks[at]:
            state[at] = ("blank", blanks[at])
    over = fixed + sum(size for _, size in state) > lines.overflow_chars
    return None if over else [fate for fate, _ in state]


def _raw(result: ToolResult, length: Callable[[str], int] = len) -> int:
    return length(text_of(result)) + IMAGE_CHAR_ESTIMATE * len(images_of(result))


def on_our_weights(items: Items, window: int, fixed: int = 0) -> Fates:
    """The plain rule on the estimator's weights; `fixed` chars stand before all messages."""
    sizes = [PLAIN.chars(measure(item.message)) for item in items]
    cuts = [_cut_alone(m, window) if isinstance(m := item.message, ToolResult) else 0 for item in items]
    cuts = [min(size, cut) for size, cut in zip(sizes, cuts, strict=True)]
    return _plainly(items, window, sizes, cuts, [_blank(item) for item in items], fixed=fixed)


def _blank(item: Item) -> int:
    if not isinstance(item.message, ToolResult):
        return 0
    return PLAIN.chars(measure(render(item.message, Decision(item.entry, "placeholder"))))


def _cut_alone(message: ToolResult, window: int) -> int:
    """The size that the single limit alone leaves, where nothing else is over a line."""
    wide = replace(limits(window), total_chars=10**9, overflow_chars=10**9)
    only = guard((Item("e0", message),), fixed_tokens=0, limits=wide, estimator=PLAIN).items[0].message
    return PLAIN.chars(measure(only))


def _on_their_weights(case: Case, items: Items, window: int) -> Fates:
    found = case["input"]["messages"]
    cuts = [_their_cut(one, limits(window).single_chars) for one in found]
    return _plainly(items, window, list(map(_their_size, found)), cuts, [BLANK] * len(found), units)


def _their_size(found: dict[str, Any]) -> int:
    """The weights of the recorded program, with its flaws."""
    content, role = found.get("content"), found.get("role")
    if role == "user":
        return units(content) if isinstance(content, str) else _their_blocks(content)
    if role == "assistant":
        return _their_blocks(content)
    if role != "toolResult":
        return 256
    body = units(content) if isinstance(content, str) else _their_blocks(content)
    details = found.get("details")
    return (body + (0 if details is None else _json(details))) * 2


def _their_cut(found: dict[str, Any], most: int) -> int:
    content = found.get("content")
    blocks = content if isinstance(content, list) else []
    texts = [str(b.get("text") or "") for b in blocks if isinstance(b, dict) and b.get("type") == "text"]
    text = content if isinstance(content, str) else "\n".join(texts)
    if not text:
        return (len(CUT_NOTICE) - 1) * 2
    if units(text) <= most:
        return units(text) * 2
    room = most - len(CUT_NOTICE)
    head = text.encode("utf-16-le", "surrogatepass")[: 2 * room + 2].decode("utf-16-le", "replace")
    line = head.rfind("\n")
    kept = units(head[:line]) if line >= 0 else 0
    return ((kept if kept > room * 0.7 else room) + len(CUT_NOTICE)) * 2


def _their_blocks(content: Any) -> int:
    return sum(map(_their_block, content)) if isinstance(content, list) else 0


def _their_block(block: Any) -> int:
    kind = block.get("type") if isinstance(block, dict) else None
    if kind == "text":
        return units(block.get("text"))
    if kind == "thinking":
        return units(block.get("thinking"))
    if kind == "image":
        return IMAGE_CHAR_ESTIMATE
    if kind == "toolCall":
        return _json(block.get("arguments") or {})
    return _json(block)


def _json(value: Any) -> int:
    return units(json.dumps(value, separators=(",", ":"), ensure_ascii=False))


# --- ours and theirs ------------------------------------------------------------------------------


def _clean(case: Case) -> Items:
    return strip(source(case)).items


def _ours(items: Items, window: int) -> Fates:
    try:
        changed = guard(items, fixed_tokens=0, limits=limits(window), estimator=PLAIN)
    except ContextOverflow:
        return None
    forms = {decision.key: decision.form for decision in changed.decisions}
    return [NAMES[forms[item.entry]] if item.entry in forms else "in" for item in changed.items]


def _theirs(case: Case) -> Fates:
    if has_error(case):
        return None
    fates = []
    for before, after in zip(case["input"]["messages"], case["expected"]["messages"], strict=True):
        text = json.dumps(after.get("content"), ensure_ascii=False)
        had = COMPACTED_PLACEHOLDER in json.dumps(before.get("content"))
        blank = COMPACTED_PLACEHOLDER in text and not had
        fates.append("blank" if blank else "cut" if after.get("content") != before.get("content") else "in")
    return fates


def by_the_rule(case: Case) -> None:
    """Ours is the plain rule on our weights, nothing but results is touched, and literals are whole."""
    if _no_window(case):
        return
    items, window = _clean(case), int(_window(case))
    fates = _ours(items, window)
    same(fates, on_our_weights(items, window), "by the plain rule")
    if fates is None:
        return
    done = guard(items, fixed_tokens=0, limits=limits(window), estimator=PLAIN).items
    for fate, before, after in zip(fates, messages(items), messages(done), strict=True):
        if fate == "in":
            same(after, before, "an untouched message")
            continue
        assert isinstance(before, ToolResult)
        assert isinstance(after, ToolResult)
        same(
            (after.call_id, after.tool, after.is_error),
            (before.call_id, before.tool, before.is_error),
            "pair",
        )
        shown = text_of(after)
        if fate == "blank":
            same(shown.split("\n")[0], COMPACTED_PLACEHOLDER, "the placeholder")
        else:
            holds(_raw(after) <= max(limits(window).single_chars, 120), "the single limit holds")
            holds("truncated" in shown or "left out" in shown, "what is missing is told")


def _agrees(case: Case) -> None:
    same(_ours(_clean(case), int(_window(case))), _theirs(case))


def _threw_otherwise(case: Case) -> bool:
    return has_error(case) and case["expected"]["error_type"] != "Error"


def _image_over(case: Case) -> bool:
    """A picture makes a result too large by the reference's count, which then drops it without a word."""
    most = limits(int(_window(case))).single_chars
    pairs = zip(case["input"]["messages"], messages(source(case)), strict=True)
    return any(isinstance(m, ToolResult) and images_of(m) and _their_size(one) > most for one, m in pairs)


def _details_count(case: Case) -> bool:
    found = case["input"]["messages"]
    return any(one.get("details") is not None for one in found) and _other_weights(case)


def _wide(case: Case) -> bool:
    texts = (text_of(m) for m in messages(source(case)) if isinstance(m, ToolResult))
    return any(max(text, default="") > "\uffff" for text in texts) and _other_weights(case)


def _other_weights(case: Case) -> bool:
    items, window = _clean(case), int(_window(case))
    return _on_their_weights(case, items, window) != on_our_weights(items, window)


COMMON = (
    Departure(
        "a window is a positive number of tokens",
        "the configuration refuses any other; the reference takes the least line there is",
        _no_window,
        _refused,
    ),
    Departure(
        "what is no message gets into no view",
        "the reference throws, or counts it as 256 chars",
        lambda case: unreadable(case) or _threw_otherwise(case),
        by_the_rule,
    ),
)
NEWEST_FIRST = Function(
    _agrees,
    (
        *COMMON,
        Departure(
            "a picture counts once, and leaves with a notice",
            "the reference drops it silently although the text beside it fits",
            _image_over,
            by_the_rule,
        ),
        Departure(
            "details never reach a model, so they don't count",
            "they are stripped before the guard looks; the reference weighs them twice",
            _details_count,
            by_the_rule,
        ),
        Departure(
            "a character counts once",
            "the reference counts UTF-16 units",
            _wide,
            by_the_rule,
        ),
        Departure(
            "names, ids, summaries and notices have their weight",
            "the reference counts a summary as 256 chars, a call without its name, a string as nothing",
            _other_weights,
            by_the_rule,
        ),
    ),
    always=by_the_rule,
)


# --- the nearest release --------------------------------------------------------------------------


def _over_half(case: Case) -> bool:
    """A result over the release's own single limit: half of what it is in the seed's rule."""
    single = max(1_024, int(_window(case)))
    found = case["input"]["messages"]
    return any(one.get("role") == "toolResult" and _their_size(one) > single for one in found)


def _over_the_line(case: Case) -> bool:
    total = sum(map(_their_size, case["input"]["messages"]))
    return total > limits(int(_window(case))).total_chars


RELEASED = Function(
    _agrees,
    (
        *COMMON,
        Departure(
            "one result may hold as many characters as the window has tokens",
            "half of the window at two characters a token; the release allows half of that",
            _over_half,
            by_the_rule,
        ),
        Departure(
            "newest first, and whole results",
            "so that the cached prefix stays; the release begins at the second newest and trims in part",
            _over_the_line,
            by_the_rule,
        ),
        Departure(
            "names, ids, summaries and notices have their weight",
            "the release counts a summary as 256 chars, a call without its name, a string answer as nothing",
            _other_weights,
            by_the_rule,
        ),
    ),
    always=by_the_rule,
)
NAME = "installToolResultContextGuard.transformContext"
NEWEST_FIRST_FUNCTIONS = {NAME: NEWEST_FIRST}
RELEASED_FUNCTIONS = {NAME: RELEASED}

"""Shortening of tool results: where a text is cut, which results, and how much one may hold."""

from __future__ import annotations

import math
import re
import unicodedata
from typing import Any

from conformance.guard import by_the_rule
from conformance.messages import decoded, source, units
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
from perdure.context.numbers import OMISSION_MARKER, limits
from perdure.context.results.parts import images_of, render, text_of
from perdure.context.results.shorten import Cut, plan, plan_cut, shorten
from perdure.context.results.tails import has_important_tail
from perdure.records import Decision, ToolResult

NOTICE = re.compile(r"\[\.\.\. \d+ more characters truncated\]$")
REFERENCE_WORDS = re.compile(
    r"(?<![A-Za-z0-9_])(?:error|exception|failed|fatal|traceback|panic|stack trace|errno|exit code|total|"
    r"summary|result|complete|finished|done)(?![A-Za-z0-9_])"
)
MARKER = len(OMISSION_MARKER)

# --- texts ----------------------------------------------------------------------------------------


def _most(case: Case) -> int:
    return int(number(case["params"]["maxChars"]))


def _suffix(case: Case, text: str) -> str:
    return str(case["params"].get("suffix", f"[... {units(text) - _most(case)} more characters truncated]"))


def _cut(case: Case, text: str) -> Cut:
    return plan_cut(text, _most(case) - len(_suffix(case, text)))


def _plainly(text: str, budget: int) -> Cut:
    """The rule in its plainest words: 70 and 30 of the budget, each part to a line end if that is near."""
    if budget >= 2 * MARKER and has_important_tail(text):
        tail = int(budget * 0.3)
        return Cut(_head(text, budget - tail - MARKER), _tail(text, tail))
    return Cut(_head(text, budget))


def _head(text: str, budget: int) -> int:
    budget = max(0, budget)
    ends = [at for at, char in enumerate(text[: budget + 1]) if char == "\n"]
    return ends[-1] if ends and ends[-1] > budget * 0.8 else budget


def _tail(text: str, budget: int) -> int:
    first = text[-budget:].split("\n")[0]
    return budget - len(first) - 1 if len(first) < min(budget * 0.2, budget - 1) else budget


def _cut_by_the_rule(case: Case) -> None:
    """Within the limit, by 70 and 30, told, and never inside what belongs together."""
    text = case["input"].get("text")
    if not isinstance(text, str) or not _limited(case):
        return
    if len(text) <= _most(case):
        same(shorten(text, plan(text, _most(case)).head, 0), text, "a text within the limit")
        return
    ours = _cut(case, text)
    wanted = _plainly(text, _most(case) - len(_suffix(case, text)))
    if _joined(text):
        holds(0 <= wanted.head - ours.head < 600, "a head moves back by what belongs together, no more")
        holds(_whole(text, ours.head) and _whole(text, len(text) - ours.tail), "no cut parts a character")
    else:
        same(ours, wanted, "by the plain rule")
    whole = plan(text, _most(case), "e1")
    short = shorten(text, whole.head, whole.tail, "e1")
    holds(len(short) <= max(_most(case), 120), "the limit holds")
    holds("recall e1" in short or len(short) >= len(text), "how to read the rest is told")


def _whole(text: str, at: int) -> bool:
    if not 0 < at < len(text):
        return True
    halves = "\ud800" <= text[at - 1] <= "\udbff" and "\udc00" <= text[at] <= "\udfff"
    return not halves and not unicodedata.category(text[at]).startswith("M") and text[at - 1] != "\u200d"


def _limited(case: Case) -> bool:
    given = case["params"]["maxChars"]
    return is_number(given) and math.isfinite(number(given))


def _no_limit(case: Case) -> bool:
    return not _limited(case)


def _no_such_limit(case: Case) -> None:
    """Types let whole numbers through; what is none is no limit, and a text stays as it is without one."""
    given = case["params"]["maxChars"]
    if is_number(given) and number(given) == math.inf:
        same(case["expected"]["text"], case["input"]["text"], "without a limit")
    elif isinstance(given, str | None):
        fails(lambda: plan(case["input"]["text"], given), "a limit that is none")
    else:
        fails(lambda: int(number(given)), "a limit that is no number")


def _fraction(case: Case) -> bool:
    return _most(case) != number(case["params"]["maxChars"])


def _joined(text: str) -> bool:
    """Characters stand in it that belong together, or that the reference counts as two."""
    return any(
        char > "\uffff"
        or "\ud800" <= char <= "\udfff"
        or unicodedata.category(char)[0] == "M"
        or char in "\u200d\r"
        for char in text
    )


def _least_wins(case: Case) -> bool:
    text = case["input"]["text"]
    return _least(case) > _most(case) - len(_suffix(case, text)) and units(text) > _most(case)


def _least(case: Case) -> int:
    return int(number(case["params"].get("minKeepChars", 2_000)))


def _other_words(case: Case) -> bool:
    text = case["input"]["text"]
    end = text[-2_000:].lower()
    theirs = bool(REFERENCE_WORDS.search(end)) or end.strip().endswith("}")
    return has_important_tail(text) != theirs


def _budget(case: Case) -> int:
    return max(_least(case), _most(case) - len(_suffix(case, case["input"]["text"])))


def _large_tail(case: Case) -> bool:
    return has_important_tail(case["input"]["text"]) and _budget(case) * 0.3 > 4_000


def _small_tail(case: Case) -> bool:
    """The reference shows no tail in a budget near its minimum."""
    budget, least = _budget(case), _least(case)
    return has_important_tail(case["input"]["text"]) and (
        budget <= 2 * least or int(budget * 0.7) - MARKER <= least or budget < 2 * MARKER
    )


def _fits(case: Case) -> bool:
    return len(case["input"]["text"]) <= _most(case)


def _text_agrees(case: Case) -> None:
    text = case["input"].get("text")
    if has_error(case):
        fails(lambda: plan(text, _most(case)))
        return
    expected = case["expected"]["text"]
    if _fits(case):
        same(expected, text, "a text within the limit")
        return
    told = NOTICE.search(expected)
    suffix = case["params"].get("suffix", told[0] if told else "")
    body = expected[: len(expected) - len(suffix)] if suffix else expected
    head, marker, tail = body.partition(OMISSION_MARKER)
    same(_cut(case, text), Cut(len(head), len(tail) if marker else 0), "characters kept")


def _over(check: Any) -> Any:
    """A predicate that looks at texts over the limit only: the others stay as they are, here and there."""
    return lambda case: not has_error(case) and units(case["input"]["text"]) > _most(case) and check(case)


TEXT = Function(
    _text_agrees,
    (
        Departure(
            "a limit is a whole number",
            "types let no other through; the reference compares with whatever it is given",
            lambda case: not has_error(case) and _no_limit(case),
            _no_such_limit,
        ),
        Departure(
            "a limit of characters has no fraction",
            "the reference sizes its notice for a fraction of a character",
            _over(_fraction),
            _cut_by_the_rule,
        ),
        Departure(
            "no cut parts what belongs together",
            "the reference cuts UTF-16 units, so that half a character may end a text",
            _over(lambda case: _joined(case["input"]["text"])),
            _cut_by_the_rule,
        ),
        Departure(
            "the limit wins over a minimum",
            "the reference keeps 2,000 characters whatever the limit",
            _over(_least_wins),
            _cut_by_the_rule,
        ),
        Departure(
            "more words are words of outcome",
            "the end of an output matters in other languages, too, and `errors` as much as `error`",
            _over(_other_words),
            _cut_by_the_rule,
        ),
        Departure(
            "the tail is 30 % of any budget",
            "as the rule says; the reference stops it at 4,000",
            _over(_large_tail),
            _cut_by_the_rule,
        ),
        Departure(
            "a small budget has a tail, too",
            "if it has room for the marker; the reference gives up the end of the output",
            _over(_small_tail),
            _cut_by_the_rule,
        ),
    ),
    always=_cut_by_the_rule,
)

# --- messages and budgets -------------------------------------------------------------------------


def _result(case: Case) -> ToolResult | None:
    message = decoded(case["input"]["message"])
    return message if isinstance(message, ToolResult) else None


def _shortened(case: Case) -> bool:
    result = _result(case)
    return result is not None and len(text_of(result)) > _most(case)


def _one_text(case: Case) -> None:
    """All text of a result is one text: what is kept is its head and its end, and the pictures stay."""
    result = _result(case)
    assert result is not None
    cut = plan(text_of(result), _most(case), "e1")
    done = render(result, Decision("e1", "shortened", cut.head, cut.tail))
    same(images_of(done), images_of(result), "pictures")
    short = text_of(done)
    holds(short.startswith(text_of(result)[: cut.head]), "the head is the text's own")
    holds(len(short) <= max(_most(case), 120), "the limit holds for all text together")
    holds("recall e1" in short, "how to read the rest is told")
    same((done.call_id, done.tool, done.is_error), (result.call_id, result.tool, result.is_error), "the pair")


def _untouched(case: Case) -> None:
    same(case["expected"]["message"], case["input"]["message"], "a message within the limit")
    result = _result(case)
    if result is not None:
        text = text_of(result)
        same(shorten(text, plan(text, _most(case)).head, 0), text, "our text within the limit")


def _single_limit(case: Case) -> None:
    """As many raw characters as the window has tokens, and never less than the least line."""
    window = number(case["params"]["contextWindowTokens"])
    if math.isfinite(window) and window >= 1:
        same(limits(int(window)).single_chars, max(1_024, int(window)), "the single limit")
    else:
        fails(lambda: limits(int(window)), "no window")


def _no_recovery_pass(case: Case) -> None:
    by_the_rule(case)
    window, items = int(number(case["params"]["contextWindowTokens"])), source(case)
    count = sum(isinstance(item.message, ToolResult) for item in items)
    holds(count >= case["expected"]["toolResultCount"], "every result with text is seen")
    holds(limits(window).single_chars >= 1_024, "a single result may hold something")


FUNCTIONS = {
    "truncateToolResultText": TEXT,
    "truncateToolResultMessage": Function(
        _untouched,
        (
            Departure(
                "all text of a result is one text",
                "the reference shares the limit out over its blocks, and keeps more than the limit",
                _shortened,
                _one_text,
            ),
        ),
    ),
    "calculateMaxToolResultChars": Function(
        never,
        (
            Departure(
                "a result may hold as many characters as the window has tokens",
                "half of the window at two characters a token; larger outputs are evidence that can be read",
                always,
                _single_limit,
            ),
        ),
    ),
    "estimateToolResultReductionPotential": Function(
        never,
        (
            Departure(
                "the guard runs before every call, so there is no recovery pass over stored results",
                "nothing is rewritten in the session; what the guard does for this window is its plain rule",
                always,
                _no_recovery_pass,
            ),
        ),
    ),
}

"""Pruning: only when the cache is cold, oldest first, decided once; against recorded runs too."""

from __future__ import annotations

from typing import Any

import pytest

from helpers_messages import call, items, result, says, user
from perdure.context.changed import Changed
from perdure.context.numbers import CLEARED_PLACEHOLDER
from perdure.context.results.parts import text_of
from perdure.context.results.prune import PruneSettings, prune
from perdure.records import Decision, Image, Items, Text, ToolResult

COLD = 3_600.0
EAGER = PruneSettings(least=0)


def session(*sizes: int) -> Items:
    """A request, a step with a result for each size, and three assistant turns that stay protected."""
    made = [user("start")]
    for n, size in enumerate(sizes, 1):
        made += [says(call(f"c{n}"), stop="toolUse"), result(f"c{n}", "x" * size)]
    return items(*made, says("one"), says("two"), says("three"))


def run(
    stored: Items, settings: PruneSettings | None = EAGER, *, age: float | None = COLD, **more: Any
) -> Changed:
    return prune(stored, settings, window=more.pop("window", 5_000), cache_age=age, **more)


def texts(changed: Changed) -> list[str]:
    return [text_of(item.message) for item in changed.items if isinstance(item.message, ToolResult)]


@pytest.mark.parametrize("age", [None, 0.0, 299.0])
def test_nothing_is_pruned_while_the_cache_may_be_warm(age: float | None) -> None:
    stored = session(9_000, 9_000)
    assert run(stored, age=age).items is stored


def test_old_results_are_trimmed_at_both_ends_and_say_how_to_read_the_rest() -> None:
    changed = run(session(9_000))
    (text,) = texts(changed)
    assert text.startswith("x" * 1_500)
    assert "`recall e3`" in text
    assert [(line.decision, line.rule) for line in changed.lines] == [("pruned", "prune.soft")]


def test_the_oldest_are_cleared_first_and_no_more_than_needed() -> None:
    found = texts(run(session(3_900, 3_900, 3_900)))
    assert [text.startswith(CLEARED_PLACEHOLDER) for text in found] == [True, False, False]


def test_the_last_three_assistant_turns_keep_their_results() -> None:
    steps = [step for n in "12" for step in (says(call(f"c{n}")), result(f"c{n}", "x" * 9_000))]
    stored = items(user("start"), *steps, says("done"))
    assert run(stored).items is stored


def test_what_no_call_has_shown_is_never_pruned() -> None:
    stored = session(9_000)
    assert run(stored, unseen=frozenset({"e3"})).items is stored


def test_too_little_to_win_is_not_cleared() -> None:
    changed = run(session(3_900, 3_900, 3_900), PruneSettings(least=50_000))
    assert changed.decisions == ()


def test_once_pruned_stays_pruned_byte_for_byte_when_the_cache_is_warm_again_or_pruning_is_off() -> None:
    stored = session(9_000, 3_900, 3_900)
    first = run(stored)
    decided = {decision.key: decision for decision in first.decisions}
    assert run(stored, age=1.0, decided=decided).items == first.items
    off = run(stored, None, age=None, decided=decided)
    assert off.items == first.items
    assert off.decisions == ()


def test_a_trimmed_result_may_be_cleared_later_but_never_comes_back() -> None:
    stored = session(9_000)
    first = run(stored, PruneSettings(hard_clear=False))
    (trimmed,) = first.decisions
    later = run(stored, window=1_000, decided={trimmed.key: trimmed})
    assert texts(later) == [f"{CLEARED_PLACEHOLDER}\n[`recall e3` reads it]"]


def test_what_the_guard_blanked_is_left_to_it() -> None:
    stored = session(9_000)
    assert run(stored, decided={"e3": Decision("e3", "placeholder")}).decisions == ()


def test_images_of_an_old_result_leave_with_a_notice() -> None:
    shot = ToolResult("c1", "screen", (Text("a window"), Image("QUJD", "image/png")))
    stored = items(user("look"), says(call("c1")), shot, says("1"), says("2"), says("3"))
    assert texts(run(stored)) == ["a window\n[1 image left out (image/png); `recall e3` shows it]"]


def test_a_denied_tool_keeps_its_results_whatever_is_allowed() -> None:
    settings = PruneSettings(allow=(" Read ", "web_*"), deny=("web_fetch",))
    assert [settings.prunable(tool) for tool in ("read", "web_search", "web_fetch", "bash")] == [
        True, True, False, False,
    ]  # fmt: skip


def test_items_keep_their_places() -> None:
    stored = session(9_000, 9_000)
    assert [item.entry for item in run(stored).items] == [item.entry for item in stored]

"""The guard: under the lines, newest first, nothing unseen blanked, bytes stable."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers_messages import call, items, result, says, user
from perdure.context.changed import Changed
from perdure.context.numbers import COMPACTED_PLACEHOLDER, UNSEEN_FLOOR_CHARS, Limits, limits
from perdure.context.results.guard import guard
from perdure.context.results.parts import text_of
from perdure.context.tokens.estimator import Estimator, Gauge
from perdure.errors import ContextOverflow
from perdure.records import Decision, Image, Item, Items, Text, ToolResult

PLAIN = Estimator()


def run(
    view: Items,
    window: int = 4_000,
    *,
    fixed: int = 0,
    decided: dict[str, Decision] | None = None,
    unseen: frozenset[str] = frozenset(),
    gauge: Gauge | None = None,
) -> Changed:
    lines = limits(window)
    return guard(
        view,
        fixed_tokens=fixed,
        limits=lines,
        estimator=PLAIN,
        decided=decided or {},
        unseen=unseen,
        gauge=gauge,
    )


def steps(*sizes: int) -> Items:
    """A user's request, then one call with one result for each size; results are r1, r2, …"""
    view = [Item("u", user("do it"))]
    for n, size in enumerate(sizes, 1):
        view.append(Item(f"a{n}", says(call(f"c{n}"), stop="toolUse")))
        view.append(Item(f"r{n}", result(f"c{n}", "x" * size)))
    return tuple(view)


def text(changed: Changed, entry: str) -> str:
    message = next(item.message for item in changed.items if item.entry == entry)
    assert isinstance(message, ToolResult)
    return text_of(message)


def forms(changed: Changed) -> dict[str, str]:
    return {decision.key: decision.form for decision in changed.decisions}


def test_a_view_under_the_lines_is_the_same_object() -> None:
    view = steps(100, 200)
    assert run(view).items is view


def test_the_newest_results_are_blanked_first_and_no_more_than_needed() -> None:
    changed = run(steps(2_000, 2_000, 2_000, 2_000))  # 8,000 chars, 16,000 weighted, line 12,000
    assert forms(changed) == {"r4": "placeholder", "r3": "placeholder"}
    assert text(changed, "r4") == f"{COMPACTED_PLACEHOLDER}\n[`recall r4` reads it]"


def test_a_result_no_call_has_shown_is_trimmed_to_the_room_left_and_older_ones_stay() -> None:
    changed = run(steps(2_000, 1_500, 3_500), unseen=frozenset({"r3"}))
    assert forms(changed) == {"r3": "trimmed"}
    assert 2_100 < len(text(changed, "r3")) < 2_600
    assert "`recall r3`" in text(changed, "r3")


def test_older_results_pay_so_that_an_unseen_one_keeps_its_floor() -> None:
    changed = run(steps(2_900, 2_900, 3_500), unseen=frozenset({"r3"}))
    assert forms(changed) == {"r3": "trimmed", "r2": "placeholder"}
    assert UNSEEN_FLOOR_CHARS < len(text(changed, "r3")) < 3_100  # what r2 left beyond the floor is used


def test_in_a_large_window_what_was_read_makes_room_for_a_third_of_the_line() -> None:
    changed = run(steps(*[6_000] * 8, 60_000), 32_000, unseen=frozenset({"r9"}))  # line 48,000 raw chars
    assert forms(changed)["r9"] == "trimmed"
    assert 15_000 < len(text(changed, "r9")) < 22_000
    assert sum(form == "placeholder" for form in forms(changed).values()) == 3
    assert PLAIN.items(changed.items) <= limits(32_000).total


def test_a_batch_of_unseen_results_shares_the_room_and_none_vanishes() -> None:
    fresh = frozenset(f"r{n}" for n in range(1, 31))
    changed = run(steps(*[2_000] * 30), unseen=fresh)
    assert PLAIN.items(changed.items) <= limits(4_000).total
    assert all(text(changed, entry).startswith("xxx") for entry in fresh)


def test_one_result_may_hold_as_many_raw_characters_as_the_window_has_tokens() -> None:
    assert run(steps(4_000)).decisions == ()
    changed = run(steps(4_001))
    assert forms(changed) == {"r1": "shortened"}
    assert len(text(changed, "r1")) <= 4_000


def test_a_result_near_the_window_is_cut_to_its_head_and_leads_to_the_rest() -> None:
    changed = run(items(user("go"), says(call("c1")), result("c1", "data " * 400_000), user("next")), 128_000)
    cut = text(changed, "e3")
    assert 120_000 < len(cut) <= 128_000
    assert "middle content omitted" not in cut
    assert "`recall e3` reads them" in cut
    assert PLAIN.items(changed.items) < limits(128_000).overflow


def test_system_prompt_and_tool_schemas_count() -> None:
    assert run(steps(1_000)).decisions == ()
    assert forms(run(steps(1_000), fixed=2_900)) == {"r1": "placeholder"}


def test_what_no_result_can_pay_for_is_an_overflow_with_numbers_and_owners() -> None:
    view = items(user("x" * 15_000))
    with pytest.raises(ContextOverflow) as caught:
        run(view, fixed=500)
    assert (caught.value.tokens, caught.value.limit) == (4_250, 3_600)
    assert caught.value.floor == {"system": 500, "tools": 0, "pinned": 0, "newest turn": 3_750}
    assert sum(caught.value.owners.values()) == caught.value.tokens


def test_an_overflow_made_of_history_names_no_floor_because_compaction_can_act() -> None:
    with pytest.raises(ContextOverflow) as caught:
        run(items(user("x" * 9_000), says("y" * 9_000), user("go on")))
    assert caught.value.floor == {}


def test_between_the_two_lines_a_history_without_results_passes() -> None:
    view = items(user("x" * 13_000))
    assert run(view).items is view


def test_images_over_the_single_limit_leave_with_a_notice() -> None:
    shot = ToolResult("c1", "screen", (Text("a window"), Image("QUJD", "image/png")))
    changed = run(items(user("look"), says(call("c1", "screen")), shot))
    assert text(changed, "e3") == "a window\n[1 image left out (image/png); `recall e3` shows it]"


def test_images_within_the_single_limit_stay_and_the_text_beside_them_is_cut() -> None:
    shot = ToolResult("c1", "screen", (Text("x" * 40_000), Image("QUJD", "image/png")))
    changed = run(items(user("look"), says(call("c1", "screen")), shot), 40_000)
    message = changed.items[2].message
    assert isinstance(message, ToolResult)
    assert [type(block) for block in message.content] == [Text, Image]
    assert len(text_of(message)) + 8_000 <= 40_000


def test_a_blanked_result_says_that_its_images_are_gone_too() -> None:
    shot = ToolResult("c1", "screen", (Text("x"), Image("QUJD", "image/png")))
    view = (*items(user("x" * 20_000), says(call("c1", "screen")), shot),)
    changed = run(view, 10_000, fixed=2_000)
    assert text(changed, "e3").startswith(f"{COMPACTED_PLACEHOLDER}\n[1 image left out")


def test_details_never_survive_a_change() -> None:
    secret = ToolResult("c1", "read", (Text("x" * 9_000),), details=b'{"raw":1}')
    message = run(items(user("u"), says(call("c1")), secret)).items[2].message
    assert isinstance(message, ToolResult)
    assert message.details is None


def test_a_smaller_window_cuts_further_what_a_larger_one_had_cut() -> None:
    view = steps(30_000)
    first = run(view, 20_000).decisions
    again = run(view, 4_000, decided={d.key: d for d in first})
    assert len(text(again, "r1")) <= 4_000
    assert forms(again) == {"r1": "shortened"}


def test_every_change_is_told_in_the_ledger_and_replays_are_told_too() -> None:
    view = steps(2_000, 2_000, 2_000, 2_000)
    first = run(view)
    assert [(line.entry, line.decision, line.rule) for line in first.lines] == [
        ("r3", "placeholder", "guard.total"),
        ("r4", "placeholder", "guard.total"),
    ]
    second = run(view, decided={d.key: d for d in first.decisions})
    assert [line.rule for line in second.lines] == ["guard.replayed"] * 2
    assert second.decisions == ()


def test_a_turn_of_three_hundred_calls_in_a_small_window_reads_every_result_once() -> None:
    view: list[Item] = [Item("u", user("find them all"))]
    decided: dict[str, Decision] = {}
    gauge, line = Gauge(), limits(32_000)
    for n in range(300):
        view.append(Item(f"a{n}", says(call(f"c{n}", "grep"), stop="toolUse")))
        view.append(Item(f"r{n}", result(f"c{n}", f"match {n}\n" * 400)))
        changed = run(
            tuple(view), 32_000, fixed=2_000, decided=decided, unseen=frozenset({f"r{n}"}), gauge=gauge
        )
        decided |= {decision.key: decision for decision in changed.decisions}
        assert text(changed, f"r{n}").startswith(f"match {n}\n")
        assert PLAIN.items(changed.items) + 2_000 <= line.total
    assert sum(decision.form == "placeholder" for decision in decided.values()) > 100


# --- properties -----------------------------------------------------------------------------------

SIZES = st.lists(st.integers(0, 5_000), min_size=1, max_size=12)
WINDOWS = st.integers(300, 9_000)


@st.composite
def histories(draw: st.DrawFn) -> tuple[Items, int, int, frozenset[str]]:
    sizes = draw(SIZES)
    fresh = draw(st.integers(0, len(sizes)))
    unseen = frozenset(f"r{n}" for n in range(len(sizes) - fresh + 1, len(sizes) + 1))
    window = draw(WINDOWS)
    return steps(*sizes), window, draw(st.integers(0, window // 2)), unseen


@settings(max_examples=50, deadline=None)
@given(histories())
def test_the_outcome_is_under_the_overflow_line_or_a_typed_overflow(
    history: tuple[Items, int, int, frozenset[str]],
) -> None:
    view, window, fixed, unseen = history
    line: Limits = limits(window)
    changed = overflow = None
    try:
        changed = run(view, window, fixed=fixed, unseen=unseen)
    except ContextOverflow as raised:
        overflow = raised
    if changed is None:
        assert overflow is not None
        assert overflow.tokens >= overflow.limit == line.overflow
        return
    assert fixed + PLAIN.items(changed.items) <= line.overflow + 1
    assert [item.entry for item in changed.items] == [item.entry for item in view]
    for item in changed.items:
        if item.entry in unseen:
            assert isinstance(item.message, ToolResult)
            assert not text_of(item.message).startswith(COMPACTED_PLACEHOLDER)


@settings(max_examples=50, deadline=None)
@given(histories())
def test_no_message_before_the_one_it_needs_is_touched(
    history: tuple[Items, int, int, frozenset[str]],
) -> None:
    view, window, fixed, unseen = history
    try:
        changed = run(view, window, fixed=fixed, unseen=unseen)
    except ContextOverflow:
        return
    blanked = [n for n, item in enumerate(view) if item.entry in forms(changed) and item.entry not in unseen]
    blanked = [n for n in blanked if forms(changed)[view[n].entry] == "placeholder"]
    if not blanked:
        return
    oldest = blanked[0]
    spared = (*changed.items[:oldest], view[oldest], *changed.items[oldest + 1 :])
    assert fixed * 4 + sum(PLAIN.chars(Gauge().measure(item)) for item in spared) > limits(window).total_chars


@settings(max_examples=50, deadline=None)
@given(histories())
def test_its_own_decisions_give_the_same_bytes_again_and_no_new_decision(
    history: tuple[Items, int, int, frozenset[str]],
) -> None:
    view, window, fixed, unseen = history
    try:
        first = run(view, window, fixed=fixed, unseen=unseen)
    except ContextOverflow:
        return
    again = run(view, window, fixed=fixed, unseen=unseen, decided={d.key: d for d in first.decisions})
    assert again.items == first.items
    assert again.decisions == ()


@settings(max_examples=50, deadline=None)
@given(histories())
def test_what_was_decided_in_a_full_window_is_replayed_in_an_empty_one(
    history: tuple[Items, int, int, frozenset[str]],
) -> None:
    view, window, fixed, unseen = history
    try:
        first = run(view, window, fixed=fixed, unseen=unseen)
    except ContextOverflow:
        return
    later = run(view, 1_000_000, decided={d.key: d for d in first.decisions})
    assert later.items == first.items

"""What a compaction covers: whole batches, nothing unseen, the running request never lost."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from helpers_compaction import histories
from helpers_messages import call, case_view, items, result, says, user
from perdure.context.compaction.batches import boundaries, calls_of
from perdure.context.compaction.plan import Nothing, Plan, plan
from perdure.context.compaction.size import view_tokens
from perdure.context.numbers import limits
from perdure.context.tokens.estimator import Estimator
from perdure.records import Item, Items, Message, Summary, ToolResult

LINES = limits(128_000)
PLAIN = Estimator()


def run(view: Items, **more: Any) -> Plan | Nothing:
    return plan(view, limits=more.pop("limits", LINES), estimator=PLAIN, **more)


def planned(view: Items, **more: Any) -> Plan:
    made = run(view, **more)
    assert isinstance(made, Plan), made
    return made


def turns(count: int, size: int = 4_000) -> Items:
    return items(*[m for n in range(count) for m in (user(f"u{n} " + "x" * size), says(f"a{n}"))])


def working(count: int) -> list[Message]:
    return [
        m for n in range(count) for m in (says(call(f"c{n}"), stop="toolUse"), result(f"c{n}", "x" * 2_000))
    ]


def test_the_tail_keeps_its_tokens_and_begins_where_the_summary_ends() -> None:
    made = planned(turns(40))
    assert made.first_kept == made.kept[0].entry
    assert made.covered + made.kept == turns(40)
    assert 20_000 <= view_tokens(made.kept, LINES, PLAIN) < 22_000


def test_a_view_within_the_tail_is_nothing_to_compact() -> None:
    assert run(turns(3)) == Nothing("fits the kept tail")
    assert run(()) == Nothing("empty")
    assert run(items(Summary("old"))) == Nothing("only a summary")


def test_a_person_who_asks_gets_all_but_the_last_turn_covered() -> None:
    made = planned(turns(3), force=True)
    assert [item.entry for item in made.kept] == ["e5", "e6"]


def test_an_earlier_summary_is_folded_in_and_never_counted_as_covered() -> None:
    made = planned((Item("c1", Summary("S1")), *turns(40)))
    assert made.previous == "S1"
    assert made.covered[0].entry == "e1"


def test_the_kept_tail_of_an_earlier_compaction_is_covered_by_the_next() -> None:
    view = case_view(
        [
            {"type": "message", "id": "e1", "message": {"role": "user", "content": "u1"}},
            {"type": "message", "id": "e3", "message": {"role": "user", "content": "u2 KEEPME"}},
            {"type": "message", "id": "e4", "message": {"role": "assistant", "content": "a2 " * 8_000}},
            {"type": "compaction", "id": "e5", "summary": "S1", "firstKeptEntryId": "e3"},
            {"type": "message", "id": "e6", "message": {"role": "user", "content": "u4"}},
            {"type": "message", "id": "e7", "message": {"role": "assistant", "content": "a4"}},
        ]
    )
    made = planned(view, keep=1)
    assert [item.entry for item in made.covered] == ["e3", "e4", "e6"]
    assert made.previous == "S1"


def test_what_no_call_has_shown_stays_with_its_whole_batch() -> None:
    view = items(
        user("old " * 9_000), says("ok"), user("go"), says(call("c1"), call("c2"), stop="toolUse"),
        result("c1", "x" * 90_000), result("c2", "y" * 90_000),
    )  # fmt: skip
    made = planned(view, unseen=frozenset({"e5", "e6"}), running=True)
    assert [item.entry for item in made.kept] == ["e4", "e5", "e6"]


def test_a_batch_that_waits_for_its_answer_is_never_covered() -> None:
    view = (*turns(30), Item("a", says(call("c1"), stop="toolUse")), Item("u", user("z" * 200_000)))
    made = planned(view)
    assert made.kept[0].entry == "a"


def test_the_request_of_a_turn_that_outgrew_the_tail_is_pinned_word_for_word() -> None:
    steps = [
        m for n in range(60) for m in (says(call(f"c{n}"), stop="toolUse"), result(f"c{n}", "x" * 2_000))
    ]
    made = planned(items(user("rename ALL of them, 日本語 too\n"), *steps), running=True)
    assert [(pin.entry, pin.text) for pin in made.pins] == [("e1", "rename ALL of them, 日本語 too\n")]
    assert made.split_turn


def test_a_pin_of_an_earlier_compaction_is_carried_on_though_its_entry_left_the_view() -> None:
    steps = [
        m for n in range(60) for m in (says(call(f"c{n}"), stop="toolUse"), result(f"c{n}", "x" * 2_000))
    ]
    made = planned((Item("s", Summary("S1")), *items(*steps)), running=True, pinned={"e0": "the request"})
    assert [pin.entry for pin in made.pins] == ["e0"]


def test_a_pasted_log_that_fills_the_window_alone_is_the_newest_turn_and_not_compacted() -> None:
    log = items(user("line of a pasted log\n" * 60_000))
    assert run(log, running=True) == Nothing("nothing but the newest turn")
    later = planned((*log, Item("e2", user("and now?"))), running=True)
    assert [item.entry for item in later.covered] == ["e1"]


def test_a_single_huge_result_counts_at_its_limited_size() -> None:
    view = items(user("go"), says(call("c1")), result("c1", "data " * 400_000), user("next"))
    assert view_tokens(view, LINES, PLAIN) < 64_100


def test_where_one_message_is_all_there_is_to_cover_it_is_covered() -> None:
    assert [item.entry for item in planned(items(user("log line ok\n" * 8_000), says("ok"))).covered] == [
        "e1"
    ]


def test_a_huge_message_at_the_line_is_covered_so_that_the_tail_shrinks() -> None:
    view = items(user("watch"), user("log line ok\n" * 16_000), says("deployed"))
    assert [item.entry for item in planned(view).covered] == ["e1", "e2"]


def test_a_chinese_tail_is_measured_by_the_estimator_that_cuts_it() -> None:
    said = "在这一步请检查库存清单并记录差异。" * 20, "已记录，差异为零。" * 20
    view = items(*[m for _ in range(30) for m in (user(said[0]), says(said[1]))])
    one_turn = view_tokens(view[:2], LINES, PLAIN)
    made = planned(view, keep=2_000)
    assert view_tokens(view, LINES, PLAIN) >= sum(map(len, said)) * 30
    assert view_tokens(made.kept, LINES, PLAIN) <= 2_000 + one_turn


def test_calls_of_failed_and_aborted_messages_hold_nothing() -> None:
    assert calls_of(says(call("c1"), stop="aborted")) == ()
    assert all(boundaries(items(user("u"), says(call("c1"), stop="error"), user("v"))))


@given(histories(), st.integers(1, 3_000), st.booleans(), st.integers(0, 3))
def test_a_cut_never_splits_a_batch_and_never_covers_the_unseen(
    stored: Items, keep: int, force: bool, fresh: int
) -> None:
    unseen = frozenset(item.entry for item in stored[len(stored) - fresh :])
    made = run(stored, keep=keep, force=force, unseen=unseen)
    if isinstance(made, Nothing):
        return
    assert made.covered
    assert made.covered + made.kept == stored
    asked = {name for item in made.covered for name in calls_of(item.message)}
    assert not asked & {m.call_id for item in made.kept if isinstance(m := item.message, ToolResult)}
    assert not unseen & {item.entry for item in made.covered}


def test_roles_that_begin_a_tail_are_any_but_results() -> None:
    free = boundaries(items(user("u"), says(call("c1")), result("c1"), says("x"), user("v")))
    assert free == [True, True, False, True, True, True]

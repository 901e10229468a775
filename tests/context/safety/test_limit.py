"""History limits: the reference's vectors, the leading summary, and a start that moves in jumps."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from helpers_messages import items, result, says, user
from perdure.context.changed import as_decisions
from perdure.context.safety.limit import RULE, limit, margin
from perdure.records import Decision, Items, Summary, User


def turns(n: int) -> Items:
    return items(*(message for k in range(n) for message in (user(f"q{k}"), says(f"a{k}"))))


def test_a_leading_summary_is_never_dropped() -> None:
    view_ = items(Summary("s"), user("1"), says("a"), user("2"), says("b"), user("3"))
    done = limit(view_, 1)
    assert [type(i.message) for i in done.items] == [Summary, User]
    assert [line.entry for line in done.lines] == ["e2", "e3", "e4", "e5"]
    assert {line.rule for line in done.lines} == {RULE}


def test_the_start_stays_until_the_history_is_longer_by_the_margin_and_then_jumps() -> None:
    kept: tuple[Decision, ...] = ()
    starts = []
    for n in range(9, 22):
        done = limit(turns(n), 8, as_decisions(kept))
        kept = done.decisions + kept
        starts.append(done.items[0].entry)
        assert sum(isinstance(i.message, User) for i in done.items) <= 8 + margin(8)
    moves = sum(a != b for a, b in itertools.pairwise(starts))
    assert moves == 4  # every third turn, not every turn


def test_a_decided_start_that_left_the_view_is_decided_anew() -> None:
    decided = {"limit": Decision("limit", "limit", value="gone")}
    done = limit(turns(5), 2, decided)
    assert [d.value for d in done.decisions] == ["e7"]


def test_a_question_is_never_lost_to_an_orphan_behind_it() -> None:
    history = items(user("q1"), says("a"), user("q2"), result("B"))
    assert limit(history, 1).items == history[2:]


@given(st.integers(0, 12), st.integers(1, 6), st.integers(0, 12))
def test_limiting_what_is_limited_changes_nothing(n: int, keep: int, start: int) -> None:
    decided = {"limit": Decision("limit", "limit", value=f"e{start}")}
    once = limit(turns(n), keep, decided)
    again = limit(once.items, keep, as_decisions((*once.decisions, *decided.values())))
    assert again.items == once.items

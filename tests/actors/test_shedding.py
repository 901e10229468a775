"""Who sleeps first, and how much a host may own: pure choices."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.actors.budgeting import LEAST, UNBOUNDED, budget
from perdure.actors.shedding import Resting, choose, score
from perdure.errors import ConfigError

MB = 1024 * 1024
resting = st.builds(
    Resting,
    st.text("abc", min_size=1, max_size=4),
    st.integers(1, 10 * MB),
    st.floats(0, 1e6),
    st.integers(0, 10 * MB),
)


@given(st.lists(resting, unique_by=lambda each: each.key, max_size=30), st.integers(0, 50 * MB))
def test_enough_is_chosen_and_no_session_more_than_needed(found: list[Resting], too_much: int) -> None:
    chosen = choose(found, 1e6, too_much)
    freed = sum(each.owned for each in chosen)
    assert freed >= min(too_much, sum(each.owned for each in found))
    if chosen:
        assert freed - chosen[-1].owned < too_much
    left = set(found) - set(chosen)
    assert all(score(a, 1e6) >= score(b, 1e6) for a in chosen for b in left)


def test_of_two_alike_the_one_that_rests_longer_sleeps() -> None:
    old, new = Resting("a", MB, 0.0, MB), Resting("b", MB, 90.0, MB)
    assert choose((new, old), 100.0, 1) == (old,)


def test_of_two_that_rest_alike_the_one_with_more_bytes_for_its_reload_sleeps() -> None:
    dear = Resting("dear", 2 * MB, 0.0, 4 * MB)  # a long view, and no request kept of it
    cheap = Resting("cheap", 2 * MB, 0.0, MB // 2)
    assert choose((dear, cheap), 100.0, 1) == (cheap,)


def test_a_small_one_that_rests_for_days_goes_before_a_large_one_that_has_just_come_to_rest() -> None:
    large, small = Resting("large", 8 * MB, 99_999.0, MB), Resting("small", MB // 4, 0.0, MB // 8)
    assert choose((large, small), 100_000.0, 1) == (small,)


def test_the_budget_is_what_is_configured_less_what_the_process_takes_by_itself() -> None:
    found = budget(512, 0, 112 * MB)
    assert (found.process, found.sessions + found.reserve) == (512 * MB, 400 * MB)
    assert found.sessions < found.line < found.process


def test_without_a_setting_it_is_a_share_of_the_machine() -> None:
    assert budget(0, 1000 * MB, 100 * MB).process == 600 * MB


def test_a_machine_that_tells_nothing_leaves_it_to_the_count_of_sessions() -> None:
    assert budget(0, 0, 100 * MB) == UNBOUNDED


def test_a_budget_that_holds_no_session_is_refused_with_the_number_that_would_do() -> None:
    with pytest.raises(ConfigError, match=r"memory_mb: 64 MB are too few.*set 77 or more"):
        budget(64, 0, 60 * MB)
    assert budget(77, 0, 60 * MB).sessions > 0
    assert LEAST == 16 * MB

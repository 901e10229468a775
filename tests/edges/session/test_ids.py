import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.edges.session.ids import Ids, entry_id, session_id

numbers = st.tuples(st.integers(0, 2**48 - 1), st.integers(0, 2**60 - 1), st.integers(0, 2**60 - 1))


@given(numbers, numbers)
def test_ids_are_equal_only_for_equal_numbers_and_ordered_like_them(a, b):
    one, other = entry_id(*a), entry_id(*b)
    assert (one < other, one == other) == (a < b, a == b)


def test_an_id_has_at_least_sixteen_hex_digits():
    assert re.fullmatch("[0-9a-f]{16}", entry_id(1_790_000_000_000, 1, 1))


def test_a_clock_that_steps_back_does_not_disturb_the_order():
    ids = Ids(3)
    made = [ids.entry(at) for at in (1000, 2000, 500, 2000)]
    assert made == sorted(made)
    assert len(set(made)) == 4


def test_sessions_of_two_state_folders_that_count_alike_differ_by_key():
    assert session_id(1, 1, 1, "agent:a") != session_id(1, 1, 1, "agent:b")


@pytest.mark.parametrize("numbers", [(-1, 1, 1), (2**48, 1, 1), (1, -1, 1), (1, 1, 2**60)])
def test_numbers_that_do_not_fit_are_refused_instead_of_cut(numbers):
    with pytest.raises(ValueError):
        entry_id(*numbers)

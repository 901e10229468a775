"""Expectations: what holds is silent, what doesn't is one line with both sides."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from perdure.replay.counts import COUNTS, Observed, bounds, failures
from perdure.replay.steps import Count, ExpectStep


@pytest.mark.parametrize(
    ("count", "least", "most"),
    [(3, 3, 3), ("3", 3, 3), (">=3", 3, None), ("<= 3", 0, 3), ("2..5", 2, 5), ("0..0", 0, 0)],
)
def test_a_count_reads_as_it_looks(count: Count, least: int, most: int | None) -> None:
    assert bounds(count) == (least, most)


@pytest.mark.parametrize("count", ["", "~3", "3..", "5..2", "-1", -1, ">3"])
def test_anything_else_is_no_count(count: Count) -> None:
    assert bounds(count) is None


@pytest.mark.parametrize("name", COUNTS)
def test_every_count_can_hold_and_can_fail(name: str) -> None:
    step = replace(ExpectStep(), **{name: "2..3"})
    assert failures(step, replace(Observed(), **{name: 2})) == ()
    for found in (1, 4):
        assert failures(step, replace(Observed(), **{name: found})) == (
            f"expected {name} 2..3, found {found}",
        )


def test_counts_are_fields_of_what_is_expected_and_of_what_is_seen() -> None:
    assert set(COUNTS) <= set(ExpectStep.__struct_fields__) & set(Observed.__struct_fields__)


def test_texts_that_are_not_there_fail_and_say_what_was() -> None:
    seen = Observed(reply="no milk", stop="error", request="system bread", recalled="from the past")
    step = ExpectStep(
        session="k", reply="butter", stop="stop", visible="milk", hidden="bread", findable="future"
    )
    assert failures(step, seen) == (
        "expected a reply with 'butter', the last was 'no milk' in k",
        "expected the last turn to end with 'stop', it was 'error' in k",
        "expected 'milk' in the last request in k",
        "expected 'bread' not to be in the last request in k",
        "expected to find 'future' in the last request or by recall in k",
    )
    good = ExpectStep(reply="milk", stop="error", visible="bread", hidden="milk", findable="past")
    assert failures(good, seen) == ()


def test_a_text_is_not_found_across_the_request_and_the_past() -> None:
    assert failures(ExpectStep(findable="breadfrom"), Observed(request="bread", recalled="from")) != ()


def test_a_long_reply_is_shown_shortened() -> None:
    (line,) = failures(ExpectStep(reply="x"), Observed(reply="y" * 5000))
    assert len(line) < 250

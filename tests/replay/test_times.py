"""Virtual times: what people write means the same everywhere, and nonsense is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.replay.times import epoch_ms, iso, seconds

START = epoch_ms("2026-01-05T08:30:00Z")


@pytest.mark.parametrize(
    ("written", "means"),
    [
        (90, 90.0),
        (0.0004, 0.0),
        ("90", 90.0),
        ("1.5", 1.5),
        ("1h30m", 5400.0),
        ("2d", 172_800.0),
        ("250ms", 0.25),
        ("1m5s", 65.0),
        ("+30s", 130.0),
        ("+1.5", 101.5),
        ("day 1 09:00", 1800.0),
        ("day 3 08:29:30", 172_770.0),
        ("2026-01-05T09:00:00Z", 1800.0),
        ("2026-01-05T09:00:00+01:00", -1.0),
        ("2026-01-06", 55_800.0),
    ],
)
def test_each_form_of_a_time_means_what_it_says(written: float | str, means: float) -> None:
    if means < 0:
        with pytest.raises(ValueError, match="before the scenario's start"):
            seconds(written, START, 100.0)
    else:
        assert seconds(written, START, 100.0) == means


@pytest.mark.parametrize(
    "written", ["", "+", "s", "1x", "h", "-5", "day 1 25:00", "day 1", "2026-13-01", "nan"]
)
def test_nonsense_is_no_time(written: str) -> None:
    with pytest.raises(ValueError):
        seconds(written, START, 0.0)


def test_not_a_number_is_no_time() -> None:
    with pytest.raises(ValueError):
        seconds(float("nan"), START, 0.0)


@given(st.integers(0, 4 * 10**12))
def test_iso_times_are_read_back_to_the_millisecond(ms: int) -> None:
    assert epoch_ms(iso(ms)) == ms


@given(st.integers(0, 10**11))
def test_a_time_in_seconds_is_exact_to_the_millisecond(ms: int) -> None:
    assert round(seconds(ms / 1000, START, 0.0) * 1000) == ms

"""Keep a cached prefix alive or let it go: whichever is cheaper, by prices, life and the session's rhythm."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from helpers_messages import SONNET, items, says, user
from perdure.context.cache.contract import LIFE, READ_PRICE, WRITE_PRICE, Retention
from perdure.context.cache.keepalive import advise, period, usual_pause

TOKENS = 50_000


@given(
    st.integers(1_024, 900_000),
    st.sampled_from(["short", "long"]),
    st.floats(1, 200_000),
    st.integers(1, 40),
)
def test_a_prefix_is_kept_exactly_where_that_costs_less_than_writing_it_again(
    tokens: int, retention: Retention, expected: float, most: int
) -> None:
    advice = advise(tokens, SONNET, retention, expected=expected, most=most)
    price = tokens * SONNET.price_input / 1e6
    cheaper = advice.refreshes * READ_PRICE <= WRITE_PRICE[retention] - READ_PRICE + 1e-9
    assert advice.keep is (0 < advice.refreshes <= most and cheaper)
    assert advice.keep_usd == pytest.approx(price * READ_PRICE * advice.refreshes, abs=1e-8)
    assert advice.rewrite_usd == pytest.approx(price * (WRITE_PRICE[retention] - READ_PRICE), abs=1e-8)
    # So many refreshes keep it alive until then, and one fewer would not.
    assert LIFE[retention] + advice.refreshes * period(retention) >= expected
    if advice.refreshes:
        assert LIFE[retention] + (advice.refreshes - 1) * period(retention) < expected


def test_five_minutes_pay_for_eleven_refreshes_and_an_hour_for_nineteen() -> None:
    short, long = (advise(TOKENS, SONNET, life, expected=900, most=99) for life in ("short", "long"))
    assert (short.break_even, long.break_even) == (11, 19)
    assert short.until == 300 + 11 * 270


@pytest.mark.parametrize(
    ("expected", "keep", "why"),
    [
        (None, False, "nobody knows"),
        (200.0, False, "within"),
        (900.0, True, "keeping is cheaper"),
        (2_400.0, False, "more than 5"),
        (86_400.0, False, "writing it again"),
    ],
)
def test_the_reason_is_told(expected: float | None, keep: bool, why: str) -> None:
    advice = advise(TOKENS, SONNET, "short", expected=expected, most=5)
    assert advice.keep is keep
    assert why in advice.reason


def test_where_nothing_is_cached_nothing_is_kept() -> None:
    assert not advise(900, SONNET, "short", expected=900, most=9).keep
    assert not advise(TOKENS, SONNET, "none", expected=900, most=9).keep
    assert not advise(TOKENS, replace(SONNET, caching=False), "short", expected=900, most=9).keep


def test_a_rhythm_is_the_middle_of_the_latest_pauses() -> None:
    pauses = [5, 600, 610, 620, 90_000]
    view, now = [user("start", timestamp=1_000)], 1_000
    for pause in pauses:
        view.append(replace(says("ok"), timestamp=now + 1_000))
        now += 1_000 + pause * 1_000
        view.append(user("next", timestamp=now))
    assert usual_pause(items(*view)) == 610
    assert usual_pause(items(*view[:5])) is None

"""Pictures cost what each API's provider says, by their sides and never by their bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers_histories import png
from perdure.context.pictures import images
from perdure.context.pictures.pixels import Facts
from perdure.context.pictures.prices import FLAT, anthropic, google, mistral, openai, price_of, tokens
from perdure.context.tokens.estimator import Gauge, measure
from perdure.context.tokens.measure import GRAINS
from perdure.edges.models.accounting import image_tokens
from perdure.records import Image, Item, Kept, ToolResult, User

SIDES = st.integers(1, 20_000)
PRICES = [anthropic, openai, google, mistral]


@pytest.mark.parametrize(
    ("price", "sides", "wanted"),
    [
        (anthropic, (1000, 750), 1000),
        (anthropic, (8000, 8000), 1600),
        (openai, (512, 512), 255),
        (openai, (1024, 1024), 765),
        (openai, (2048, 4096), 1105),
        (google, (384, 384), 258),
        (google, (960, 540), 1548),
        (google, (1536, 1536), 1032),
        (mistral, (1024, 1024), 1406),
    ],
)
def test_the_providers_own_examples_come_out(price, sides, wanted) -> None:  # type: ignore[no-untyped-def]
    assert price(*sides) == wanted


@given(SIDES, SIDES)
def test_no_picture_is_free_and_none_without_bound(width: int, height: int) -> None:
    for price in PRICES:
        assert 1 <= price(width, height) <= 258 * 144


def test_sides_that_nobody_knows_cost_the_flat_price() -> None:
    assert [tokens(Facts("image/png"), price) for price in PRICES] == [FLAT] * 4


def test_the_price_follows_the_api_of_the_session_and_a_switch_changes_it() -> None:
    shot, gauge = Item("e", User((Image(png(960, 540), "image/png"),))), Gauge()
    sizes = []
    for api in ("anthropic-messages", "google-generative-ai", "openai-responses", "anthropic-messages"):
        gauge.charge(api)
        sizes.append(gauge.measure(shot).images)
    assert sizes[1] - sizes[0] == GRAINS * (1548 - 691)
    assert sizes[2] < sizes[1]
    assert sizes[3] == sizes[0]
    assert price_of("something-new") is anthropic


def test_a_kept_picture_measures_the_same_with_and_without_its_bytes() -> None:
    whole = Image(png(960, 540), "image/png")
    kept = Image("", "image/png", Kept("0" * 64, 960, 540, images.size_of(whole)))
    for wrap in (lambda b: User((b,)), lambda b: ToolResult("c", "shot", (b,))):
        assert measure(wrap(whole)) == measure(wrap(kept))
    assert images.notice("x", whole) == images.notice("x", kept)


@given(SIDES, SIDES)
def test_the_scripted_provider_charges_the_same_as_we_expect(width: int, height: int) -> None:
    source = {"type": "base64", "media_type": "image/png", "data": png(width, height)}
    assert image_tokens({"type": "image", "source": source}) == anthropic(width, height)

"""Names of models find what we know of them, and the table keeps up with the SDK."""

from __future__ import annotations

from typing import get_args

import pytest

from perdure.edges.models.catalog import NEWEST_SONNET, default_ref, known, nearest, resolve
from perdure.edges.models.factories import default_factories
from perdure.errors import ConfigError
from perdure.kernel.clock import RealClock


@pytest.mark.parametrize(
    ("ref", "provider", "ident", "window"),
    [
        ("anthropic/claude-sonnet-4-5", "anthropic", "claude-sonnet-4-5", 200_000),
        ("claude-sonnet-4-5-20250929", "anthropic", "claude-sonnet-4-5-20250929", 200_000),
        ("claude-sonnet-4-0", "anthropic", "claude-sonnet-4-0", 200_000),
        ("claude-3-5-haiku-latest", "anthropic", "claude-3-5-haiku-latest", 200_000),
        ("anthropic/claude-opus-5-5", "anthropic", "claude-opus-5-5", 1_000_000),
        ("scripted", "scripted", "scripted", 200_000),
        ("scripted/summariser", "scripted", "summariser", 200_000),
    ],
)
def test_a_reference_finds_its_model(ref: str, provider: str, ident: str, window: int) -> None:
    info = resolve(ref)
    assert (info.provider, info.id, info.window) == (provider, ident, window)


@pytest.mark.parametrize("ref", ["", "gpt-5", "openai/gpt-5", "claude", "scripted/", "anthropic/"])
def test_an_unknown_reference_is_answered_with_the_nearest_ones(ref: str) -> None:
    with pytest.raises(ConfigError, match=r"nearest are .*anthropic/claude-") as caught:
        resolve(ref)
    assert repr(ref) in str(caught.value)
    assert len(str(caught.value)) < 250


def test_the_nearest_reference_is_what_was_meant() -> None:
    assert nearest("anthropic/claude-sonet-4-5")[0] == "anthropic/claude-sonnet-4-5"
    assert nearest("claude-opus-45")[0] == "anthropic/claude-opus-4-5"
    assert nearest("Scripted-")[0] == "scripted"
    assert [len(nearest(ref)) for ref in ("", "?", "a/b/c")] == [3, 3, 3]


def test_every_known_reference_resolves_to_sane_numbers() -> None:
    for ref in known():
        info = resolve(ref)
        assert info.ref == ref
        assert 0 < info.max_output < info.window
        assert 0 < info.price_input < info.price_output


def test_the_table_knows_every_model_that_the_sdk_names_and_its_newest_sonnet() -> None:
    from anthropic.types import ModelParam

    named = [name for part in get_args(ModelParam) for name in get_args(part)]
    assert len(named) > 10
    for name in named:
        assert resolve(name).id == name
    assert next(name for name in named if "sonnet" in name) == NEWEST_SONNET  # listed newest first


@pytest.mark.parametrize(
    ("environ", "ref"),
    [
        ({}, "scripted"),
        ({"ANTHROPIC_API_KEY": " "}, "scripted"),
        ({"ANTHROPIC_API_KEY": "k"}, f"anthropic/{NEWEST_SONNET}"),
        ({"ANTHROPIC_AUTH_TOKEN": "t"}, f"anthropic/{NEWEST_SONNET}"),
    ],
)
def test_the_default_is_scripted_unless_a_key_is_set(environ: dict[str, str], ref: str) -> None:
    assert default_ref(environ) == ref


def test_factories_make_a_model_for_every_provider_of_the_catalogue() -> None:
    factories = default_factories(RealClock())
    for ref in ("scripted", *known()):
        info = resolve(ref)
        assert factories[info.provider](info).info == info

"""Names of models find what we know of them, and the table keeps up with the SDK."""

from __future__ import annotations

from typing import get_args

import pytest

from perdure.context.wire import RENDERERS
from perdure.edges.models.catalog import NEWEST_SONNET, default_ref, known, nearest, resolve
from perdure.edges.models.factories import default_factories
from perdure.edges.models.vendors import CHAT
from perdure.edges.settings import ListedModel, ProviderSettings
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
        ("openai/gpt-4.1", "openai", "gpt-4.1", 1_047_576),
        ("gpt-4.1-2025-04-14", "openai", "gpt-4.1-2025-04-14", 1_047_576),
        ("gpt-5", "openai", "gpt-5", 272_000),
        ("openai/gpt-5.6-sol", "openai", "gpt-5.6-sol", 922_000),
        ("mistral/mistral-large-latest", "mistral", "mistral-large-latest", 262_144),
        ("openrouter/anthropic/claude-sonnet-4.5", "openrouter", "anthropic/claude-sonnet-4.5", 32_768),
        ("ollama/qwen3:8b", "ollama", "qwen3:8b", 32_768),
        ("scripted", "scripted", "scripted", 200_000),
        ("scripted/summariser", "scripted", "summariser", 200_000),
    ],
)
def test_a_reference_finds_its_model(ref: str, provider: str, ident: str, window: int) -> None:
    info = resolve(ref)
    assert (info.provider, info.id, info.window) == (provider, ident, window)


@pytest.mark.parametrize(
    "ref", ["", "gpt-x", "openai/gpt-3", "openai/", "acme/one", "claude", "scripted/", "anthropic/"]
)
def test_an_unknown_reference_is_answered_with_the_nearest_ones(ref: str) -> None:
    with pytest.raises(ConfigError, match=r"nearest are .*(anthropic/claude-|openai/gpt-)") as caught:
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
        assert info.api in RENDERERS
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


SERVER = ProviderSettings(
    "box",
    "http://10.0.0.5:8000/v1",
    window=64_000,
    max_output=4_000,
    models=(ListedModel("qwen/qwen3", window=128_000, images=True, thinking=True, price_input=0.5),),
)


def test_a_configured_server_says_what_its_models_can() -> None:
    plain, named = resolve("box/any", [SERVER]), resolve("box/qwen/qwen3", [SERVER])
    assert (plain.api, plain.window, plain.max_output, plain.images) == (CHAT, 64_000, 4_000, False)
    assert (named.id, named.window, named.max_output, named.images) == ("qwen/qwen3", 128_000, 4_000, True)
    assert (named.thinking, named.price_input, named.price_output) == ("adaptive", 0.5, 0.0)
    with pytest.raises(ConfigError):
        resolve("box/any")


def test_the_configuration_adds_a_model_to_a_listed_provider_and_changes_its_api() -> None:
    told = ProviderSettings("openai", api=CHAT, models=(ListedModel("gpt-9", window=2_000_000),))
    assert (resolve("openai/gpt-9", [told]).window, resolve("openai/gpt-4o", [told]).api) == (2_000_000, CHAT)
    with pytest.raises(ConfigError, match=r"\[models\.providers\.openai\.models"):
        resolve("openai/gpt-10", [told])


def test_what_is_no_base_url_is_told_with_the_variable_that_holds_it() -> None:
    for url in (
        "api.openai.com/v1",
        "ftp://x/v1",
        "http://",
        "http://a b",
        "http://x:99999",
        "http://x/?a=1",
    ):
        for name, info in (
            ("OPENAI", resolve("openai/gpt-4.1")),
            ("ANTHROPIC", resolve("claude-sonnet-4-5")),
        ):
            environ = {f"{name}_BASE_URL": url, f"{name}_API_KEY": "k"}
            with pytest.raises(ConfigError, match=f"{name}_BASE_URL: .*such as http"):
                default_factories(RealClock(), environ=environ)[info.provider](info)


def test_factories_make_a_model_for_every_provider_of_the_catalogue() -> None:
    factories = default_factories(RealClock())
    for ref in ("scripted", *known()):
        info = resolve(ref)
        assert factories[info.provider](info).info == info

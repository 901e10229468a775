"""The models we know by name, as data, and how a reference in a command or setting finds one.

Windows, output limits and prices: the providers' model overview pages (2026-11). Where a provider
limits the prompt below its whole window (OpenAI's from gpt-5 on), the prompt's limit is the window here.
A server that isn't listed may serve any model: of those only the configuration knows the window.
Smallest cacheable prefix: its prompt caching page, read through secondary sources; where those disagree
the larger figure was taken, as for the newest models, which no source names. Haiku 5.5 is priced by
tier ("from"), OpenAI's newer models by the lower of two tiers.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec.structs import replace

from perdure.edges.models.vendors import Vendor, vendor_of
from perdure.edges.settings import ListedModel, ProviderSettings
from perdure.errors import ConfigError
from perdure.records import ModelInfo

K, M = 1000, 1_000_000
NEWEST_SONNET = "claude-sonnet-5-5"
DATE = re.compile(r"(-\d{8}|-latest)\Z")
KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")
SCRIPTED = ModelInfo("scripted", "scripted", thinking="adaptive")

_Thinking = Literal["none", "enabled", "adaptive"]
# id: (window, output limit, smallest cached prefix, thinking, USD per million tokens in, out)
_TABLE: dict[str, tuple[int, int, int, _Thinking, float, float]] = {
    "claude-fable-5-2": (M, 128 * K, 512, "adaptive", 8, 40),
    "claude-mythos-5-2": (M, 128 * K, 512, "adaptive", 8, 40),
    "claude-opus-5-5": (M, 128 * K, 1024, "adaptive", 4, 20),
    "claude-sonnet-5-5": (M, 128 * K, 1024, "adaptive", 2, 10),
    "claude-haiku-5-5": (M, 128 * K, 4096, "adaptive", 0.1, 0.5),
    "claude-fable-5-1": (M, 128 * K, 512, "adaptive", 10, 50),
    "claude-mythos-5-1": (M, 128 * K, 512, "adaptive", 10, 50),
    "claude-fable-5": (M, 128 * K, 512, "adaptive", 10, 50),
    "claude-mythos-5": (M, 128 * K, 512, "adaptive", 10, 50),
    "claude-mythos-preview": (M, 128 * K, 4096, "adaptive", 25, 125),
    "claude-opus-5": (M, 128 * K, 512, "adaptive", 5, 25),
    "claude-sonnet-5": (M, 128 * K, 1024, "adaptive", 2, 10),
    "claude-opus-4-8": (M, 128 * K, 1024, "adaptive", 5, 25),
    "claude-opus-4-7": (M, 128 * K, 4096, "adaptive", 5, 25),
    "claude-opus-4-6": (M, 128 * K, 4096, "adaptive", 5, 25),
    "claude-sonnet-4-6": (M, 64 * K, 2048, "adaptive", 3, 15),
    "claude-opus-4-5": (200 * K, 64 * K, 4096, "enabled", 5, 25),
    "claude-sonnet-4-5": (200 * K, 64 * K, 1024, "enabled", 3, 15),
    "claude-haiku-4-5": (200 * K, 64 * K, 4096, "enabled", 1, 5),
    "claude-opus-4-1": (200 * K, 32 * K, 1024, "enabled", 15, 75),
    "claude-opus-4": (200 * K, 32 * K, 1024, "enabled", 15, 75),
    "claude-sonnet-4": (200 * K, 64 * K, 1024, "enabled", 3, 15),
    "claude-3-7-sonnet": (200 * K, 64 * K, 1024, "enabled", 3, 15),
    "claude-3-5-sonnet": (200 * K, 8192, 1024, "none", 3, 15),
    "claude-3-5-haiku": (200 * K, 8192, 2048, "none", 0.8, 4),
    "claude-3-opus": (200 * K, 4096, 1024, "none", 15, 75),
    "claude-3-haiku": (200 * K, 4096, 2048, "none", 0.25, 1.25),
}


# OpenAI's: id: (largest prompt, output limit, thinks, USD per million tokens in, out)
_OPENAI: dict[str, tuple[int, int, bool, float, float]] = {
    "gpt-6.1-sol": (922 * K, 128 * K, True, 2, 10),
    "gpt-6.1-terra": (922 * K, 128 * K, True, 1, 5),
    "gpt-6-astra": (922 * K, 128 * K, True, 10, 50),
    "gpt-6-sol": (922 * K, 128 * K, True, 2, 10),
    "gpt-6-luna": (922 * K, 128 * K, True, 0.1, 0.5),
    "gpt-5.6-sol": (922 * K, 128 * K, True, 4, 20),
    "gpt-5.6-terra": (922 * K, 128 * K, True, 2, 12),
    "gpt-5.6-luna": (922 * K, 128 * K, True, 0.2, 1.2),
    "gpt-5.5": (922 * K, 128 * K, True, 5, 30),
    "gpt-5.4": (922 * K, 128 * K, True, 2.5, 15),
    "gpt-5.4-mini": (272 * K, 128 * K, True, 0.75, 4.5),
    "gpt-5.4-nano": (272 * K, 128 * K, True, 0.2, 1.25),
    "gpt-5.2": (272 * K, 128 * K, True, 1.75, 14),
    "gpt-5.1": (272 * K, 128 * K, True, 1.25, 10),
    "gpt-5.1-codex": (272 * K, 128 * K, True, 1.25, 10),
    "gpt-5": (272 * K, 128 * K, True, 1.25, 10),
    "gpt-5-mini": (272 * K, 128 * K, True, 0.25, 2),
    "gpt-5-nano": (272 * K, 128 * K, True, 0.05, 0.4),
    "gpt-4.1": (1_047_576, 32_768, False, 2, 8),
    "gpt-4.1-mini": (1_047_576, 32_768, False, 0.4, 1.6),
    "gpt-4.1-nano": (1_047_576, 32_768, False, 0.1, 0.4),
    "gpt-4o": (128 * K, 16_384, False, 2.5, 10),
    "gpt-4o-mini": (128 * K, 16_384, False, 0.15, 0.6),
    "o4-mini": (200 * K, 100 * K, True, 1.1, 4.4),
    "o3": (200 * K, 100 * K, True, 2, 8),
}
# Of servers that take any model: reference: (window, output limit, thinks, images, USD in, out)
_SERVED: dict[str, tuple[int, int, bool, bool, float, float]] = {
    "mistral/mistral-large-latest": (262_144, 32 * K, False, True, 0.5, 1.5),
    "mistral/mistral-medium-latest": (262_144, 32 * K, False, True, 1.5, 7.5),
    "mistral/mistral-small-latest": (262_144, 32 * K, False, True, 0.15, 0.6),
    "mistral/devstral-2512": (262_144, 32 * K, False, False, 0.4, 2),
    "mistral/codestral-2508": (256 * K, 32 * K, False, False, 0.3, 0.9),
    "deepseek/deepseek-v4-pro": (M, 64 * K, True, False, 1.32, 3.96),
    "deepseek/deepseek-v4-flash": (M, 64 * K, True, False, 0.3, 1.2),
}
_DATED = re.compile(r"(-\d{4}-\d\d-\d\d|-\d{8}|-latest)\Z")
UNKNOWN_WINDOW, UNKNOWN_OUTPUT = 32_768, 8_192


def resolve(ref: str, providers: Sequence[ProviderSettings] = ()) -> ModelInfo:
    """The model of `provider/id`, of a bare id (dated ones too), or `scripted[/name]`.

    `providers` are those of the configuration. A model that only its server knows gets the window that
    the configuration says, else 32,768 tokens. Raises `ConfigError` with the nearest names.
    """
    text = ref.strip()
    provider, _, name = text.partition("/")
    if text == "scripted":
        return SCRIPTED
    if provider == "scripted" and name:
        return replace(SCRIPTED, id=name)
    if "/" not in text:
        provider, name = "openai" if _of_openai(text) else "anthropic", text
    vendor = vendor_of(provider, providers)
    told = next((each for each in providers if each.name == provider), ProviderSettings(provider))
    info = _found(vendor, name, told) if vendor is not None and name else None
    if info is None:
        raise ConfigError(_unknown(ref, vendor))
    return _as_told(info, told)


def _unknown(ref: str, vendor: Vendor | None) -> str:
    name = ref.strip().partition("/")[2]
    near = f"unknown model {ref!r}: nearest are {', '.join(nearest(ref))}"
    if vendor is not None and vendor.listed and name:
        return f'{near}; if there is one, tell of it in [models.providers.{vendor.name}.models."{name}"]'[
            :240
        ]
    return f"{near} (`perdure config check --json` lists all)"


def _found(vendor: Vendor | None, name: str, told: ProviderSettings) -> ModelInfo | None:
    assert vendor is not None
    if vendor.name == "anthropic":
        found = _anthropic(name)
    elif vendor.name == "openai":
        found = _openai(name)
    else:
        found = _served(vendor, name)
    if found is None and (not vendor.listed or any(model.name == name for model in told.models)):
        found = _bare(vendor.name, name)
    return None if found is None else replace(found, api=vendor.api)


def _anthropic(name: str) -> ModelInfo | None:
    family = DATE.sub("", name)
    row = _TABLE.get(family) or _TABLE.get(re.sub(r"-0\Z", "", family))
    if row is None:
        return None
    window, output, minimum, thinking, price_in, price_out = row
    return ModelInfo(
        "anthropic",
        name,
        window=window,
        max_output=output,
        cache_minimum=minimum,
        thinking=thinking,
        price_input=price_in,
        price_output=price_out,
    )


def _of_openai(name: str) -> bool:
    return _DATED.sub("", name) in _OPENAI


def _openai(name: str) -> ModelInfo | None:
    row = _OPENAI.get(_DATED.sub("", name))
    if row is None:
        return None
    window, output, thinks, price_in, price_out = row
    return ModelInfo(
        "openai",
        name,
        window=window,
        max_output=output,
        thinking="adaptive" if thinks else "none",
        price_input=price_in,
        price_output=price_out,
    )


def _served(vendor: Vendor, name: str) -> ModelInfo | None:
    row = _SERVED.get(f"{vendor.name}/{name}")
    if row is None:
        return None
    window, output, thinks, images, price_in, price_out = row
    return replace(
        _bare(vendor.name, name),
        window=window,
        max_output=output,
        thinking="adaptive" if thinks else "none",
        images=images,
        price_input=price_in,
        price_output=price_out,
    )


def _bare(provider: str, name: str) -> ModelInfo:
    """A model of which only its server knows more: what any takes."""
    return ModelInfo(
        provider,
        name,
        window=UNKNOWN_WINDOW,
        max_output=UNKNOWN_OUTPUT,
        images=False,
        price_input=0.0,
        price_output=0.0,
    )


def _as_told(info: ModelInfo, told: ProviderSettings) -> ModelInfo:
    """What the configuration says of the provider, then of the model."""
    layers: list[ProviderSettings | ListedModel] = [told]
    layers += [model for model in told.models if model.name == info.id]
    for layer in layers:
        window = layer.window or info.window
        thinks = info.thinking != "none" if layer.thinking is None else layer.thinking
        info = replace(
            info,
            window=window,
            max_output=layer.max_output or min(info.max_output, window),
            images=info.images if layer.images is None else layer.images,
            thinking=(info.thinking if info.thinking != "none" else "adaptive") if thinks else "none",
            price_input=info.price_input if layer.price_input is None else layer.price_input,
            price_output=info.price_output if layer.price_output is None else layer.price_output,
        )
    return info


def known() -> list[str]:
    """Every reference of the table, the newest generation first."""
    return [*(f"anthropic/{n}" for n in _TABLE), *(f"openai/{n}" for n in _OPENAI), *_SERVED]


def nearest(ref: str) -> list[str]:
    """The three references that a wrong one may have meant; the newest where it is like none."""
    names = {name.rpartition("/")[2]: name for name in ("scripted", *known())}
    asked = DATE.sub("", ref.strip().lower().rpartition("/")[2])
    found = difflib.get_close_matches(asked, names, n=3, cutoff=0.5)
    likely = (*found, "scripted", NEWEST_SONNET, *names)
    return [names[name] for name in dict.fromkeys(likely)][:3]


def default_ref(environ: Mapping[str, str]) -> str:
    """The model to use where none is configured: scripted, or the newest Sonnet where a key is set."""
    if any(environ.get(name, "").strip() for name in KEYS):
        return f"anthropic/{NEWEST_SONNET}"
    return "scripted"

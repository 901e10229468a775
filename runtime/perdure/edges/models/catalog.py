"""The models we know by name, as data, and how a reference in a command or setting finds one.

Windows, output limits and prices: the provider's model overview pages (2026-11). Smallest cacheable
prefix: its prompt caching page, read through secondary sources where those disagree the larger figure
was taken, as for the newest models, which no source names. Haiku 5.5 is priced by tier ("from").
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Literal

from msgspec.structs import replace

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


def resolve(ref: str) -> ModelInfo:
    """The model of `provider/id`, of a bare id (dated ones too), or `scripted[/name]`.

    Raises `ConfigError` with the nearest names.
    """
    provider, _, name = ref.strip().rpartition("/")
    if ref.strip() == "scripted":
        return SCRIPTED
    if provider == "scripted" and name:
        return replace(SCRIPTED, id=name)
    family = DATE.sub("", name)
    row = _TABLE.get(family) or _TABLE.get(re.sub(r"-0\Z", "", family))
    if provider not in ("", "anthropic") or row is None:
        raise ConfigError(
            f"unknown model {ref!r}: nearest are {', '.join(nearest(ref))} (`perdure config check --json` "
            "lists all)"
        )
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


def known() -> list[str]:
    """Every reference of the table, the newest generation first."""
    return [f"anthropic/{name}" for name in _TABLE]


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

"""Which provider's models are made by what: the vendors this runtime speaks to, and the scripted one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from perdure.contracts import Model
from perdure.edges.models.accounting import Accounting
from perdure.edges.models.anthropic import AnthropicModel
from perdure.edges.models.openai import OpenAIModel
from perdure.edges.models.scripted import Pace, ScriptedModel
from perdure.edges.models.sources import demo_source
from perdure.edges.models.vendors import (
    BEDROCK,
    GOOGLE,
    MESSAGES,
    VENDORS,
    Vendor,
    base_url,
    key_of,
    speaks,
    vendor_of,
)
from perdure.edges.settings import ProviderSettings
from perdure.errors import ConfigError
from perdure.records import ModelInfo

Factory = Callable[[ModelInfo], Model]


def default_factories(
    clock: Pace, providers: Sequence[ProviderSettings] = (), environ: Mapping[str, str] | None = None
) -> dict[str, Factory]:
    """By provider. Vendor SDKs are imported when their first model is called, not here.

    `providers` are those of the configuration, `environ` is where keys and addresses stand.
    """
    accounting = Accounting()
    found: dict[str, Factory] = {
        "scripted": lambda info: ScriptedModel(
            info, demo_source, clock, accounting=accounting, embedded=True
        ),
    }
    for name in (*VENDORS, *(each.name for each in providers)):
        vendor = vendor_of(name, providers)
        if vendor is not None and vendor.api not in (GOOGLE, BEDROCK):
            found[name] = _factory(vendor, clock, environ or {})
    return found


def _factory(vendor: Vendor, clock: Pace, environ: Mapping[str, str]) -> Factory:
    def make(info: ModelInfo) -> Model:
        """Raises `ConfigError` for an address that is none."""
        if info.api == MESSAGES:
            key = key_of(vendor, environ) or (None if vendor.name == "anthropic" else KEYLESS)
            # Without a key the SDK would look for Anthropic's, which is nobody else's business.
            return AnthropicModel(info, api_key=key, base_url=base_url(vendor, environ) or None, clock=clock)
        if not speaks(info):
            raise ConfigError(f"model {info.ref}: nothing here speaks {info.api}")
        return OpenAIModel(
            info,
            api_key=key_of(vendor, environ) or (KEYLESS if vendor.keyless else ""),
            base_url=base_url(vendor, environ),
            key_env=vendor.key_env,
            clock=clock,
        )

    return make


KEYLESS = "none"  # the SDK wants some key; a server of one's own looks at none

"""Who serves models, as data: the API each speaks, where it listens, which variable holds its key.

`[models.providers.<name>]` changes a row or adds one. Addresses: the vendors' API references (2026-11);
local servers: the ports they listen on unless told otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from perdure.edges.settings import ProviderSettings
from perdure.errors import ConfigError
from perdure.records import ModelInfo, Record

CHAT, RESPONSES, MESSAGES = "openai-completions", "openai-responses", "anthropic-messages"


class Vendor(Record):
    """One provider. `key_env` "": needs no key. `listed`: only models of the catalogue are taken."""

    name: str
    api: str = CHAT
    base_url: str = ""
    key_env: str = ""
    listed: bool = False
    keyless: bool = False


VENDORS: dict[str, Vendor] = {
    vendor.name: vendor
    for vendor in (
        Vendor("anthropic", MESSAGES, "", "ANTHROPIC_API_KEY", listed=True),
        Vendor("openai", RESPONSES, "https://api.openai.com/v1", "OPENAI_API_KEY", listed=True),
        Vendor("mistral", CHAT, "https://api.mistral.ai/v1", "MISTRAL_API_KEY"),
        Vendor("openrouter", CHAT, "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
        Vendor("deepseek", CHAT, "https://api.deepseek.com/v1", "DEEPSEEK_API_KEY"),
        Vendor("groq", CHAT, "https://api.groq.com/openai/v1", "GROQ_API_KEY"),
        Vendor("xai", CHAT, "https://api.x.ai/v1", "XAI_API_KEY"),
        Vendor("ollama", CHAT, "http://127.0.0.1:11434/v1", "OLLAMA_API_KEY", keyless=True),
        Vendor("lmstudio", CHAT, "http://127.0.0.1:1234/v1", "LMSTUDIO_API_KEY", keyless=True),
        Vendor("vllm", CHAT, "http://127.0.0.1:8000/v1", "VLLM_API_KEY", keyless=True),
        Vendor("llamacpp", CHAT, "http://127.0.0.1:8080/v1", "LLAMACPP_API_KEY", keyless=True),
    )
}


def vendor_of(provider: str, told: Iterable[ProviderSettings] = ()) -> Vendor | None:
    """A provider's row with what the configuration says of it; None for a name nobody knows.

    A configured server needs no key unless its key's variable is named.
    """
    row = VENDORS.get(provider)
    mine = next((each for each in told if each.name == provider), None)
    if mine is None:
        return row
    default = _variable(provider, "API_KEY")
    base = row or Vendor(provider, key_env=default, keyless=True)
    return Vendor(
        provider,
        mine.api or base.api,
        mine.base_url or base.base_url,
        mine.key_env or base.key_env,
        base.listed,
        base.keyless and not mine.key_env,
    )


def base_url(vendor: Vendor, environ: Mapping[str, str]) -> str:
    """Where its API is: `<NAME>_BASE_URL` of the environment, else the row's; "" leaves it to the SDK.

    Raises `ConfigError` for what is no address.
    """
    variable = _variable(vendor.name, "BASE_URL")
    told = environ.get(variable, "").strip()
    if told:
        return checked(told, variable)
    return checked(vendor.base_url, f"models.providers.{vendor.name}.base_url") if vendor.base_url else ""


def checked(url: str, where: str) -> str:
    """The address without a slash at its end, or `ConfigError`."""
    problem = wrong(url)
    if problem:
        raise ConfigError(f"{where}: {url!r} {problem}: give one such as http://127.0.0.1:8000/v1")
    return url.strip().rstrip("/")


def wrong(url: str) -> str:
    """Why a text is no base URL; empty where it is one."""
    text = url.strip()
    if not text.isascii() or not text.isprintable() or " " in text:
        return "holds a character that no address has"
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        return f"is no address ({error})"
    if parts.scheme not in ("http", "https"):
        return "does not begin with http:// or https://"
    if not parts.hostname or port == 0:
        return "names no host"
    return "has a query, which a base URL can't have" if parts.query or parts.fragment else ""


def key_of(vendor: Vendor, environ: Mapping[str, str]) -> str:
    """The key of the environment; "" where there is none."""
    return environ.get(vendor.key_env, "").strip() if vendor.key_env else ""


def speaks(info: ModelInfo) -> bool:
    """Whether a model speaks an API of the OpenAI family."""
    return info.api in (CHAT, RESPONSES)


def _variable(provider: str, suffix: str) -> str:
    return f"{re.sub(r'[^A-Z0-9]', '_', provider.upper())}_{suffix}"

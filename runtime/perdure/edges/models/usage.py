"""Usage as OpenAI's APIs report it, in our terms: what the cache served or took is not input."""

from __future__ import annotations

from typing import Any

from perdure.context.cache.contract import READ_PRICE
from perdure.edges.models.accounting import WRITE_PRICE
from perdure.records import ModelInfo, Usage

MOST = 10**12
"""Tokens of one call; more is a server's mistake, and couldn't be added up or priced."""


def usage_of(info: ModelInfo, told: Any) -> Usage | None:
    """From Chat's `usage` or Responses'; None where the server reported none.

    Prices are the catalogue's; a cached token costs a tenth, a written one a quarter more.
    """
    if not isinstance(told, dict):
        return None
    prompt = _first(told, "prompt_tokens", "input_tokens")
    output = _first(told, "completion_tokens", "output_tokens")
    details = told.get("prompt_tokens_details") or told.get("input_tokens_details")
    hits = _first(details, "cached_tokens") or _first(told, "prompt_cache_hit_tokens")  # DeepSeek's name
    read = min(hits, prompt)
    write = min(_first(details, "cache_write_tokens"), prompt - read)
    plain = prompt - read - write
    weighed = plain + READ_PRICE * read + WRITE_PRICE["5m"] * write
    cost = (weighed * info.price_input + output * info.price_output) / 1e6
    return Usage(plain, output, read, write, round(cost, 10))


def _first(told: Any, *names: str) -> int:
    for name in names:
        value = told.get(name) if isinstance(told, dict) else None
        if count := tokens_of(value):
            return count
    return 0


def tokens_of(value: Any) -> int:
    """A count as a server told it; 0 for what is none: a text, a fraction, below 0, or past all windows."""
    return value if type(value) is int and 0 < value <= MOST else 0

"""What servers of the OpenAI family take and refuse beyond the shape they share, as data.

Rows follow the servers' API references (2026-11); who is not listed gets what all of them take.
"""

from __future__ import annotations

import re
from typing import Literal

from msgspec.structs import replace

from perdure.context.policy import is_mistral
from perdure.records import ModelInfo, Record


class Compat(Record):
    """`developer`: the system prompt's role on reasoning models. `completion_tokens`: the answer's limit
    is `max_completion_tokens`, not `max_tokens`. `usage`: usage in a stream must be asked for.
    `cache_key`: requests of one session say so. `bridge`: a user may not speak directly behind results.
    `effort`: how a level of thinking is asked for. `stand_ins`: tools of the history must be named.
    `marks`: cache marks as Anthropic has them.
    """

    developer: bool = False
    completion_tokens: bool = False
    usage: bool = True
    cache_key: bool = False
    bridge: bool = False
    effort: Literal["", "reasoning_effort", "reasoning"] = ""
    stand_ins: bool = False
    marks: bool = False


_OPENAI = Compat(developer=True, completion_tokens=True, cache_key=True, effort="reasoning_effort")
_BY_PROVIDER: dict[str, Compat] = {
    "openai": _OPENAI,
    "azure-openai": _OPENAI,
    "openrouter": Compat(effort="reasoning"),
    "groq": Compat(completion_tokens=True),
    "ollama": Compat(effort="reasoning_effort"),
    "mistral": Compat(usage=False),
}
_LONG_LIVED = re.compile(r"gpt-(4\.1|[5-9])")
_PLAIN_GPT5 = re.compile(r"gpt-5(-mini|-nano|-pro)?(-20\d\d-\d\d-\d\d)?\Z")


def compat_for(model: ModelInfo) -> Compat:
    """The row of a model's provider, and what its model brings with it."""
    provider = model.provider.strip().lower()
    found = _BY_PROVIDER.get(provider, Compat())
    if is_mistral(model):
        found = replace(found, bridge=True)
    if provider not in ("openai", "azure-openai") and "claude" in model.id.lower():
        found = replace(found, stand_ins=True, marks=provider == "openrouter" and model.caching)
    return found


def effort(model: ModelInfo, level: str) -> str:
    """OpenAI's word for a level of thinking (off, minimal, low, medium, high, xhigh); the nearest one that
    the model takes.
    """
    name = model.id.lower()
    newer = name.startswith(("gpt-5.", "gpt-6"))
    if level in ("low", "medium", "high"):
        return level
    if level == "xhigh":
        return "xhigh" if newer else "high"
    if newer and "codex" not in name:
        return "none" if level == "off" else "low"
    return "minimal" if _PLAIN_GPT5.match(name) and "-pro" not in name else "low"


def long_lived(model: ModelInfo) -> bool:
    """Whether the model's prompt cache can be kept for a day."""
    return model.provider == "openai" and _LONG_LIVED.match(model.id) is not None

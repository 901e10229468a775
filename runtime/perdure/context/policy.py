"""What a provider's API demands of a transcript: one table by provider and API, as data.

The rows are those of the reference's transcript policy; a provider that is not listed is judged by
the API it speaks. The Anthropic rows also carry what its validation refuses (tool names, images).
"""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

from msgspec.structs import replace

from perdure.records import ModelInfo, Record

IdMode: TypeAlias = Literal["none", "strict", "strict9"]


class ImageRules(Record):
    """Limits of one request on images; sizes in bytes of the picture and pixels of its longer side."""

    media: tuple[str, ...] = ("image/jpeg", "image/png", "image/gif", "image/webp")
    max_bytes: int = 5 * 1024 * 1024
    max_side: int = 8000
    most: int = 100
    many: int = 20
    max_side_many: int = 2000
    keep_of_many: int = 12  # the floor moves in jumps, so that not every new image breaks the cache


class TranscriptPolicy(Record):
    """How a history is prepared for one model.

    `ids`: alphabet of tool call ids; `native_ids` keeps `toolu_…` ids as they are. `merge_users` and
    `merge_assistants`: consecutive turns of one role become one. `drop_thinking`: only the open tool
    loop keeps its thinking. `wire_names`: tool names hold letters, digits, `_` and `-` only.
    `reasoning_field`: the field of a Chat Completions message in which the open tool loop's reasoning
    goes back to servers that ask for it; empty for all others. Ids of mode `none` stay as they are
    unless no API would take them.
    """

    full: bool = False
    ids: IdMode = "none"
    native_ids: bool = False
    pairing: bool = True
    keep_signatures: bool = False
    base64_signatures: bool = False
    drop_thinking: bool = False
    first_user: bool = False
    merge_assistants: bool = False
    merge_users: bool = False
    synthesise: bool = False
    wire_names: bool = False
    reasoning_field: str = ""
    images: ImageRules = ImageRules()


_ANTHROPIC = TranscriptPolicy(
    full=True, ids="strict", keep_signatures=True, merge_users=True, synthesise=True, wire_names=True
)
_NATIVE = replace(_ANTHROPIC, native_ids=True)
_PLAIN = TranscriptPolicy()
_STRICT = replace(_PLAIN, ids="strict")
_ORDERED = replace(_STRICT, first_user=True, merge_assistants=True, merge_users=True)
_GOOGLE = replace(
    _STRICT, full=True, base64_signatures=True, first_user=True, merge_assistants=True, synthesise=True
)

_BY_API: dict[str, TranscriptPolicy] = {
    "anthropic-messages": _ANTHROPIC,
    "bedrock-converse-stream": _ANTHROPIC,
    "google-generative-ai": _GOOGLE,
    "google-gemini-cli": _GOOGLE,
    "google-vertex": _GOOGLE,
    "openai-completions": _ORDERED,
    "openai-responses": _STRICT,
    "openai-codex-responses": _STRICT,
    "azure-openai-responses": _STRICT,
}
_BY_PROVIDER: dict[str, TranscriptPolicy] = {
    "anthropic": _NATIVE,
    "anthropic-vertex": _NATIVE,
    "amazon-bedrock": _ANTHROPIC,
    "google": _GOOGLE,
    "google-gemini-cli": _GOOGLE,
    "mistral": replace(_PLAIN, ids="strict9"),
    "github-copilot": _PLAIN,
    "kimi-coding": _PLAIN,
    "openrouter": _PLAIN,
    "kilocode": _PLAIN,
    "opencode": _PLAIN,
    "opencode-go": _PLAIN,
}
_ROUTERS = frozenset({"openrouter", "kilocode", "opencode", "opencode-go"})
_OPENAI = frozenset({"openai", "openai-codex"})
_DROPPING = frozenset({"anthropic", "anthropic-vertex", "amazon-bedrock", "minimax", "minimax-portal"})
# Servers whose models want the reasoning of a tool loop back (their API references, 2026-11).
_REASONING_BACK = frozenset({"deepseek", "moonshot", "moonshotai", "kimi", "zai"})
# Mistral's own request checks (mistral-common) come with its models wherever they are served.
_MISTRAL = re.compile(r"mistral|ministral|mixtral|codestral|devstral|pixtral|magistral|voxtral")

# Claude models that read the thinking of earlier turns: taking it out would only break their cache.
_PRESERVING = re.compile(r"opus-4|sonnet-4|haiku-4|claude-(?:opus-|sonnet-|haiku-)?(?:[5-9]|\d{2,})")


def policy_for(model: ModelInfo) -> TranscriptPolicy:
    """The policy of a model: its provider's row, else that of its API, else the defaults."""
    provider, name = model.provider.strip().lower(), model.id.lower()
    policy = _base(provider, model.api)
    if model.api == "openai-completions" and provider in _REASONING_BACK:
        policy = replace(policy, reasoning_field="reasoning_content")
    if model.api == "openai-completions" and is_mistral(model):
        policy = replace(policy, ids="strict9")
    if provider in _ROUTERS:
        return replace(policy, base64_signatures="gemini" in name)
    if provider == "github-copilot":
        return replace(policy, drop_thinking="claude" in name)
    if provider == "kimi-coding" or not policy.keep_signatures:
        return policy
    return replace(policy, drop_thinking="claude" in name and not preserves_thinking(name))


def is_mistral(model: ModelInfo) -> bool:
    """Whether a request is checked by Mistral's rules: its own service, or one of its models elsewhere."""
    return "mistral" in model.provider.lower() or _MISTRAL.search(model.id.lower()) is not None


def preserves_thinking(model_id: str) -> bool:
    """Whether thinking of earlier turns stays in the request (it is part of this model's cache)."""
    return _PRESERVING.search(model_id.lower()) is not None


def _base(provider: str, api: str) -> TranscriptPolicy:
    if provider in _OPENAI:
        return _STRICT if api == "openai-completions" else _PLAIN
    found = _BY_PROVIDER.get(provider)
    return found if found is not None else _BY_API.get(api, _PLAIN)

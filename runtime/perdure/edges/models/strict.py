"""The strict door of the scripted model: the rules of each API we know, chosen by the model's.

A request that passes here is one that the provider would not refuse for its structure. Rules come
from recordings, public issue threads and the official SDKs; those known only by hearsay are `known`
and can be switched off.
"""

from __future__ import annotations

from perdure.edges.models.rules import messages, openai_chat, openai_responses
from perdure.edges.models.rules.family import Family
from perdure.edges.models.rules.refusal import Json, Refused
from perdure.errors import ConfigError
from perdure.records import ModelInfo

__all__ = ["Refused", "family_of", "validate"]

FAMILIES: dict[str, Family] = {
    "anthropic-messages": messages.FAMILY,
    "openai-completions": openai_chat.FAMILY,
    "openai-responses": openai_responses.FAMILY,
    "openai-codex-responses": openai_responses.FAMILY,
    "azure-openai-responses": openai_responses.FAMILY,
}


def family_of(api: str) -> Family:
    """The rules of an API. Raises `ConfigError` for one that has none here."""
    if api not in FAMILIES:
        raise ConfigError(f"unknown API {api!r}: a scripted model speaks {', '.join(FAMILIES)}")
    return FAMILIES[api]


def validate(
    body: Json, *, known: bool = True, model: ModelInfo | None = None, counting: bool = False
) -> None:
    """Raise `Refused` with the provider's status, type and message for the first rule `body` breaks.

    `known=False` leaves out the rules that no recording or source confirms; `model` chooses the API
    (none: Anthropic's) and adds the rules of one model; `counting` reads the body as `count_tokens`
    does (no `max_tokens` needed).
    """
    family = family_of(model.api) if model is not None else messages.FAMILY
    family.validate(body, known=known, model=model, counting=counting)

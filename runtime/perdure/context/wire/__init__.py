"""The body of a request, as bytes: the same items always give the same bytes.

One module for each API; the model's `api` chooses. A module offers `render(items, ask, memo)`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeAlias

from perdure.context.cache.contract import Retention
from perdure.context.policy import TranscriptPolicy
from perdure.context.wire import anthropic, bedrock, google, openai_chat, openai_responses
from perdure.context.wire.ask import Ask, answer_room
from perdure.context.wire.memo import Memo
from perdure.errors import ConfigError
from perdure.records import Items, ModelInfo, ToolSpec

__all__ = ["Ask", "Memo", "answer_room", "render", "render_dict"]

Renderer: TypeAlias = Callable[[Items, Ask, Memo], bytes]

RENDERERS: dict[str, Renderer] = {
    "anthropic-messages": anthropic.render,
    "bedrock-converse-stream": bedrock.render,
    "google-generative-ai": google.render,
    "openai-completions": openai_chat.render,
    "openai-responses": openai_responses.render,
    "openai-codex-responses": openai_responses.render,
    "azure-openai-responses": openai_responses.render,
}


def render(
    items: Items,
    *,
    system: str,
    tools: tuple[ToolSpec, ...],
    model: ModelInfo,
    policy: TranscriptPolicy,
    max_tokens: int,
    thinking_level: str = "off",
    retention: Retention = "short",
    session: str = "",
    memo: Memo | None = None,
) -> bytes:
    """The whole body for sealed `items`, in the format of the model's API (`Ask` names the rest).

    Raises `ConfigError` for an API that nothing here renders.
    """
    if model.api not in RENDERERS:
        known = ", ".join(RENDERERS)
        raise ConfigError(f"model {model.ref}: unknown API {model.api!r} (known are {known})")
    ask = Ask(system, tools, model, policy, max_tokens, thinking_level, retention, session)
    return RENDERERS[model.api](items, ask, memo if memo is not None else Memo())


def render_dict(body: bytes) -> dict[str, Any]:
    """A rendered body, to look at."""
    found: dict[str, Any] = json.loads(body)
    return found

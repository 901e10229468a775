"""Thinking: its configuration, and where thinking blocks must and must not stand."""

from __future__ import annotations

from typing import Any

from perdure.edges.models.rules.refusal import Json, invalid
from perdure.edges.models.rules.schema import Found
from perdure.records import ModelInfo

KINDS = ("thinking", "redacted_thinking")
MIN_BUDGET = 1024
DOCS = "https://docs.claude.com/en/docs/build-with-claude/extended-thinking"


def check_thinking(body: Json, model: ModelInfo | None, found: Found, *, known: bool) -> None:
    """Configuration first, then the blocks of every assistant message."""
    config = body.get("thinking") or {}
    on = config.get("type") not in (None, "disabled")
    if config:
        _check_config(config, body, model)
    if on and known:
        _check_options(body)
    for n, message in enumerate(body["messages"] if found.kinds.intersection(KINDS) else ()):
        if message["role"] == "assistant" and type(message["content"]) is list:
            _check_places(message["content"], n, known)
    _check_last_turn(body["messages"], config.get("type"))


def _check_config(config: Json, body: Json, model: ModelInfo | None) -> None:
    kind = config.get("type")
    if kind not in ("enabled", "disabled", "adaptive", "between_tools"):
        invalid(
            "thinking: Input tag does not match any of the expected tags: 'enabled', 'disabled', 'adaptive'"
        )
    if kind == "adaptive" and model is not None and model.thinking != "adaptive":
        invalid("adaptive thinking is not supported on this model")
    if kind != "enabled":
        return
    if model is not None and model.provider == "anthropic" and not _takes_budget(model):
        invalid("thinking.type: `enabled` is not supported on this model, use `adaptive`")
    budget = config.get("budget_tokens")
    if type(budget) is not int:
        invalid("thinking.enabled.budget_tokens: Field required")
    if budget < MIN_BUDGET:
        invalid(f"thinking.enabled.budget_tokens: Input should be greater than or equal to {MIN_BUDGET}")
    if "max_tokens" in body and budget >= body["max_tokens"]:
        invalid("`max_tokens` must be greater than `thinking.budget_tokens`")


def _takes_budget(model: ModelInfo) -> bool:
    """Budgets went away with 4.7; the 4.6 models take both forms."""
    return model.thinking == "enabled" or (model.thinking == "adaptive" and "-4-6" in model.id)


def _check_options(body: Json) -> None:
    if body.get("temperature") not in (None, 1):
        invalid("`temperature` may only be set to 1 when thinking is enabled.")
    if body.get("top_k") is not None:
        invalid("`top_k` must be unset when thinking is enabled.")
    if body.get("top_p") is not None and body["top_p"] < 0.95:
        invalid("`top_p` must be greater than or equal to 0.95 or unset when thinking is enabled.")
    if (body.get("tool_choice") or {}).get("type") in ("any", "tool"):
        invalid("Thinking may not be enabled when tool_choice forces tool use.")


def _check_places(blocks: list[Any], n: int, known: bool) -> None:
    places = [m for m, block in enumerate(blocks) if block["type"] in KINDS]
    if not places:
        return
    if places[0] != 0:
        invalid(
            f"messages.{n}.content.0: If an assistant message contains any thinking blocks, the first block "
            f"must be `thinking` or `redacted_thinking`. Found `{blocks[0]['type']}`."
        )
    if places[-1] == len(blocks) - 1:
        invalid(f"messages.{n}: The final block in an assistant message cannot be `thinking`.")
    for m in places:
        if known and not blocks[m].get("signature", "redacted"):
            invalid(f"messages.{n}.content.{m}: Invalid `signature` in `thinking` block")


def _check_last_turn(messages: list[Json], kind: str | None) -> None:
    """The last assistant message: in a tool loop it must start with thinking; switched off, hold none."""
    n = len(messages) - 1
    while n >= 0 and messages[n]["role"] != "assistant":
        n -= 1
    if n < 0 or type(messages[n]["content"]) is not list or not messages[n]["content"]:
        return
    first = messages[n]["content"][0]["type"]
    if kind == "enabled" and first not in KINDS and _in_loop(messages, n):
        invalid(
            f"messages.{n}.content.0.type: Expected `thinking` or `redacted_thinking`, but found `{first}`. "
            "When `thinking` is enabled, a final `assistant` message must start with a thinking block "
            "(preceeding the lastmost set of `tool_use` and `tool_result` blocks). We recommend you include "
            "thinking blocks from previous turns. To avoid this requirement, disable `thinking`. "
            f"Please consult our documentation at {DOCS}"
        )
    if kind in (None, "disabled") and first in KINDS and n == len(messages) - 1:
        invalid(
            f"messages.{n}.content.0: When thinking is disabled, an `assistant` message in the final "
            "position cannot contain `thinking`. To use thinking blocks, enable `thinking` in your request."
        )


def _in_loop(messages: list[Json], n: int) -> bool:
    if n == len(messages) - 1:
        return True
    content = messages[n + 1]["content"]
    return type(content) is list and any(block["type"] == "tool_result" for block in content)

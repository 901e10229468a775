"""The transcript policy: the reference's table by provider and API, row by row."""

from __future__ import annotations

import pytest

from perdure.context.policy import TranscriptPolicy, policy_for, preserves_thinking
from perdure.records import ModelInfo

ANTHROPIC = {"full": True, "ids": "strict", "keep_signatures": True, "merge_users": True, "synthesise": True}
GOOGLE = {
    "full": True, "ids": "strict", "base64_signatures": True, "first_user": True,
    "merge_assistants": True, "synthesise": True,
}  # fmt: skip
ORDERED = {"ids": "strict", "first_user": True, "merge_assistants": True, "merge_users": True}
MESSAGES, CHAT, RESPONSES = "anthropic-messages", "openai-completions", "openai-responses"

ROWS = [
    ("anthropic", "claude-sonnet-4-5", MESSAGES, {**ANTHROPIC, "native_ids": True}),
    ("anthropic-vertex", "claude-opus-4-6", MESSAGES, {**ANTHROPIC, "native_ids": True}),
    ("anthropic", "claude-3-7-sonnet", MESSAGES, {**ANTHROPIC, "native_ids": True, "drop_thinking": True}),
    ("amazon-bedrock", "claude-opus-4-1", "bedrock-converse-stream", ANTHROPIC),
    ("openai", "gpt-5", RESPONSES, {}),
    ("openai-codex", "gpt-5", "openai-codex-responses", {}),
    ("openai", "gpt-4.1", CHAT, {"ids": "strict"}),
    ("xai", "grok-4", CHAT, ORDERED),
    ("xai", "grok-4", RESPONSES, {"ids": "strict"}),
    ("google", "gemini-2.5-pro", "google-generative-ai", GOOGLE),
    ("mistral", "m", "mistral-conversations", {"ids": "strict9"}),
    ("openrouter", "google/gemini-2.5", CHAT, {"base64_signatures": True}),
    ("opencode", "x", CHAT, {}),
    ("minimax", "m2", MESSAGES, ANTHROPIC),
    ("minimax", "m2", CHAT, ORDERED),
    ("github-copilot", "claude-sonnet-4", CHAT, {"drop_thinking": True}),
    ("github-copilot", "gpt-4", CHAT, {}),
    ("kimi-coding", "k2", MESSAGES, {}),
    ("", "m", MESSAGES, ANTHROPIC),
    ("", "m", CHAT, ORDERED),
    ("", "m", "something-new", {}),
]


@pytest.mark.parametrize(("provider", "name", "api", "wanted"), ROWS)
def test_a_row_of_the_table_is_the_policy_of_its_models(
    provider: str, name: str, api: str, wanted: dict[str, object]
) -> None:
    policy = policy_for(ModelInfo(provider, name, api))
    for field in TranscriptPolicy.__struct_fields__:
        if field not in ("wire_names", "images"):
            default = getattr(TranscriptPolicy(), field)
            assert (field, getattr(policy, field)) == (field, wanted.get(field, default))
    assert policy.wire_names == policy.keep_signatures


@pytest.mark.parametrize(
    "name", ["claude-opus-4-1", "claude-sonnet-4-5-20250929", "claude-5", "claude-opus-5-20260101"]
)
def test_newer_claude_models_read_the_thinking_of_earlier_turns(name: str) -> None:
    assert preserves_thinking(name)


@pytest.mark.parametrize("name", ["claude-3-5-sonnet-20241022", "claude-3-7-sonnet", "claude-2.1", "gpt-5"])
def test_older_ones_do_not(name: str) -> None:
    assert not preserves_thinking(name)

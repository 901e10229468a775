"""The reference's transcript policy, row by row: provider, model, API, and what is not the default."""

from __future__ import annotations

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
    ("kimi-coding", "k2", MESSAGES, {"ids": "strict"}),  # ours: its API refuses other ids
    ("", "m", MESSAGES, ANTHROPIC),
    ("", "m", CHAT, ORDERED),
    ("", "m", "something-new", {}),
]

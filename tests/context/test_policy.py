"""The transcript policy: the reference's table by provider and API, row by row."""

from __future__ import annotations

import pytest

from helpers_policy import MESSAGES, ROWS
from perdure.context.policy import TranscriptPolicy, policy_for, preserves_thinking
from perdure.records import ModelInfo


@pytest.mark.parametrize(("provider", "name", "api", "wanted"), ROWS)
def test_a_row_of_the_table_is_the_policy_of_its_models(
    provider: str, name: str, api: str, wanted: dict[str, object]
) -> None:
    policy = policy_for(ModelInfo(provider, name, api))
    for field in TranscriptPolicy.__struct_fields__:
        if field not in ("wire_names", "images"):
            default = getattr(TranscriptPolicy(), field)
            assert (field, getattr(policy, field)) == (field, wanted.get(field, default))
    assert policy.wire_names == (api in (MESSAGES, "bedrock-converse-stream"))


@pytest.mark.parametrize(
    "name", ["claude-opus-4-1", "claude-sonnet-4-5-20250929", "claude-5", "claude-opus-5-20260101"]
)
def test_newer_claude_models_read_the_thinking_of_earlier_turns(name: str) -> None:
    assert preserves_thinking(name)


@pytest.mark.parametrize("name", ["claude-3-5-sonnet-20241022", "claude-3-7-sonnet", "claude-2.1", "gpt-5"])
def test_older_ones_do_not(name: str) -> None:
    assert not preserves_thinking(name)

"""The reference's turn validation: same order of turns; but no text is lost and no call stripped."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from msgspec.structs import replace

from helpers_conformance import cases, ident
from helpers_messages import view
from perdure.context.policy import TranscriptPolicy
from perdure.context.repair import calls_of
from perdure.context.validate import validate
from perdure.records import Assistant, Items, Message, Opaque, Text, ToolCall, User

TURNS = [
    case
    for case in cases("validate_turns")
    if isinstance(case["input"]["messages"], list)
    and all(isinstance(m, dict) for m in case["input"]["messages"])
]
ANTHROPIC = [case for case in TURNS if case["fn"] == "validateAnthropicTurns"]
GEMINI = [case for case in TURNS if case["fn"] == "validateGeminiTurns"]


def messages(items: Items) -> list[Message]:
    return [item.message for item in items]


def without_calls(message: Message) -> Any:
    """The reference strips unanswered calls (and blocks that are none); ours leaves that to repair."""
    if not isinstance(message, Assistant):
        return message
    kept = tuple(b for b in message.content if not isinstance(b, ToolCall | Opaque))
    said = tuple(b for b in kept if b != Text("[tool calls omitted]"))
    return replace(message, content=said)


def texts(items: Items, kind: type[User] | type[Assistant] = User) -> list[Any]:
    found = [b for item in items if isinstance(item.message, kind) for b in item.message.content]
    return [b for b in found if isinstance(b, Text)]


def text_lost_by_the_reference(case: dict[str, Any], role: str = "user") -> bool:
    """Neighbours, one of which holds a string (or nothing): only lists are joined there."""
    found = case["input"]["messages"]
    pairs = itertools.pairwise(found)
    return any(a.get("role") == b.get("role") == role and not lists(a, b) for a, b in pairs)


def lists(*found: dict[str, Any]) -> bool:
    return all(isinstance(one.get("content"), list) for one in found)


@pytest.mark.parametrize("case", ANTHROPIC, ids=ident)
def test_neighbouring_user_messages_become_one_with_all_their_text(case: dict[str, Any]) -> None:
    source = view(case["input"]["messages"])
    done = validate(source, TranscriptPolicy(merge_users=True))
    kinds = [type(m) for m in messages(done.items)]
    assert (User, User) not in list(itertools.pairwise(kinds))
    assert texts(done.items) == texts(source)
    assert all_calls(done.items) == all_calls(source)
    if not text_lost_by_the_reference(case):
        wanted = messages(view(case["expected"]["out"]))
        assert [without_calls(m) for m in messages(done.items)] == [without_calls(m) for m in wanted]


def all_calls(items: Items) -> list[ToolCall]:
    return [call for item in items if isinstance(item.message, Assistant) for call in calls_of(item.message)]


@pytest.mark.parametrize("case", GEMINI, ids=ident)
def test_neighbouring_assistant_messages_become_one_where_the_provider_wants_it(case: dict[str, Any]) -> None:
    source = view(case["input"]["messages"])
    done = validate(source, TranscriptPolicy(merge_assistants=True))
    assert texts(done.items, Assistant) == texts(source, Assistant)
    if text_lost_by_the_reference(case, "assistant"):
        return
    wanted = messages(view(case["expected"]["out"]))
    assert [judged(m) for m in messages(done.items)] == [judged(m) for m in wanted]


def judged(message: Message) -> Any:
    return (message.content, message.stop) if isinstance(message, Assistant) else message


def test_the_reference_loses_text_in_some_vectors_so_the_departure_is_tried() -> None:
    assert any(text_lost_by_the_reference(case) for case in ANTHROPIC)

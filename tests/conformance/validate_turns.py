"""Turn order: neighbours of one role become one message, and no text or call is lost in it."""

from __future__ import annotations

import itertools
from typing import Any

from msgspec.structs import replace

from conformance.messages import decoded, messages, source, view
from conformance.rules import Case, Departure, Function, has_error, same
from perdure.context.policy import TranscriptPolicy
from perdure.context.safety.repair import calls_of
from perdure.context.safety.validate import validate
from perdure.records import Assistant, Block, Items, Message, Opaque, Text, ToolCall, User

_USERS, _ASSISTANTS = TranscriptPolicy(merge_users=True), TranscriptPolicy(merge_assistants=True)
_OMITTED = Text("[tool calls omitted]")


def _spoken(case: Case, role: type[User] | type[Assistant]) -> list[list[Block]]:
    """What neighbours of a role say together, told independently: one list for each run of them."""
    runs = itertools.groupby(messages(source(case)), key=type)
    return [[b for m in run for b in m.content] for kind, run in runs if kind is role]


def _nothing_lost(case: Case) -> None:
    items = source(case)
    done = validate(items, _USERS)
    same(_contents(done.items, User), _spoken(case, User), "what users said")
    same(_calls(done.items), _calls(items), "calls")
    same(_others(done.items, User), _others(items, User), "others")


def _nothing_lost_of_the_model(case: Case) -> None:
    items = source(case)
    done = validate(items, _ASSISTANTS)
    same(_contents(done.items, Assistant), _spoken(case, Assistant), "what the model said")
    same(
        [m for m in messages(done.items) if not isinstance(m, Assistant)], _others(items, Assistant), "others"
    )


def _contents(items: Items, role: type[User] | type[Assistant]) -> list[list[Block]]:
    return [list(m.content) for m in messages(items) if isinstance(m, role)]


def _others(items: Items, role: type[Message]) -> list[Message]:
    return [m for m in messages(items) if not isinstance(m, role)]


def _calls(items: Items) -> list[ToolCall]:
    return [call for m in messages(items) if isinstance(m, Assistant) for call in calls_of(m)]


def _without_calls(message: Message) -> Any:
    """The reference strips unanswered calls (and blocks that are none) here; ours leaves that to repair."""
    if not isinstance(message, Assistant):
        return message
    kept = (b for b in message.content if not isinstance(b, ToolCall | Opaque) and b != _OMITTED)
    return replace(message, content=tuple(kept))


def _users_merged(case: Case) -> None:
    done = validate(source(case), _USERS)
    wanted = messages(view(case["expected"]["out"]))
    same([_without_calls(m) for m in messages(done.items)], [_without_calls(m) for m in wanted])


def _assistants_merged(case: Case) -> None:
    done = validate(source(case), _ASSISTANTS)
    wanted = messages(view(case["expected"]["out"]))
    same([_judged(m) for m in messages(done.items)], [_judged(m) for m in wanted])


def _judged(message: Message) -> Any:
    return (message.content, message.stop) if isinstance(message, Assistant) else message


def _between_strings(role: str) -> Any:
    """Neighbours of a role, one of which holds a string or nothing: the reference joins lists only."""

    def applies(case: Case) -> bool:
        given = case["input"]["messages"]
        found = [m for m in given if isinstance(m, dict)] if isinstance(given, list) else []
        return any(
            a.get("role") == b.get("role") == role and not _lists(a, b) for a, b in itertools.pairwise(found)
        )

    return applies


def _lists(*found: dict[str, Any]) -> bool:
    return all(isinstance(one.get("content"), list) for one in found)


def _torn(role: type[Message]) -> Any:
    """Something that is no message stands between two that are neighbours without it."""

    def applies(case: Case) -> bool:
        given = case["input"]["messages"]
        if not isinstance(given, list):
            return False
        each = [view([one]) for one in given]
        for at, one in enumerate(each):
            before = next((e for e in reversed(each[:at]) if e), ())
            after = next((e for e in each[at:] if e), ())
            if not one and before and after and type(before[0].message) is type(after[0].message) is role:
                return True
        return False

    return applies


def _unsaid_stop(case: Case) -> bool:
    """The later of two neighbouring answers doesn't say how it ended."""
    given = case["input"]["messages"]
    found = [m for m in given if decoded(m) is not None] if isinstance(given, list) else []
    return any(
        a.get("role") == b.get("role") == "assistant" and not b.get("stopReason")
        for a, b in itertools.pairwise(found)
    )


def _function(agrees: Any, always: Any, role: str, kind: type[Message]) -> Function:
    return Function(
        agrees,
        (
            Departure(
                "no text is lost in a merge",
                "the reference throws away contents that are strings; ours keeps all of it",
                _between_strings(role),
                always,
            ),
            Departure(
                "what is no message parts no neighbours",
                "no such thing gets into a view, so the provider sees the two beside each other",
                _torn(kind),
                always,
            ),
            Departure(
                "an answer that doesn't say how it ended has stopped",
                "the reference gives the whole the end of its first part",
                _unsaid_stop,
                always,
            ),
            Departure(
                "what is no message gets into no view",
                "the reference throws; ours validates the messages that are there",
                has_error,
                always,
            ),
        ),
        always=always,
    )


FUNCTIONS = {
    "validateAnthropicTurns": _function(_users_merged, _nothing_lost, "user", User),
    "validateGeminiTurns": _function(_assistants_merged, _nothing_lost_of_the_model, "assistant", Assistant),
}

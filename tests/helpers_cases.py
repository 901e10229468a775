"""Reported faults of long-running agents as inputs: one JSON object a line, each with what is right."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from helpers_messages import SONNET
from helpers_strict import complaints
from perdure.context.changed import NOTHING_DECIDED, Decisions
from perdure.context.policy import policy_for
from perdure.context.safety.seal import seal
from perdure.context.wire import render, render_dict
from perdure.edges.session.facts import Opened
from perdure.edges.session.tail import open_session
from perdure.records import Items, ModelInfo, ToolSpec

FILE = Path(__file__).parent / "data" / "cases.jsonl"


@cache
def _all() -> dict[str, dict[str, Any]]:
    with FILE.open(encoding="utf-8") as lines:
        return {case["id"]: case for case in map(json.loads, lines)}


def case(name: str) -> dict[str, Any]:
    """One case by its id: `symptom`, `input`, `right` (prose: the test asserts what it says)."""
    return _all()[name]


def names(area: str) -> list[str]:
    """The ids of an area, in the file's order."""
    return [name for name, found in _all().items() if found["area"] == area]


def blown_up(value: Any) -> Any:
    """A case's input with its generated texts spelled out: `{"$repeat": ["x", n]}` is n copies of x."""
    if isinstance(value, list):
        return [blown_up(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "$repeat" in value:
        text, count = value["$repeat"]
        return text * count
    return {key: blown_up(item) for key, item in value.items()}


F = TypeVar("F", bound=Callable[..., Any])


def covers(*ids: str) -> Callable[[F], F]:
    """Marks a test as the one that asserts what is right for these cases."""
    assert all(name in _all() for name in ids), ids

    def marked(test: F) -> F:
        test.__cases__ = ids  # type: ignore[attr-defined]
        return test

    return marked


def opened(name: str, folder: Path, entries: list[dict[str, Any]] | None = None) -> Opened:
    """A case's entries (or others) as a session file, read as a host reads it; the file stays as it was."""
    path = folder / f"{name}.jsonl"
    rows = case(name)["input"]["entries"] if entries is None else entries
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    before = path.read_bytes()
    found = open_session(path)
    assert path.read_bytes() == before
    return found


def request(
    items: Items,
    model: ModelInfo = SONNET,
    level: str = "off",
    *,
    decided: Decisions = NOTHING_DECIDED,
    unseen: frozenset[str] = frozenset(),
) -> dict[str, Any]:
    """The body that would be sent for a view, marks left out; accepted, or the test fails here."""
    policy = policy_for(model)
    done = seal(items, policy, model, thinking=level, decided=decided, unseen=unseen)
    raw = render(
        done.items,
        system="s",
        tools=(ToolSpec("read", "Reads", b'{"type":"object"}'),),
        model=model,
        policy=policy,
        max_tokens=9000,
        thinking_level=level if done.thinking else "off",
        retention="none",
    )
    raw.decode("utf-8", "strict")
    assert complaints(raw) == []
    return render_dict(raw)


def told(body: dict[str, Any]) -> list[str]:
    """All texts of a request in order, those inside results too."""
    blocks = [block for message in body["messages"] for block in message["content"]]
    inner = [each for block in blocks for each in (block.get("content") or [block])]
    return [block["text"] for block in inner if block["type"] == "text"]


def results(body: dict[str, Any]) -> list[dict[str, Any]]:
    """The results of a request."""
    return [b for m in body["messages"] for b in m["content"] if b["type"] == "tool_result"]


def made_calls(body: dict[str, Any]) -> list[dict[str, Any]]:
    """The calls of a request."""
    return [b for m in body["messages"] for b in m["content"] if b["type"] == "tool_use"]

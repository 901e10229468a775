"""Recordings of other programs: Claude Code, Codex and nanobot in miniature, each into the same turn."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from helpers_replay import out_of_step, stamp
from perdure.replay.importer import Imported, convert, write
from perdure.replay.steps import ModelStep, ToolStep, UserStep

BASE = {"sessionId": "s", "cwd": "/srv/project", "isSidechain": False}


def claude(kind: str, n: int, message: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {**BASE, "type": kind, "uuid": f"u{n}", "timestamp": stamp(n), "message": message, **more}


def part(n: int, block: dict[str, Any], id: str = "m1") -> dict[str, Any]:
    return claude(
        "assistant", n, {"role": "assistant", "id": id, "model": "claude-opus-4-6", "content": [block]}
    )


def codex(n: int, kind: str, **payload: Any) -> dict[str, Any]:
    return {"timestamp": stamp(n), "type": kind, "payload": payload}


CLAUDE = [
    {"type": "file-history-snapshot", "snapshot": {}},
    claude("user", 1, {"role": "user", "content": "run it"}),
    part(2, {"type": "thinking", "thinking": "hm", "signature": "proof"}),
    part(3, {"type": "text", "text": "I do"}),
    part(3, {"type": "tool_use", "id": "c1", "name": "Bash", "input": {"command": "make"}}),
    claude("progress", 3, {}),
    claude(
        "user",
        5,
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "ran"}]},
    ),
    claude("user", 5, {"role": "user", "content": "a subagent's"}, isSidechain=True),
    part(6, {"type": "text", "text": "It ran."}, "m2"),
    claude("user", 7, {"role": "user", "content": "the summary"}, isCompactSummary=True),
]
CODEX = [
    codex(0, "session_meta", id="s", cwd="/srv/project"),
    codex(1, "turn_context", model="gpt-5-codex"),
    codex(
        1, "response_item", type="message", role="user", content=[{"type": "input_text", "text": "run it"}]
    ),
    codex(1, "event_msg", type="user_message", message="run it"),
    codex(2, "response_item", type="reasoning", summary=[{"type": "summary_text", "text": "hm"}]),
    codex(
        2,
        "response_item",
        type="message",
        role="assistant",
        content=[{"type": "output_text", "text": "I do"}],
    ),
    codex(
        3, "response_item", type="function_call", name="Bash", arguments='{"command":\n "make"}', call_id="c1"
    ),
    codex(5, "response_item", type="function_call_output", call_id="c1", output="ran"),
    codex(
        6,
        "response_item",
        type="message",
        role="assistant",
        content=[{"type": "output_text", "text": "It ran."}],
    ),
    codex(6, "event_msg", type="token_count", info={"model_context_window": 272000}),
]
CALL = {"id": "c1", "type": "function", "function": {"name": "Bash", "arguments": '{"command": "make"}'}}
NANOBOT = [
    {"_type": "metadata", "key": "telegram:1"},
    {"role": "user", "content": "run it", "timestamp": stamp(1)},
    {
        "role": "assistant",
        "content": "I do",
        "reasoning_content": "hm",
        "tool_calls": [CALL],
        "timestamp": stamp(3),
    },
    {"role": "tool", "tool_call_id": "c1", "name": "Bash", "content": "ran", "timestamp": stamp(5)},
    {"role": "assistant", "content": "It ran.", "timestamp": stamp(6)},
]


def made(path: Path, rows: list[dict[str, Any]]) -> Imported:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    imported = convert(path)
    assert out_of_step(imported.scenario) == []
    return imported


@pytest.mark.parametrize(
    ("name", "rows", "model"),
    [
        ("claude-code", CLAUDE, "anthropic/claude-opus-4-6"),
        ("codex", CODEX, "openai/gpt-5-codex"),
        ("nanobot", NANOBOT, "scripted/scripted"),
    ],
)
def test_the_same_turn_comes_in_from_each_program(
    tmp_path: Path, name: str, rows: list[dict[str, Any]], model: str
) -> None:
    imported = made(tmp_path / "s.jsonl", rows)
    asked, call, tool, answer = imported.scenario.steps
    assert isinstance(asked, UserStep)
    assert isinstance(call, ModelStep)
    assert isinstance(tool, ToolStep)
    assert isinstance(answer, ModelStep)
    assert (asked.text, tool.id, tool.text, answer.text) == ("run it", "c1", "ran", "It ran.")
    assert b'"name":"Bash"' in write(imported)
    assert b'"arguments":{"command":"make"}' in write(imported)
    assert (imported.format, imported.scenario.header.model) == (name, model)
    assert imported.kept + sum(row.count for row in imported.lost) == imported.entries == len(rows)


def test_what_claude_code_adds_is_counted_by_kind(tmp_path: Path) -> None:
    imported = made(tmp_path / "s.jsonl", CLAUDE)
    assert {row.what: row.count for row in imported.lost} == {
        "compactions (the replay makes its own)": 1,
        "entries of subagents": 1,
        "file-history-snapshot records": 1,
        "progress records": 1,
    }
    call = imported.scenario.steps[1]
    assert isinstance(call, ModelStep)
    assert call.content is not None
    assert [type(part).__name__ for part in call.content] == ["ThinkingPart", "TextPart", "CallPart"]


def test_codex_tells_its_window_and_its_aborted_turns(tmp_path: Path) -> None:
    aborted = codex(9, "event_msg", type="turn_aborted", reason="interrupted")
    again = codex(
        8, "response_item", type="message", role="user", content=[{"type": "input_text", "text": "more"}]
    )
    imported = made(tmp_path / "s.jsonl", [*CODEX, again, aborted])
    last = imported.scenario.steps[-1]
    assert isinstance(last, ModelStep)
    assert (imported.scenario.header.window, last.stop) == (272_000, "aborted")


def test_lines_that_are_no_json_cost_themselves(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    rows = [json.dumps(row) for row in NANOBOT]
    path.write_text("\n".join([*rows[:2], '{"role": "assi', *rows[2:]]), encoding="utf-8")
    imported = convert(path)
    assert [(row.what, row.count) for row in imported.lost if row.what == "unreadable lines"] == [
        ("unreadable lines", 1)
    ]
    assert len(imported.scenario.steps) == 4

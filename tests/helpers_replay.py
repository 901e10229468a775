"""What the replay tests share: session files in miniature, and a reader of scripts that keeps count."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from perdure.replay.content import answered_calls
from perdure.replay.steps import ModelStep, Scenario, ToolStep, UserStep, moment

HEADER = '{"scenario": 1, "name": "t"}'


def lines(*steps: str | dict[str, Any]) -> bytes:
    """A scenario file of these steps below the smallest header."""
    rows = [HEADER, *(step if isinstance(step, str) else json.dumps(step) for step in steps)]
    return "\n".join(rows).encode() + b"\n"


def session_file(path: Path, entries: list[dict[str, Any]]) -> Path:
    """A version 3 session file whose entries are a second apart and follow one another."""
    rows: list[dict[str, Any]] = [
        {"type": "session", "version": 3, "id": "s", "timestamp": stamp(0), "cwd": "/srv/project"}
    ]
    for n, entry in enumerate(entries, 1):
        parent = f"{n - 1:016x}" if n > 1 else None
        rows.append({"id": f"{n:016x}", "parentId": parent, "timestamp": stamp(n), **entry})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def stamp(second: int) -> str:
    """The ISO time so many seconds after the header's."""
    return f"2026-01-05T{9 + second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}.000Z"


def user(content: Any = "hello", **more: Any) -> dict[str, Any]:
    return {"type": "message", "message": {"role": "user", "content": content, **more}}


def assistant(text: str = "", *calls: str, stop: str | None = None, **more: Any) -> dict[str, Any]:
    """An answer; each call is an id, its tool `exec`."""
    content: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
    content += [{"type": "toolCall", "id": id, "name": "exec", "arguments": {"n": id}} for id in calls]
    message = {
        "role": "assistant",
        "content": content,
        "stopReason": stop or ("toolUse" if calls else "stop"),
        "provider": "anthropic",
        "model": "claude-sonnet-4-5",
    }
    return {"type": "message", "message": message | more}


def result(id: str, text: str = "done", **more: Any) -> dict[str, Any]:
    message = {
        "role": "toolResult",
        "toolCallId": id,
        "toolName": "exec",
        "content": [{"type": "text", "text": text}],
        "isError": False,
    }
    return {"type": "message", "message": message | more}


def out_of_step(scenario: Scenario) -> list[str]:
    """Where the script's answers would not fit the questions of a replay; empty is what must be.

    Plays the rule of turns: a question makes a model call due, so does a batch once all its calls
    are answered; any other answer ends the turn, and only then comes the next question.
    """
    wrong: list[str] = []
    due, waiting = False, 0
    for n, step in enumerate(scenario.steps):
        match step:
            case ModelStep():
                if not due or waiting:
                    wrong.append(f"step {n}: an answer nobody asks for")
                runs = step.stop not in ("error", "aborted", "length")
                waiting = len(answered_calls(step)) if runs else 0
                due = waiting > 0
            case ToolStep():
                waiting -= 1
                if waiting < 0:
                    wrong.append(f"step {n}: a result nobody called for")
            case UserStep() if moment(step) == "during":
                if not due or waiting:
                    wrong.append(f"step {n}: steers where no batch is complete")
            case UserStep():
                if due or waiting:
                    wrong.append(f"step {n}: a question while the turn before is open")
                due = True
            case _ if due:
                wrong.append(f"step {n}: a setting in the middle of a turn")
    if due or waiting:
        wrong.append("the script ends in the middle of a turn")
    return wrong

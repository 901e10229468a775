"""Recorded sessions give the very view that the reference program's own rules give.

The oracle below is written from the rules alone (last line is the leaf, parents to the root, the last
compaction on the path, its anchor) and shares no code with the reader. Damaged files are left out: there
the reader recovers more than the reference does, on purpose.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from perdure.edges.session.load import load
from perdure.edges.session.tail import open_session
from perdure.errors import UnreadableFile
from perdure.records import (
    Assistant,
    Bash,
    BranchSummary,
    Custom,
    Message,
    Summary,
    Text,
    ToolCall,
    ToolResult,
    User,
)

RECORDED = Path(os.environ.get("PERDURE_SESSIONS", "/nonexistent"))
FILES = sorted(RECORDED.glob("*.jsonl")) if RECORDED.is_dir() else []


def chained(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Version 1: no ids; each entry is the child of the one before, anchors are indexes."""
    for n, entry in enumerate(entries):
        entry["id"], entry["parentId"] = f"n{n}", f"n{n - 1}" if n else None
    for entry in entries:
        at = entry.get("firstKeptEntryIndex")
        if isinstance(at, int) and 0 < at <= len(entries):
            entry["firstKeptEntryId"] = entries[at - 1]["id"]  # the index counts the header
    return entries


def reference_view(path: Path) -> list[tuple[str, str]]:
    records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    entries = records[1:]
    if records[0].get("version") is None:
        entries = chained(entries)
    by_id = {entry["id"]: entry for entry in entries}
    walked, at = [], entries[-1]["id"]
    while at in by_id:
        walked.append(by_id[at])
        at = by_id[at]["parentId"]
    branch = walked[::-1]
    last = max((n for n, entry in enumerate(branch) if entry["type"] == "compaction"), default=-1)
    if last < 0:
        return [one for entry in branch for one in shown(entry)]
    anchor = next((n for n in range(last) if branch[n]["id"] == branch[last].get("firstKeptEntryId")), last)
    kept = [one for entry in (*branch[anchor:last], *branch[last + 1 :]) for one in shown(entry)]
    return [("compactionSummary", branch[last]["summary"]), *kept]


def shown(entry: dict[str, Any]) -> list[tuple[str, str]]:
    if entry["type"] == "branch_summary" and entry["summary"]:
        return [("branchSummary", entry["summary"])]
    if entry["type"] == "custom_message":
        return [("custom", text_of(entry["content"]))]
    if entry["type"] != "message":
        return []
    message = entry["message"]
    role = "custom" if message["role"] == "hookMessage" else message["role"]
    if role == "bashExecution":
        return [(role, message["command"] + message["output"])]
    return [(role, text_of(message.get("content")))]


def text_of(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(b.get("text", "") + b.get("id", "") for b in content or [])


def ours(message: Message) -> tuple[str, str]:
    match message:
        case Summary(summary):
            return "compactionSummary", summary
        case BranchSummary(summary):
            return "branchSummary", summary
        case Bash(command, output):
            return "bashExecution", command + output
        case User(content):
            return "user", said(content)
        case Assistant(content):
            return "assistant", said(content)
        case ToolResult(_, _, content):
            return "toolResult", said(content)
        case Custom(_, content):
            return "custom", said(content)


def said(content: tuple[Any, ...]) -> str:
    return "".join(
        b.text if isinstance(b, Text) else b.id if isinstance(b, ToolCall) else "" for b in content
    )


@pytest.mark.skipif(not FILES, reason="no recorded sessions here")
@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_an_undamaged_recording_gives_the_references_view(path: Path) -> None:
    try:
        loaded = load(path)
    except UnreadableFile:
        pytest.skip("a transcript of another program: it is imported, not opened")
    if any(problem.severity == "damage" for problem in loaded.problems):
        pytest.skip("damaged: more is recovered than the reference recovers")
    assert [ours(item.message) for item in open_session(path).items] == reference_view(path)

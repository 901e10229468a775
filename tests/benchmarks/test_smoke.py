"""The benchmarks compare what they say they compare, and their verdicts come from figures."""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path

import pytest

from perdure.edges.session.load import load
from perdure.edges.session.tail import open_session
from perdure.records import Assistant, ToolCall, ToolResult

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _benchmarks_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))


def test_the_live_view_is_the_same_however_long_the_history_is(tmp_path: Path) -> None:
    from benchmarks import sessions

    views = []
    for entries in (800, 2_000):
        path = tmp_path / f"{entries}.jsonl"
        sessions.write(path, entries)
        opened = open_session(path)
        assert load(path).problems == []
        assert opened.searched
        assert len(opened.entries) < sessions.BLOCK
        views.append([item.message for item in opened.items[1:]])
    assert views[0] == views[1]


def test_a_foreign_copy_opens_with_the_same_view_and_none_of_our_facts(tmp_path: Path) -> None:
    from benchmarks import sessions

    ours, foreign = tmp_path / "ours.jsonl", tmp_path / "foreign.jsonl"
    sessions.write(ours, 800)
    sessions.write_foreign(foreign, ours)
    assert open_session(foreign).items == open_session(ours).items
    assert open_session(ours).recent
    assert not open_session(foreign).recent


def test_a_missed_goal_is_told_with_its_distance_and_reason() -> None:
    from benchmarks.goals import Goal, shortfalls

    goals = [
        Goal("13", "a turn", 0.7, "<=", 0.35, "ms", "the pipeline takes 0.5"),
        Goal("13", "against the best peer", 12.0, ">=", 10.0),
        Goal("9", "waking", None, "<=", 1.5),
    ]
    assert [goal.met for goal in goals] == [False, True, None]
    (told,) = shortfalls(goals)
    assert "0.700 ms where at most 0.350 ms is wanted (2.0 times away)" in told
    assert "Why: the pipeline takes 0.5." in told
    assert "against the best peer" not in told


def test_a_subject_that_fails_is_noted_and_not_tried_again() -> None:
    from benchmarks.runner import Cell, run

    tried: list[str] = []
    cells = [Cell("broken", "any", (sys.executable, "-c", "raise SystemExit('no such peer')"))]
    figures = run(cells, 3, tried.append)
    assert len(tried) == 1
    assert figures.failed["broken", "any"] == "exit 1: no such peer"
    assert figures.get("broken", "any", "cpu_ms") is None


def test_a_damaged_history_lacks_displaces_and_doubles_results() -> None:
    from benchmarks import histories

    whole = histories.Mix().messages(8 * 400)
    broken = histories.damaged(whole)
    ids = [m.call_id for m in whole if isinstance(m, ToolResult)]
    kept = [m.call_id for m in broken if isinstance(m, ToolResult)]
    assert len(ids) == 1_200
    assert len(set(ids) - set(kept)) == 1_200 // 50
    assert sum(kept.count(ident) == 2 for ident in set(kept)) > 10
    displaced = [
        result.call_id
        for before, result in pairwise(broken)
        if isinstance(result, ToolResult) and isinstance(before, Assistant) and not called(before, result)
    ]
    assert len(displaced) > 5


def called(answer: Assistant, result: ToolResult) -> bool:
    return any(isinstance(block, ToolCall) and block.id == result.call_id for block in answer.content)


def test_both_histories_of_the_flat_goal_have_the_same_live_view(tmp_path: Path) -> None:
    from benchmarks.subjects.turn import write_history

    views = []
    for count in (20, 200):
        write_history(tmp_path / f"{count}.jsonl", count, bounded=True)
        views.append([item.message for item in open_session(tmp_path / f"{count}.jsonl").items])
    assert [type(message) for message in views[0]] == [type(message) for message in views[1]]
    assert views[0][1:] == views[1][1:]

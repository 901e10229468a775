"""The benchmarks compare what they say they compare, and their verdicts come from figures."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from perdure.edges.session.load import load
from perdure.edges.session.tail import open_session

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

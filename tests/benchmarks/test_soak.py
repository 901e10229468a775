"""The short form of `make soak`: five hundred sessions, two days, a budget that few of them fit."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.soak import invariants
from benchmarks.soak.report import slope, write
from benchmarks.soak.run import Plan, Soak, run

from perdure.actors.budgeting import Budget

MB = 1024 * 1024


@pytest.fixture(scope="module")
def soak(tmp_path_factory: pytest.TempPathFactory) -> Soak:
    folder = tmp_path_factory.mktemp("soak")
    plan = Plan(500, 2, 0, 0, str(folder), most=3, probed=50)
    return run(plan, budget=Budget(3 * MB, MB))


def test_five_hundred_sessions_live_two_days_under_a_budget_without_a_violation(soak: Soak) -> None:
    assert soak.problems == []
    assert soak.stopped == "the week is over"
    assert soak.counts["turns"] >= 2_900
    assert soak.counts["files_read"] == 500
    assert soak.counts["probes"] > 20


def test_more_sleep_than_fit_and_all_wake_again(soak: Soak) -> None:
    memory, directory = soak.host.services.memory, soak.host.directory
    assert memory.shed > 300
    assert directory.wakings > 600
    assert memory.most <= 4 * MB
    assert max(row["awake"] for row in soak.samples) < 250
    assert (memory.total, memory.held, len(memory._leaving), len(memory._resting)) == (0, 0, 0, 0)


def test_the_report_is_a_page_with_figures(soak: Soak, tmp_path: Path) -> None:
    page = write(soak, tmp_path).read_text("utf-8")
    assert "| violations | 0 |" in page
    assert "too short to tell" in page


def test_a_lost_message_is_found(tmp_path: Path, soak: Soak) -> None:
    path = next((Path(soak.plan.state) / "sessions").rglob("*chatter*.jsonl"))
    said: list[str] = []
    invariants.on_disk(path, ["nobody-0"], said.append)
    assert len(said) == 1
    assert "1 acknowledged" in said[0]


def test_a_slope_is_a_share_of_the_mean_a_day() -> None:
    rising = [{"day": n / 24, "rss": 100 + n / 24} for n in range(24 * 7)]
    found = slope(rising)
    assert found is not None
    assert 0.0095 < found < 0.0097
    assert slope(rising[:59]) is None

"""The load in small: a few clients for some seconds, so that it can't rot."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _benchmarks_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    root = str(Path(__file__).parents[2])
    monkeypatch.syspath_prepend(root)
    monkeypatch.setenv("PYTHONPATH", root)


def test_a_small_load_ends_every_turn_and_refuses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.load.__main__ import run

    monkeypatch.setattr("benchmarks.load.clients.PAUSE", (0.1, 0.5))
    monkeypatch.setattr("benchmarks.load.clients.SLOW_EVERY", 0.01)
    monkeypatch.setattr("benchmarks.load.__main__.WARM", 1.0)
    phases, verdicts = asyncio.run(run(1, 10, 0.05, "trio"))
    assert [p.name for p in phases] == ["quiet", "disturbed"]
    for found in phases:
        assert found.turns > 0
        assert (found.good.lost, found.good.refused, found.server["refused"]) == (0, 0, 0)
    assert len(verdicts) == 4


def test_a_neighbour_that_costs_too_much_is_told() -> None:
    from benchmarks.load.figures import Phase, Tally, beside, stalls

    def phase(first: float, late: float) -> Phase:
        server, control = ({"stall_p99": each, "stall_max": each} for each in (late, 5.0))
        return Phase("any", 1, Tally([first] * 100, [1.0]), Tally(), Tally(), server, control)

    calm, worse = phase(0.01, 54.0), phase(0.013, 400.0)
    assert [v.met for v in stalls(calm)] == [True, True]
    assert [v.met for v in stalls(worse)] == [False, False]
    assert [v.met for v in beside(calm, worse)] == [False, True]

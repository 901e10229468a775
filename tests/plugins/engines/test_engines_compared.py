"""The same session under every engine that ships: nothing is refused, and planted facts can be answered."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import anyio
import pytest

from perdure.plugins.shipped import ENGINES
from perdure.replay.importer import convert
from perdure.replay.player import Player
from perdure.replay.scenario import dump, parse

ROOT = Path(__file__).parents[3]
RECORDED = os.environ.get("PERDURE_SESSIONS")
SMALLEST = (
    sorted(Path(RECORDED).glob("*.jsonl"), key=lambda path: path.stat().st_size)[:1] if RECORDED else []
)
SHOWN = {"retrieval": 9, "similarity": 8}
"""Of ten facts, how many stand in the request that asks for them, at least."""


@pytest.fixture(autouse=True)
def _benchmarks_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))


def played(player: Player) -> tuple[Any, Any]:
    from benchmarks import planting

    done = anyio.run(player.play)
    assert sum(each["refused_requests"] for each in done["sessions"]) == 0
    return planting.answers(done["failures"]), player.watch.of(planting.DEFAULT_SESSION)


@pytest.mark.parametrize("engine", sorted(ENGINES))
def test_a_session_of_many_windows_is_replayed_under_every_engine(tmp_path: Path, engine: str) -> None:
    from benchmarks import planting

    scenario = planting.planted(planting.synthetic(14, 16_384, 12_000))
    assert parse(dump(scenario), "s.jsonl") == scenario
    found, seen = played(Player(scenario, tmp_path, engine=engine))
    assert seen.turns == 37
    assert seen.overflows == seen.errors == 0
    assert found.kept == len(planting.FACTS)
    assert found.shown >= SHOWN.get(engine, 0)
    assert found.elsewhere == (len(planting.ELSEWHERE) if engine == "cross-session" else 0)


@pytest.mark.skipif(not SMALLEST, reason="PERDURE_SESSIONS names no folder of recordings")
@pytest.mark.parametrize("engine", sorted(ENGINES))
@pytest.mark.parametrize("path", SMALLEST, ids=lambda path: path.name)
def test_a_recording_is_replayed_under_every_engine(tmp_path: Path, path: Path, engine: str) -> None:
    from benchmarks import planting

    scenario = planting.planted(convert(path).scenario)
    found, _ = played(Player(scenario, tmp_path, window=32_768, engine=engine))
    assert found.kept == len(planting.FACTS)
    assert found.shown >= SHOWN.get(engine, 0)


def test_no_question_holds_its_answer() -> None:
    from benchmarks import planting

    for fact in (*planting.FACTS, *planting.ELSEWHERE):
        assert fact.answer in fact.said
        assert fact.answer not in fact.asked


def test_a_scenario_names_its_engine(tmp_path: Path) -> None:
    from benchmarks import planting
    from perdure.errors import UnknownEngine

    scenario = planting.synthetic(1, 32_768)
    assert Player(scenario, tmp_path).engine == "legacy"
    with pytest.raises(UnknownEngine, match="nosuch"):
        anyio.run(Player(scenario, tmp_path, engine="nosuch").play)

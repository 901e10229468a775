"""Scenarios are played: what they expect holds, and the same bytes come out of every loop."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from perdure.kernel.run import Backend, backend_options
from perdure.replay.importer import convert
from perdure.replay.player import Player
from perdure.replay.scenario import Scenario, load, parse

SCENARIOS = Path(__file__).parents[2] / "scenarios"
RECORDED = Path(os.environ.get("PERDURE_SESSIONS", "/nonexistent"))
LOOPS: tuple[Backend, ...] = ("asyncio", "uvloop", "trio")


def play(scenario: Scenario, folder: Path, *, loop: Backend = "asyncio", **options: Any) -> dict[str, Any]:
    name, settings = backend_options(loop)
    player = Player(scenario, folder, **options)
    report: dict[str, Any] = anyio.run(partial(player.play), backend=name, backend_options=settings)
    return report


def digests(report: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(s["key"], s["transcript_sha256"], s["prompts_sha256"]) for s in report["sessions"]]


@pytest.mark.parametrize("path", sorted(SCENARIOS.glob("*.jsonl")), ids=lambda p: p.stem)
def test_what_a_shipped_scenario_expects_holds(path: Path, tmp_path: Path) -> None:
    report = play(load(path), tmp_path)
    assert report["failures"] == []
    assert report["ok"]


OTHERS = ["google/gemini-3-pro-preview", "amazon-bedrock/anthropic.claude-sonnet-4-6", "openai/gpt-5.2"]


@pytest.mark.parametrize("model", OTHERS)
@pytest.mark.parametrize("name", ["crash-in-a-batch", "abort-and-steering", "faults", "long-cjk"])
def test_a_scenario_runs_on_a_model_of_another_family_too(name: str, model: str, tmp_path: Path) -> None:
    scenario = load(SCENARIOS / f"{name}.jsonl")
    report = play(replace(scenario, header=replace(scenario.header, model=model)), tmp_path)
    assert sum(session["requests"] for session in report["sessions"]) > 1
    assert sum(session["refused_requests"] for session in report["sessions"]) == 0


@pytest.mark.parametrize("name", ["crash-in-a-batch", "two-sessions", "abort-and-steering"])
@pytest.mark.parametrize("seed", [0, 1, 7])
def test_every_loop_gives_the_same_bytes_under_each_seed(name: str, seed: int, tmp_path: Path) -> None:
    scenario = load(SCENARIOS / f"{name}.jsonl")
    found = [digests(play(scenario, tmp_path / loop, loop=loop, seed=seed)) for loop in LOOPS]
    assert found[0] == found[1] == found[2]


def test_two_processes_give_the_same_bytes(tmp_path: Path) -> None:
    program = "from perdure.cli import main; main()"
    runs = []
    for n in (1, 2):
        argv = ["replay", str(SCENARIOS / "two-sessions.jsonl"), "--json"]
        environ = os.environ | {"PYTHONHASHSEED": str(n)}
        done = subprocess.run(
            [sys.executable, "-c", program, *argv], capture_output=True, env=environ, cwd=tmp_path, check=True
        )
        runs.append(digests(json.loads(done.stdout)))
    assert runs[0] == runs[1]


def test_an_expectation_that_does_not_hold_fails_the_run(tmp_path: Path) -> None:
    lines = (
        b'{"scenario":1,"name":"wrong"}\n{"do":"user","text":"hello"}\n{"do":"model","text":"hi"}\n'
        b'{"do":"expect","reply":"good bye","turns":2}\n'
    )
    report = play(parse(lines, "wrong"), tmp_path)
    assert not report["ok"]
    assert len(report["failures"]) == 2


def test_a_step_beside_a_cue_that_never_begins_comes_at_rest(tmp_path: Path) -> None:
    lines = (
        b'{"scenario":1,"name":"gone"}\n{"do":"user","text":"hello"}\n'
        b'{"do":"model","stop":"error","error":"broken"}\n'
        b'{"do":"model","calls":[{"name":"read"}]}\n{"do":"tool","name":"read","text":"never"}\n'
        b'{"do":"abort","when":"during"}\n{"do":"expect","errors":1,"tool_runs":0}\n'
    )
    assert play(parse(lines, "gone"), tmp_path)["failures"] == []


@pytest.mark.skipif(not RECORDED.is_dir(), reason="no recorded sessions here")
@pytest.mark.parametrize("stem", ["oc-sonnet46-unpaired", "cx-resumed-451", "oc-23compact"])
def test_a_recorded_session_replays_in_a_small_window_without_a_refused_request(
    stem: str, tmp_path: Path
) -> None:
    source = RECORDED / f"{stem}.jsonl"
    if not source.exists():
        pytest.skip(f"{stem} is not among the recordings")
    scenario = convert(source).scenario
    reports = [play(scenario, tmp_path / loop, loop=loop, window=32_000) for loop in ("asyncio", "trio")]
    for session in (s for report in reports for s in report["sessions"]):
        assert session["refused_requests"] == 0
        assert session["compactions"] > 0
    assert digests(reports[0]) == digests(reports[1])

"""Real recordings, where a folder of them is named by PERDURE_SESSIONS: every file of it comes in."""

from __future__ import annotations

import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from helpers_replay import out_of_step
from perdure.replay.importer import convert, write
from perdure.replay.scenario import parse
from perdure.replay.steps import ModelStep, UserStep

FOLDER = os.environ.get("PERDURE_SESSIONS")
FILES = sorted(Path(FOLDER).glob("*.jsonl")) if FOLDER else []
ADDED = (  # rows that tell of what was changed or made up, not of entries that stayed behind
    "damaged records", "details of tool results", "calls without a result (answered as interrupted)",
    "replies missing in the recording (made up as aborted)", "questions missing in the recording (made up)",
    "times that ran backwards (moved forward)", "blocks of unknown types",
    "calls cut off by the length limit",
)  # fmt: skip
SHOW = (
    "import sys; from hashlib import sha256; from perdure.replay.importer import convert, write\n"
    "for path in sys.argv[1:]: print(sha256(write(convert(path))).hexdigest())"
)

pytestmark = pytest.mark.skipif(not FILES, reason="PERDURE_SESSIONS names no folder of recordings")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_recording_becomes_a_script_that_keeps_in_step(path: Path) -> None:
    before = path.read_bytes()
    imported = convert(path)
    assert path.read_bytes() == before
    assert out_of_step(imported.scenario) == []
    assert parse(write(imported), "out.jsonl") == imported.scenario
    behind = sum(row.count for row in imported.lost if row.what not in ADDED)
    assert imported.kept + behind == imported.entries
    assert any(isinstance(step, UserStep) for step in imported.scenario.steps)
    assert any(isinstance(step, ModelStep) for step in imported.scenario.steps)


def test_two_processes_with_other_hash_seeds_write_the_same_bytes() -> None:
    here = "".join(f"{sha256(write(convert(path))).hexdigest()}\n" for path in FILES)
    there = subprocess.run(
        [sys.executable, "-c", SHOW, *map(str, FILES)],
        env={**os.environ, "PYTHONHASHSEED": "4242", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert there == here

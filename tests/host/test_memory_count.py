"""The count of owned bytes against what a process really took, in a process of its own for each case."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BAND = (0.7, 1.5)  # owned ÷ resident: a third too little for text of other scripts, half too much at most
PROGRAM = Path(__file__).parent.parent / "helpers_memory_program.py"
CASES = (
    (200, 1, 20, "the pump in row ", "legacy"),
    (40, 12, 300, "the pump in row ", "legacy"),
    (20, 12, 4_000, "水泵漏水了 ", "legacy"),
    (60, 4, 300, "the pump in row ", "similarity"),
    (60, 4, 300, "the pump in row ", "retrieval"),
)


@pytest.mark.parametrize(("sessions", "turns", "chars", "word", "engine"), CASES)
def test_owned_bytes_are_near_what_the_process_takes(
    sessions: int, turns: int, chars: int, word: str, engine: str
) -> None:
    told = subprocess.run(
        [sys.executable, str(PROGRAM), str(sessions), str(turns), str(chars), word, engine],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(PROGRAM.parent)},
        timeout=120,
    )
    found = json.loads(told.stdout)
    ratio = found["owned"] / found["resident"]
    assert BAND[0] <= ratio <= BAND[1], found

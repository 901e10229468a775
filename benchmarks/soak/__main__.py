"""`python -m benchmarks.soak`: SOAK_SESSIONS, SOAK_DAYS, SOAK_TURNS, SOAK_MEMORY_MB, SOAK_OUT, SOAK_LOOP.

A signal ends it in good order: everything so far is checked and reported. Exit 1 where a rule was broken.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

from benchmarks.soak.report import slope, write
from benchmarks.soak.run import Plan, run

MOST_SLOPE = 0.01  # of the mean, a virtual day


def main() -> int:
    """Play, report, clean up."""
    out = Path(os.environ.get("SOAK_OUT", "build/soak"))
    out.mkdir(parents=True, exist_ok=True)
    progress = out / "progress.jsonl"
    progress.unlink(missing_ok=True)
    state = tempfile.mkdtemp(prefix="perdure-soak-")
    plan = Plan(
        sessions=_number("SOAK_SESSIONS", 10_000),
        days=_number("SOAK_DAYS", 7),
        turns=_number("SOAK_TURNS", 0),
        memory_mb=_number("SOAK_MEMORY_MB", 512),
        state=state,
        progress=str(progress),
    )
    print(f"{plan.sessions:,} sessions, {plan.days} days, {plan.memory_mb} MB; hour by hour in {progress}")
    try:
        soak = run(plan, os.environ.get("SOAK_LOOP", "asyncio"))
    finally:
        shutil.rmtree(state, ignore_errors=True)
    page = write(soak, out)
    print(page.read_text(encoding="utf-8"))
    grown = slope(soak.samples)
    return 1 if soak.problems or (grown is not None and grown > MOST_SLOPE) else 0


def _number(name: str, default: int) -> int:
    told = os.environ.get(name, "")
    if told and not told.isdigit():
        sys.exit(f"{name}={told!r}: give a whole number")
    return int(told) if told else default


if __name__ == "__main__":
    sys.exit(main())

"""`python -m benchmarks [--quick] [--only NAME]… [--rounds N]`: measures, prints tables, ratios, verdicts."""

from __future__ import annotations

import argparse
import importlib
import platform
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

from benchmarks.areas.area import Plan, Report
from benchmarks.show import closing, goal_table

AREAS = ("opening", "appends", "durable", "turns", "defences", "memory", "kernel")
ASIDE = ("engines",)  # takes long, and is asked for by name


def main() -> None:
    """All areas, or those asked for."""
    told = _arguments()
    print(_heading(), flush=True)
    began, goals = time.monotonic(), []
    for name in told.only or AREAS:
        with tempfile.TemporaryDirectory(prefix="perdure-bench-") as folder:
            plan = Plan(Path(folder), told.rounds or (1 if told.quick else 3), told.quick, _progress)
            report: Report = importlib.import_module(f"benchmarks.areas.{name}").measure(plan)
        _progress("")
        print("\n".join([*report.tables, *(f"Note: {note}" for note in report.notes)]), flush=True)
        goals += report.goals
    print(goal_table(goals))
    print(closing(goals))
    print(f"\nMeasured in {(time.monotonic() - began) / 60:.1f} minutes.")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small cases, one round: one to three minutes")
    parser.add_argument("--only", action="append", choices=AREAS + ASIDE, help="one area; may be repeated")
    parser.add_argument("--rounds", type=int, help="runs of each cell (default 3, quick 1)")
    return parser.parse_args()


def _heading() -> str:
    names = ("anyio", "trio", "msgspec")
    found = ", ".join(f"{name} {version(name)}" for name in names)
    return (
        f"perdure {version('perdure')} on Python {platform.python_version()}, {found}. Medians; a fresh "
        "process for each figure, subjects interleaved.\n"
        "Times move with the machine: trust ratios inside this run."
    )


def _progress(text: str) -> None:
    """One line that is written over, where somebody looks."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text[:100]}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()

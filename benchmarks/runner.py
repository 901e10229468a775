"""Runs subjects, each in a fresh process, interleaved round by round, and keeps medians.

A noisy neighbour hits all subjects of a round alike, so ratios inside one run can be trusted where
absolute times can't.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.measure import MARK

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True, slots=True)
class Cell:
    """One subject in one case. `argv` follows the Python interpreter unless it names a program itself."""

    subject: str
    case: str
    argv: tuple[str, ...]
    rounds: int | None = None  # at most so many, for what takes long
    repeat: int = 1  # runs in each round, for what is short and decides a narrow goal
    timeout: float = 120.0


@dataclass(slots=True)
class Figures:
    """What was measured: values by subject, case and name, and why a cell gave none."""

    values: dict[tuple[str, str, str], list[float]] = field(default_factory=dict)
    failed: dict[tuple[str, str], str] = field(default_factory=dict)

    def add(self, cell: Cell, found: dict[str, float]) -> None:
        """The figures of one run."""
        for name, value in found.items():
            self.values.setdefault((cell.subject, cell.case, name), []).append(value)

    def get(self, subject: str, case: str, name: str) -> float | None:
        """The median over the rounds, `None` where it was not measured."""
        found = self.values.get((subject, case, name))
        return None if not found else statistics.median(found)

    def ratio(self, above: tuple[str, str, str], below: tuple[str, str, str]) -> float | None:
        """Median by median; `None` where either is missing."""
        a, b = self.get(*above), self.get(*below)
        return None if a is None or not b else a / b


def python(module: str, *argv: object) -> tuple[str, ...]:
    """The command line of a subject written in Python."""
    return (sys.executable, "-m", f"benchmarks.subjects.{module}", *map(str, argv))


def run(cells: Iterable[Cell], rounds: int, told: Callable[[str], None]) -> Figures:
    """All cells, `rounds` times in turn. A cell that fails is not tried again."""
    figures = Figures()
    for number in range(rounds):
        for cell in cells:
            if (cell.subject, cell.case) in figures.failed or number >= (cell.rounds or rounds):
                continue
            told(f"round {number + 1} of {rounds}: {cell.subject}, {cell.case}")
            for _ in range(cell.repeat):
                found, why = once(cell)
                if found is None:
                    figures.failed[cell.subject, cell.case] = why
                    break
                figures.add(cell, found)
    return figures


def once(cell: Cell) -> tuple[dict[str, float] | None, str]:
    """One fresh process; its figures, or in a line why there are none."""
    try:
        done = subprocess.run(cell.argv, cwd=ROOT, capture_output=True, text=True, timeout=cell.timeout)
    except subprocess.TimeoutExpired:
        return None, f"no result in {cell.timeout:g} s"
    for line in done.stdout.splitlines():
        if line.startswith(MARK):
            return json.loads(line.removeprefix(MARK)), ""
    last = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["it printed nothing"]
    return None, f"exit {done.returncode}: {last[0][:160]}"

"""What all areas have in common: the plan of a run, and what an area gives back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from benchmarks.goals import Goal, number
from benchmarks.runner import Figures
from benchmarks.show import table


@dataclass(frozen=True, slots=True)
class Plan:
    """How a run is made: `folder` is for files that it may write, `told` hears of progress."""

    folder: Path
    rounds: int
    quick: bool
    told: Callable[[str], None]


@dataclass(slots=True)
class Report:
    """An area's tables, notes and goals."""

    tables: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    goals: list[Goal] = field(default_factory=list)


class Area(Protocol):
    """A module with this function is an area."""

    def measure(self, plan: Plan) -> Report: ...


def grid(
    title: str, figures: Figures, subjects: Sequence[str], cases: Sequence[str], name: str, scale: float = 1.0
) -> str:
    """One figure as a table of subjects by cases, medians over the rounds."""
    rows = [
        [subject, *(_cell(figures, subject, case, name, scale) for case in cases)] for subject in subjects
    ]
    return table(title, ("", *cases), rows)


def failures(figures: Figures) -> list[str]:
    """A note for each cell that gave no figures."""
    return [f"{subject}, {case}: no figures ({why})" for (subject, case), why in figures.failed.items()]


def _cell(figures: Figures, subject: str, case: str, name: str, scale: float) -> str:
    value = figures.get(subject, case, name)
    if (subject, case) in figures.failed:
        return "failed"
    return number(None if value is None else value * scale)

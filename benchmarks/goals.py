"""Goals as data, and the sentence that says how far a measured figure is from its goal and why."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Goal:
    """`found` must be at most, or at least, `bound`; `None` where it could not be measured.

    `why` is computed from the figures of the same run: where the time or the memory goes.
    """

    number: str
    what: str
    found: float | None
    sense: Literal["<=", ">="]
    bound: float
    unit: str = "×"
    why: str = ""

    @property
    def met(self) -> bool | None:
        """`None` where nothing was measured."""
        if self.found is None:
            return None
        return self.found <= self.bound if self.sense == "<=" else self.found >= self.bound

    @property
    def verdict(self) -> str:
        """For the table."""
        return {None: "not measured", True: "met", False: "FALLS SHORT"}[self.met]

    @property
    def distance(self) -> float:
        """How many times better the figure would have to be."""
        assert self.found is not None
        if not self.bound or not self.found:
            return float("inf")
        return self.found / self.bound if self.sense == "<=" else self.bound / self.found


def number(value: float | None) -> str:
    """Three digits that count, in plain notation."""
    if value is None:
        return "–"
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    digits = 1 if abs(value) >= 10 else 2 if abs(value) >= 1 else 3
    return f"{value:.{digits}f}"


def shortfalls(goals: Iterable[Goal]) -> list[str]:
    """A line for each numbered goal that is not met in all its parts, the farthest first, with reasons."""
    missed: dict[str, list[Goal]] = {}
    for goal in sorted((g for g in goals if g.met is False), key=lambda g: -g.distance):
        missed.setdefault(goal.number, []).append(goal)
    return [_line(which, parts) for which, parts in missed.items()]


def _line(which: str, parts: list[Goal]) -> str:
    reasons = list(dict.fromkeys(goal.why for goal in parts if goal.why))
    found = "; ".join(map(_part, parts))
    return f"Goal {which}: {found}." + "".join(f" Why: {reason}." for reason in reasons)


def _part(goal: Goal) -> str:
    words = "at most" if goal.sense == "<=" else "at least"
    return (
        f"{goal.what}: {number(goal.found)} {goal.unit} where {words} {number(goal.bound)} {goal.unit} "
        f"is wanted ({goal.distance:.1f} times away)"
    )

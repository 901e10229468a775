"""Prints tables of figures and goals as plain text, aligned; no colour, so that it can be kept."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.goals import Goal, number, shortfalls


def table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A titled table: first column left, the others right."""
    widths = [max(len(row[i]) for row in (heads, *rows)) for i in range(len(heads))]
    lines = [_line(heads, widths), "  ".join("-" * width for width in widths)]
    return "\n".join([f"\n{title}", *lines, *(_line(row, widths) for row in rows)])


def goal_table(goals: Sequence[Goal]) -> str:
    """Each goal with what was found and whether it is met."""
    rows = [
        [
            f"{goal.number} {goal.what}",
            f"{number(goal.found)} {goal.unit}",
            f"{goal.sense} {number(goal.bound)}",
            goal.verdict,
        ]
        for goal in goals
    ]
    return table("Goals", ("goal", "found", "wanted", ""), rows)


def closing(goals: Sequence[Goal]) -> str:
    """How many goals are met, and a sentence for each that is not."""
    met = sum(goal.met is True for goal in goals)
    missing = sum(goal.met is None for goal in goals)
    head = f"\n{met} of {len(goals)} goals met"
    head += f", {missing} not measured" if missing else ""
    missed = shortfalls(goals)
    return "\n".join([f"{head}.", *(["\nWhat falls short:"] if missed else []), *(f"- {s}" for s in missed)])


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = zip(cells, widths, strict=True)
    parts = [first[0].ljust(first[1]), *(text.rjust(width) for text, width in others)]
    return "  ".join(parts).rstrip()

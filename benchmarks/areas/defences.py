"""What the lines of defence cost over 2,000 and 20,000 messages, anew and by the step (the mix of real work).

Flat growth: a step, and a persisted turn, behind 10,000 messages of history against behind 100, with the
same live view.
"""

from __future__ import annotations

from benchmarks.areas.area import Plan, Report, failures, grid
from benchmarks.goals import Goal, number
from benchmarks.runner import Cell, Figures, python, run
from benchmarks.show import table

SIZES, QUICK = (2_000, 20_000), (2_000,)
WHOLE, STEP, TRUNCATE = "whole", "step", "truncate"
PURE, TURN = "a step behind a compaction", "a persisted turn behind a compaction"
ROWS = (
    ("all at once, damaged: prepare", WHOLE, "prepare"),
    ("  sanitise alone", WHOLE, "sanitise"),
    ("  repair alone", WHOLE, "repair"),
    ("  guard alone", WHOLE, "guard"),
    ("one more step, a window with room", STEP, "roomy"),
    ("one more step, where the guard acts", STEP, "tight"),
    ("truncation, four compactions", TRUNCATE, "truncate"),
)
FEW, MANY = 100, 10_000
FLAT = 1.2


def measure(plan: Plan) -> Report:
    """Each size in fresh processes; the two of a flat goal side by side."""
    sizes = QUICK if plan.quick else SIZES
    figures = run(_cells(plan, sizes), plan.rounds, plan.told)
    cases = tuple(map(_case, sizes))
    rows = [[label, *(number(figures.get(what, case, name)) for case in cases)] for label, what, name in ROWS]
    few_many = (_case(FEW), _case(MANY))
    tables = [
        table(
            "The defences by live messages (truncation: by entries of the file), CPU ms", ("", *cases), rows
        ),
        grid("The pure pipeline by messages of history, CPU ms", figures, (PURE,), few_many, "step"),
        grid("A persisted turn by messages of history, CPU ms", figures, (TURN,), few_many, "cpu_ms"),
    ]
    return Report(tables=tables, notes=failures(figures), goals=_goals(figures))


def _case(messages: int) -> str:
    return f"{messages:,}"


def _cells(plan: Plan, sizes: tuple[int, ...]) -> list[Cell]:
    cells: list[Cell] = []
    for size in sizes:
        cells += [Cell(what, _case(size), _ours(plan, what, size)) for what in (WHOLE, STEP, TRUNCATE)]
    for size in (FEW, MANY):  # side by side, since the goal is narrow
        cells.append(Cell(PURE, _case(size), _ours(plan, "bounded", size), repeat=3))
        turn = python("turn", plan.folder, "asyncio", "bounded", size, "turn")
        cells.append(Cell(TURN, _case(size), turn, repeat=5))
    return cells


def _ours(plan: Plan, what: str, size: int) -> tuple[str, ...]:
    return python("defences", plan.folder, what, size)


def _goals(figures: Figures) -> list[Goal]:
    """`found` is a ratio inside this run."""
    few, many = _case(FEW), _case(MANY)
    return [
        Goal(
            "flat",
            f"{subject}, {many} messages against {few}",
            figures.ratio((subject, many, name), (subject, few, name)),
            "<=",
            FLAT,
        )
        for subject, name in ((PURE, "step"), (TURN, "cpu_ms"))
    ]

"""What the lines of defence cost over 2,000 and 20,000 messages, anew and by the step (the mix of real work).

Flat growth: a step, and a persisted turn, behind 10,000 messages of history against behind 100, with the
same live view.
"""

from __future__ import annotations

from benchmarks.areas.area import Plan, Report, failures
from benchmarks.goals import Goal, number
from benchmarks.runner import Cell, Figures, python, run
from benchmarks.show import table

SIZES, QUICK = (2_000, 20_000), (2_000,)
WHOLE, STEP, TRUNCATE = "whole", "step", "truncate"
FLAT, FLATS = (
    "flat",
    {
        "the pure step": ("step", "asyncio"),
        "a persisted turn": ("turn", "asyncio"),
        "a persisted turn, trio": ("turn", "trio"),
    },
)
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
MOST = 1.2


def measure(plan: Plan) -> Report:
    """Each size in fresh processes; the two of a flat goal side by side."""
    sizes = QUICK if plan.quick else SIZES
    figures = run(_cells(plan, sizes), plan.rounds, plan.told)
    cases = tuple(map(_case, sizes))
    rows = [[label, *(number(figures.get(what, case, name)) for case in cases)] for label, what, name in ROWS]
    tables = [
        table(
            "The defences by live messages (truncation: by entries of the file), CPU ms", ("", *cases), rows
        ),
        table(
            "Behind a compaction, by messages of history, CPU ms",
            ("", _case(FEW), _case(MANY)),
            [
                [what, *(number(figures.get(what, FLAT, name)) for name in ("few_ms", "many_ms"))]
                for what in FLATS
            ],
        ),
    ]
    return Report(tables=tables, notes=failures(figures), goals=_goals(figures))


def _case(messages: int) -> str:
    return f"{messages:,}"


def _cells(plan: Plan, sizes: tuple[int, ...]) -> list[Cell]:
    cells: list[Cell] = []
    for size in sizes:
        cells += [Cell(what, _case(size), _ours(plan, what, size)) for what in (WHOLE, STEP, TRUNCATE)]
    cells += [
        Cell(what, FLAT, python("flat", plan.folder, loop, part, FEW, MANY))
        for what, (part, loop) in FLATS.items()
    ]
    return cells


def _ours(plan: Plan, what: str, size: int) -> tuple[str, ...]:
    return python("defences", plan.folder, what, size)


def _goals(figures: Figures) -> list[Goal]:
    """Ratios of the same process, the two histories turn about."""
    return [
        Goal(
            "flat", f"{what}, {_case(MANY)} messages against {_case(FEW)}", _ratio(figures, what), "<=", MOST
        )
        for what in FLATS
    ]


def _ratio(figures: Figures, what: str) -> float | None:
    return figures.get(what, FLAT, "ratio")

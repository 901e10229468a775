"""What memory finds, by stage, and how long a search takes among 100,000 chunks, against brute force."""

from __future__ import annotations

from benchmarks.areas.area import Plan, Report, failures
from benchmarks.goals import Goal, number
from benchmarks.recall import LANGUAGES, ablation
from benchmarks.runner import Cell, Figures, python, run
from benchmarks.show import table

MANY, QUICK = 100_000, 5_000
KINDS = ("bit", "float")
ROWS = (
    ("search, all stages, CPU ms", "whole_ms"),
    ("the vectors alone, CPU ms", "near_ms"),
    ("floor: one matrix product in memory, CPU ms", "floor_ms"),
    ("of the ten exactly nearest, found, %", "recall"),
    ("passage that was asked about, found, %", "answered"),
    ("filling, CPU s", "fill_s"),
    ("on disk, MB", "megabytes"),
)
SLOWEST, SLOWEST_BY_SIGNS = 80.0, 25.0


def measure(plan: Plan) -> Report:
    """Quality in this process, speed in fresh ones."""
    plan.told("memory: what is found")
    scores = ablation(plan.folder / "recall")
    count = QUICK if plan.quick else MANY
    cells = [
        Cell(kind, f"{count:,}", python("remembering", plan.folder, kind, count), rounds=1, timeout=1_800.0)
        for kind in KINDS
    ]
    figures = run(cells, 1, plan.told)
    quality = [
        [name, *(number(value) for value in (score.recall, *score.by_language.values(), score.first))]
        + [number(value) for value in (score.wrong, score.newest, score.labelled, score.mislabelled)]
        for name, score in scores
    ]
    heads = ("", "recall@5", *LANGUAGES, "first", "wrong", "newest", "told past", "falsely")
    speed = [
        [label, *(number(figures.get(kind, f"{count:,}", name)) for kind in KINDS)] for label, name in ROWS
    ]
    tables = [
        table("memory-core on the corpus, with every stage on and off, %", heads, quality),
        table(f"Among {count:,} chunks of 60 words", ("", *KINDS), speed),
    ]
    everything = scores[0][1]
    goals = [
        Goal("memory", "recall@5, all stages", everything.recall, ">=", 97.0, "%"),
        Goal("memory", "facts that change: the newest first", everything.newest, ">=", 95.0, "%"),
        *(
            _goal(figures, count, kind, most)
            for kind, most in (("float", SLOWEST), ("bit", SLOWEST_BY_SIGNS))
        ),
    ]
    return Report(tables=tables, notes=failures(figures), goals=goals)


def _goal(figures: Figures, count: int, kind: str, most: float) -> Goal:
    found = figures.get(kind, f"{count:,}", "whole_ms")
    return Goal("memory", f"a search among {count:,} chunks, vectors as {kind}", found, "<=", most, "ms")

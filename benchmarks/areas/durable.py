"""Appending so that a power cut loses nothing acknowledged: a hundred writers (goal 12)."""

from __future__ import annotations

from benchmarks.areas.area import Plan, Report, failures, grid
from benchmarks.goals import Goal, number
from benchmarks.runner import Cell, Figures, python, run

CASE, LOOPS = "100 writers", ("asyncio", "uvloop", "trio")
EACH, SQLITE = "fdatasync each", "SQLite FULL per 100"


def measure(plan: Plan) -> Report:
    """Ours on three loops, one sync for each line, and SQLite, in one run."""
    figures = run(_cells(plan), plan.rounds, plan.told)
    subjects = [*(f"ours, {loop}" for loop in LOOPS), EACH, SQLITE]
    names = {
        "per_second": "durable lines/s",
        "cpu_us": "CPU µs a line",
        "p50_us": "p50 µs",
        "p99_us": "p99 µs",
    }
    return Report(
        tables=[
            grid(f"Durable appends of 1.5 kB: {told}", figures, subjects, (CASE,), name)
            for name, told in names.items()
        ],
        notes=failures(figures),
        goals=[goal for loop in LOOPS for goal in _goals(figures, loop)],
    )


def _cells(plan: Plan) -> list[Cell]:
    ways = [(f"ours, {loop}", "ours", loop) for loop in LOOPS]
    ways += [(EACH, "each", "-"), (SQLITE, "sqlite", "-")]
    return [Cell(name, CASE, python("durable", plan.folder, way, loop)) for name, way, loop in ways]


def _goals(figures: Figures, loop: str) -> list[Goal]:
    name, why = f"ours, {loop}", _parts(figures, f"ours, {loop}")

    def against(peer: str, mine: str, theirs: str) -> float | None:
        return figures.ratio((name, CASE, mine), (peer, CASE, theirs))

    return [
        Goal("12", f"{name} against {EACH}", against(EACH, "per_second", "per_second"), ">=", 10.0, why=why),
        Goal(
            "12", f"{name} against {SQLITE}", against(SQLITE, "per_second", "per_second"), ">=", 1.0, why=why
        ),
        Goal("12", f"{name}, p99 in fdatasyncs", against(EACH, "p99_us", "p50_us"), "<=", 25.0, why=why),
    ]


def _parts(figures: Figures, name: str) -> str:
    batch, spent = figures.get(name, CASE, "batch"), figures.get(name, CASE, "cpu_us")
    if batch is None or spent is None:
        return ""
    return f"{number(batch)} lines share a sync, and a line costs {number(spent)} µs of CPU"

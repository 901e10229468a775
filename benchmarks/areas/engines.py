"""The same sessions under every context engine in a 32k window, and what engines cost.

`PERDURE_SESSIONS` names a folder of recorded sessions; they are used in place. Without it a made-up session
stands for them. Facts are planted at the beginning of each, and asked for at its end.
"""

from __future__ import annotations

import os
from pathlib import Path

from benchmarks.areas.area import Plan, Report, failures
from benchmarks.goals import Goal, number
from benchmarks.runner import Cell, Figures, python, run
from benchmarks.show import table
from perdure.plugins.shipped import ENGINES

SYNTHETIC = "synthetic"
QUICK = 3
"""Recordings of a quick run, the smallest."""
CHUNKS, FEW = 100_000, 5_000
HEADS = (
    "", "requests", "refused", "overflows", "summaries", "tokens M", "cached %", "cost $", "shown %",
    "kept %", "other session %",
)  # fmt: skip
COST, CALL, RETRIEVAL = "cost", "call", "retrieval"


def measure(plan: Plan) -> Report:
    """All engines over all recordings, then the cost of calls and of retrieval."""
    sources = recordings(plan.quick)
    chunks = FEW if plan.quick else CHUNKS
    cells = [_replay(plan, engine, source) for source in sources for engine in ENGINES]
    cells.append(Cell(CALL, COST, python("engines", plan.folder, CALL)))
    cells.append(Cell(RETRIEVAL, COST, python("engines", plan.folder, RETRIEVAL, chunks), 1, timeout=1_800.0))
    figures = run(cells, plan.rounds, plan.told)
    cases = [Path(source).stem for source in sources]
    tables = [_table(figures, "All sessions together", cases)]
    tables += [_table(figures, case, [case]) for case in cases]
    tables.append(_costs(figures, chunks))
    return Report(tables, failures(figures), _goals(figures, cases, chunks))


def _replay(plan: Plan, engine: str, source: str) -> Cell:
    argv = python("engines", plan.folder, "replay", engine, source)
    return Cell(engine, Path(source).stem, argv, 1, timeout=900.0)


def recordings(quick: bool = False) -> list[str]:
    """The recorded sessions, or the made-up one."""
    folder = os.environ.get("PERDURE_SESSIONS", "")
    found = sorted(Path(folder).glob("*.jsonl"), key=lambda path: path.stat().st_size) if folder else []
    return [str(path) for path in (found[:QUICK] if quick else found)] or [SYNTHETIC]


def _table(figures: Figures, title: str, cases: list[str]) -> str:
    return table(title, HEADS, [_row(figures, engine, cases) for engine in ENGINES])


def _row(figures: Figures, engine: str, cases: list[str]) -> list[str]:
    def total(name: str) -> float | None:
        found = [figures.get(engine, case, name) for case in cases]
        known = [value for value in found if value is not None]
        return sum(known) if known else None

    def mean(name: str) -> float | None:
        whole, known = total(name), sum(figures.get(engine, case, name) is not None for case in cases)
        return None if whole is None else 100 * whole / known

    tokens = total("tokens")
    counts = [number(total(name)) for name in ("requests", "refused", "overflows", "compactions")]
    shares = [number(mean(name)) for name in ("shown", "kept", "elsewhere")]
    million = number(None if tokens is None else tokens / 1e6)
    return [engine, *counts, million, number(mean("cached")), number(total("cost")), *shares]


def _costs(figures: Figures, chunks: int) -> str:
    rows = [
        ("an engine called directly, µs of CPU", CALL, "direct_us"),
        ("an engine called by the host, µs of CPU", CALL, "called_us"),
        (f"retrieval: a question at {chunks:,} chunks, p50 ms of CPU", RETRIEVAL, "asked_ms"),
        ("retrieval: a further step of its turn, p50 ms of CPU", RETRIEVAL, "step_ms"),
        ("retrieval: an entry indexed, the first tenth, ms of CPU", RETRIEVAL, "early_ms"),
        ("retrieval: an entry indexed, the last tenth, ms of CPU", RETRIEVAL, "late_ms"),
    ]
    told = [[label, number(figures.get(subject, COST, name))] for label, subject, name in rows]
    return table("What engines cost", ("", "median"), told)


def _goals(figures: Figures, cases: list[str], chunks: int) -> list[Goal]:
    refused = [figures.get(engine, case, "refused") for engine in ENGINES for case in cases]
    whole = None if None in refused else float(sum(value or 0 for value in refused))
    called, direct = figures.get(CALL, COST, "called_us"), figures.get(CALL, COST, "direct_us")
    added = None if called is None or direct is None else called - direct
    asked = figures.get(RETRIEVAL, COST, "asked_ms")
    grown = figures.ratio((RETRIEVAL, COST, "late_ms"), (RETRIEVAL, COST, "early_ms"))
    return [
        Goal("engines", "requests refused under any engine", whole, "<=", 0, ""),
        Goal("engines", "a call adds", added, "<=", 60, "µs"),
        Goal("engines", f"retrieval at {chunks:,} chunks, p50", asked, "<=", 80, "ms"),
        Goal("engines", "an entry indexed late against early", grown, "<=", 1.5),
    ]

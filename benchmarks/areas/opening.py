"""Opening a session with the context of its next request, at 2k, 20k and 200k entries (goals 9 and 10)."""

from __future__ import annotations

from pathlib import Path

from benchmarks import peers, sessions
from benchmarks.areas.area import Plan, Report, failures, grid
from benchmarks.goals import Goal, number
from benchmarks.runner import ROOT, Cell, Figures, python, run

SIZES = {"2k": 2_000, "20k": 20_000, "200k": 200_000}
QUICK = ("2k", "20k")
TAIL, FOREIGN = "ours, from the tail", "ours, foreign file, first time"
INDEX, VIEW, WHOLE = "ours, all heads", "ours, all heads + context", "ours, everything decoded"
FLOOR, PI = "floor: bare heads", "pi"
WAYS = {INDEX: "index", VIEW: "view", WHOLE: "whole", FLOOR: "heads"}
MODULE = ROOT / "benchmarks" / "subjects" / "pi.mjs"


def measure(plan: Plan) -> Report:
    """Write the files, open them each way, compare."""
    cases = QUICK if plan.quick else tuple(SIZES)
    node, why = peers.find_pi()
    cells: list[Cell] = []
    for case in cases:
        plan.told(f"writing a session of {case} entries")
        cells += _cells(case, _files(plan.folder, case), node)
    figures = run(cells, plan.rounds, plan.told)
    for path in plan.folder.glob("session-*.jsonl"):
        path.unlink()
    subjects = [TAIL, FOREIGN, *WAYS, *([PI] if node else [])]
    return Report(
        tables=[
            grid("Opening with context, CPU ms", figures, subjects, cases, "cpu_ms"),
            grid("Opening with context, wall ms", figures, subjects, cases, "wall_ms"),
            grid("Memory added, MB", figures, subjects, cases, "held_mb"),
        ],
        notes=[*([why] if why else []), *_same_context(figures, cases), *failures(figures)],
        goals=[*_tail_goals(figures, cases), *_load_goals(figures, cases)],
    )


def _files(folder: Path, case: str) -> tuple[Path, Path]:
    ours, foreign = folder / f"session-{case}.jsonl", folder / f"session-{case}-foreign.jsonl"
    sessions.write(ours, SIZES[case])
    sessions.write_foreign(foreign, ours)
    return ours, foreign


def _cells(case: str, files: tuple[Path, Path], node: str | None) -> list[Cell]:
    ours, foreign = files
    long = 2 if case == "200k" else None
    cells = [
        Cell(TAIL, case, python("opening", ours, "tail"), repeat=3),
        Cell(FOREIGN, case, python("opening", foreign, "tail"), rounds=long),
        *(Cell(name, case, python("opening", ours, way), rounds=long) for name, way in WAYS.items()),
    ]
    if node:
        command = (node, "--expose-gc", str(MODULE), str(peers.MANAGER), str(ours), "open")
        cells.append(Cell(PI, case, command, rounds=1 if long else None, timeout=180))
    return cells


def _same_context(figures: Figures, cases: tuple[str, ...]) -> list[str]:
    """Comparing is fair only where both sides end with the same number of context messages."""
    notes = []
    for case in cases:
        ours, theirs = (figures.get(who, case, "messages") for who in (TAIL, PI))
        if theirs is not None and ours != theirs:
            notes.append(
                f"{case}: ours has {number(ours)} context messages, pi {number(theirs)}: not comparable"
            )
    live = figures.get(TAIL, cases[-1], "messages")
    return notes or [f"Context messages from every subject: {number(live)}."]


def _tail_goals(figures: Figures, cases: tuple[str, ...]) -> list[Goal]:
    last = cases[-1]
    growth = figures.ratio((TAIL, last, "cpu_ms"), (TAIL, "2k", "cpu_ms"))
    goals = [Goal("9", f"waking at {last} against 2k", growth, "<=", 1.5)]
    for case, bound in (("20k", 100.0), ("200k", 1_000.0)):
        if case in cases:
            found = figures.ratio((PI, case, "cpu_ms"), (TAIL, case, "cpu_ms"))
            goals.append(
                Goal("9", f"pi's time against waking at {case}", found, ">=", bound, why=_live(figures, case))
            )
    memory = figures.ratio((PI, last, "held_mb"), (TAIL, last, "held_mb"))
    if last == "200k":
        goals.append(Goal("9", f"pi's memory against ours at {last}", memory, ">=", 300.0))
    return goals


def _live(figures: Figures, case: str) -> str:
    """Waking can't cost less than decoding what is live."""
    ms, live = figures.get(TAIL, case, "cpu_ms"), figures.get(TAIL, case, "messages")
    if ms is None or not live:
        return ""
    return (
        f"waking took {number(ms)} ms for {number(live)} live messages ({number(ms / live * 1e3)} µs each); "
        "its cost follows what is live, pi's the whole file"
    )


def _load_goals(figures: Figures, cases: tuple[str, ...]) -> list[Goal]:
    case = cases[-1]
    floor = figures.ratio((INDEX, case, "cpu_ms"), (FLOOR, case, "cpu_ms"))
    why = f"the index costs {number(floor)} × a bare head scan, the rest are its checks" if floor else ""
    goals = []
    for what, above, name, below, bound in (
        ("pi's open against our index", PI, "open_ms", INDEX, 5.0),
        ("our full load against our index", WHOLE, "cpu_ms", INDEX, 2.0),
        ("pi's open against our full load", PI, "open_ms", WHOLE, 3.0),
    ):
        found = figures.ratio((above, case, name), (below, case, "cpu_ms"))
        goals.append(Goal("10", f"{what} at {case}", found, ">=", bound, why=why))
    return goals

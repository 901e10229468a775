"""What a persisted turn costs as history grows, beside openai-agents and pydantic-ai (goals 13 to 15)."""

from __future__ import annotations

from benchmarks.areas.area import Plan, Report, failures, grid
from benchmarks.goals import Goal, number
from benchmarks.runner import Cell, Figures, python, run

SIZES = (10, 100, 1_000, 10_000)
FLAT_FROM, LONGEST = 100, 100_000  # of a bounded history: goal 14
QUICK = (10, 1_000)
PEERS = ("openai-agents", "pydantic-ai")
BOUNDED, OPEN = "ours, live context bounded", "ours, all of it live"
LOOPS = {"asyncio": BOUNDED, "uvloop": f"{BOUNDED}, uvloop", "trio": f"{BOUNDED}, trio"}
PARTS_BOUNDED, PARTS_OPEN = "parts, bounded", "parts, open"


def measure(plan: Plan) -> Report:
    """Ours in both kinds and on each loop, the peers with all of their history."""
    sizes = QUICK if plan.quick else SIZES
    figures = run(_cells(plan, sizes), plan.rounds, plan.told)
    cases = tuple(map(_case, (*sizes, *([] if plan.quick else [LONGEST]))))
    subjects = (*LOOPS.values(), OPEN, *PEERS)
    return Report(
        tables=[
            grid("A persisted turn by messages of history, CPU ms", figures, subjects, cases, "cpu_ms"),
            grid("The same, wall ms", figures, subjects, cases, "wall_ms"),
            grid("The same, kB written", figures, subjects, cases, "written_kb"),
        ],
        notes=failures(figures),
        goals=_goals(figures, sizes, cases),
    )


def _case(messages: int) -> str:
    return f"{messages:,}"


def _cells(plan: Plan, sizes: tuple[int, ...]) -> list[Cell]:
    cells: list[Cell] = []
    for size in sizes:
        loops = LOOPS if size in QUICK else {"asyncio": BOUNDED}
        cells += [_ours(plan, name, loop, "bounded", size) for loop, name in loops.items()]
        cells.append(_ours(plan, OPEN, "asyncio", "open", size))
        cells += [_peer(plan, name, size) for name in PEERS]
        if size == FLAT_FROM:  # side by side, since the goal is narrow
            cells.append(_ours(plan, BOUNDED, "asyncio", "bounded", LONGEST))
    cells.append(_ours(plan, PARTS_BOUNDED, "asyncio", "bounded", sizes[0], "parts"))
    cells.append(_ours(plan, PARTS_OPEN, "asyncio", "open", sizes[-1], "parts"))
    return cells


def _ours(plan: Plan, name: str, loop: str, kind: str, size: int, what: str = "turn") -> Cell:
    often = 3 if name == BOUNDED and size in (FLAT_FROM, LONGEST) else 1
    return Cell(name, _case(size), python("turn", plan.folder, loop, kind, size, what), repeat=often)


def _peer(plan: Plan, name: str, size: int) -> Cell:
    most = 2 if size >= 10_000 else None
    return Cell(name, _case(size), python("turn_peer", plan.folder, name, size), rounds=most)


# --- goals ----------------------------------------------------------------------------------------


def _goals(figures: Figures, sizes: tuple[int, ...], cases: tuple[str, ...]) -> list[Goal]:
    first, last = cases[0], _case(sizes[-1])
    why = _bounded_why(figures, first)
    goals = [
        Goal(
            "13", f"a turn at {first} messages", figures.get(BOUNDED, first, "cpu_ms"), "<=", 0.35, "ms", why
        )
    ]
    for size, bound in ((10, 10.0), (1_000, 50.0), (10_000, 300.0)):
        if size in sizes:
            found = _best_against(figures, BOUNDED, _case(size))
            goals.append(Goal("13", f"best peer against ours at {size:,}", found, ">=", bound, why=why))
    return [*goals, *_flat(figures, cases), *_open(figures, first, last)]


def _flat(figures: Figures, cases: tuple[str, ...]) -> list[Goal]:
    start, end = cases[1] if len(cases) > 2 else cases[0], cases[-1]
    return [
        Goal(
            "14",
            f"{what} of a turn at {end} against {start}",
            figures.ratio((BOUNDED, end, name), (BOUNDED, start, name)),
            "<=",
            1.2,
        )
        for what, name in (("CPU", "cpu_ms"), ("bytes written", "written_kb"))
    ]


def _open(figures: Figures, first: str, last: str) -> list[Goal]:
    small, large = figures.get(OPEN, first, "cpu_ms"), figures.get(OPEN, last, "cpu_ms")
    added = None if small is None or large is None else large - small
    why = _open_why(figures, last)
    best = _best_against(figures, OPEN, last)
    return [
        Goal("15", f"CPU that {last} live messages add", added, "<=", 3.0, "ms", why),
        Goal("15", f"best peer against ours, {last} live", best, ">=", 40.0, why=why),
    ]


def _best_against(figures: Figures, ours: str, case: str) -> float | None:
    """The cheapest peer's time as a multiple of ours."""
    found = [figures.ratio((peer, case, "cpu_ms"), (ours, case, "cpu_ms")) for peer in PEERS]
    return min((ratio for ratio in found if ratio is not None), default=None)


def _bounded_why(figures: Figures, case: str) -> str:
    whole, pipeline, append = (
        figures.get(PARTS_BOUNDED, case, f"{name}_ms") for name in ("whole", "pipeline", "append")
    )
    if whole is None or pipeline is None or append is None:
        return ""
    rest = whole - pipeline - append
    return (
        f"of {number(whole)} ms the pipeline from stored entries to request bytes takes {number(pipeline)}, "
        f"the two appends {number(append)}, mail, jobs and the session's own work {number(rest)}"
    )


def _open_why(figures: Figures, case: str) -> str:
    whole, history, request = (
        figures.get(PARTS_OPEN, case, f"{name}_ms") for name in ("whole", "history", "request")
    )
    if whole is None or history is None or request is None:
        return ""
    return (
        f"of {number(whole)} ms a turn the safety steps take {number(history)}, prune, guard, seal and "
        f"rendering {number(request)}, all else {number(whole - history - request)}"
    )

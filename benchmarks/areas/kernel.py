"""Idle memory, fan-out, ask, restart and mailbox latency beside task actors and pykka (goals 1 to 7)."""

from __future__ import annotations

from benchmarks.areas.area import Plan, Report, failures
from benchmarks.goals import Goal, number
from benchmarks.runner import Cell, Figures, python, run
from benchmarks.show import table

OURS = {loop: f"ours, {loop}" for loop in ("asyncio", "uvloop", "trio")}
SESSIONS = "ours, sleeping sessions of a host"
QUEUE, QUEUE_UV, STREAM, STREAM_TRIO = (
    "asyncio.Queue task",
    "asyncio.Queue task, uvloop",
    "anyio stream task",
    "anyio stream task, trio",
)
CHANNEL, PYKKA = "trio channel task", "pykka"
TASKS = {
    QUEUE: ("asyncio.Queue", "asyncio"),
    QUEUE_UV: ("asyncio.Queue", "uvloop"),
    STREAM: ("stream", "asyncio"),
    STREAM_TRIO: ("stream", "trio"),
    CHANNEL: ("channel", "trio"),
}
MANY, MORE = 10_000, 100_000  # idle actors; pykka can't make the larger number (a thread each)
COLUMNS = (
    ("idle, bytes each at 10k", "idle", "bytes_each"),
    ("at 100k", "idle 100k", "bytes_each"),
    ("made/s at 10k", "idle", "per_second"),
    ("tell/s to one", "work", "tells"),
    ("fan-out/s to 10k", "work", "fanout"),
    ("ask p50 µs", "work", "ask_us"),
    ("restart p50 µs", "work", "restart_us"),
    ("load p50 µs", "work", "load_us"),
    ("load p99 µs", "work", "load_p99_us"),
)


def measure(plan: Plan) -> Report:
    """All designs through one drill."""
    figures = run(_cells(plan), plan.rounds, plan.told)
    subjects = (*OURS.values(), SESSIONS, *TASKS, PYKKA)
    rows = [
        [subject, *(number(figures.get(subject, case, name)) for _, case, name in COLUMNS)]
        for subject in subjects
    ]
    heading = "Actors (rates per second of CPU time; load: 5,000 timed messages a second to 10,000 actors)"
    return Report(
        tables=[table(heading, ("", *(head for head, _, _ in COLUMNS)), rows)],
        notes=failures(figures),
        goals=[*_memory(figures), *_rates(figures), *_latency(figures)],
    )


def _cells(plan: Plan) -> list[Cell]:
    cells: list[Cell] = []
    for case, what in _cases(plan).items():
        once = 1 if case == "idle 100k" else None  # memory doesn't vary from run to run
        cells += [
            Cell(name, case, python("actors_ours", loop, *what), rounds=once) for loop, name in OURS.items()
        ]
        if case != "work":
            cells.append(
                Cell(SESSIONS, case, python("actors_ours", "asyncio", "sessions", what[1], plan.folder))
            )
        if case != "idle 100k":
            cells.append(Cell(PYKKA, case, python("actors_pykka", *what), rounds=2))
        cells += [
            Cell(name, case, python("actors_tasks", *design, *what), rounds=once or 2)
            for name, design in TASKS.items()
        ]
    return cells


def _cases(plan: Plan) -> dict[str, tuple[str, ...]]:
    cases: dict[str, tuple[str, ...]] = {"idle": ("idle", str(MANY)), "work": ("work",)}
    return cases if plan.quick else {**cases, "idle 100k": ("idle", str(MORE))}


# --- goals ----------------------------------------------------------------------------------------


def _memory(figures: Figures) -> list[Goal]:
    held = figures.get(SESSIONS, "idle", "bytes_each")
    bare = figures.get(OURS["asyncio"], "idle", "bytes_each")
    why = ""
    if held is not None and bare is not None:
        more = number(held - bare)
        why = f"a bare actor holds {number(bare)} bytes, the session's key and what wakes it {more}"
    goals = [Goal("1", "an idle session", held, "<=", 1_000.0, "bytes", why)]
    for peer, bound in ((PYKKA, 20.0), (QUEUE, 4.0), (STREAM, 8.0)):
        found = figures.ratio((peer, "idle", "bytes_each"), (SESSIONS, "idle", "bytes_each"))
        goals.append(Goal("1", f"{peer}'s memory against an idle session's", found, ">=", bound, why=why))
    larger = figures.get(SESSIONS, "idle 100k", "bytes_each")
    if larger is not None:
        goals.append(Goal("1", "an idle session, among 100k", larger, "<=", 1_000.0, "bytes", why))
    made = figures.ratio((SESSIONS, "idle", "per_second"), (PYKKA, "idle", "per_second"))
    return [*goals, Goal("2", "sessions registered against pykka's starts", made, ">=", 25.0)]


def _rates(figures: Figures) -> list[Goal]:
    return [
        _faster(figures, which, name, OURS[loop], peer, bound)
        for which, name, loop, peer, bound in (
            ("3", "fanout", "asyncio", QUEUE, 2.0),
            ("3", "fanout", "uvloop", QUEUE_UV, 2.0),
            ("3", "fanout", "asyncio", STREAM, 20.0),
            ("3", "fanout", "trio", STREAM_TRIO, 20.0),
            ("3", "fanout", "asyncio", PYKKA, 100.0),
            ("4", "tells", "asyncio", QUEUE, 0.5),
            ("4", "tells", "asyncio", STREAM, 4.0),
            ("4", "tells", "trio", STREAM_TRIO, 4.0),
            ("4", "tells", "asyncio", PYKKA, 2.5),
        )
    ]


def _faster(figures: Figures, which: str, name: str, ours: str, peer: str, bound: float) -> Goal:
    what = {"fanout": "fan-out", "tells": "tell to one"}[name]
    rate = figures.get(ours, "work", name)
    why = f"a message costs {number(1e6 / rate)} µs of CPU in the kernel" if rate else ""
    found = figures.ratio((ours, "work", name), (peer, "work", name))
    return Goal(which, f"{what}, {ours} against {peer}", found, ">=", bound, why=why)


def _latency(figures: Figures) -> list[Goal]:
    goals = [
        _slower(figures, which, what, name, OURS[loop], peer, bound)
        for which, what, name, loop, peer, bound in (
            ("5", "ask", "ask_us", "asyncio", QUEUE, 3.0),
            ("5", "ask", "ask_us", "uvloop", QUEUE_UV, 3.0),
            ("5", "ask", "ask_us", "trio", CHANNEL, 1.6),
            ("6", "p99 under load", "load_p99_us", "asyncio", QUEUE, 1.0),
            ("6", "p99 under load", "load_p99_us", "trio", CHANNEL, 1.0),
            ("6", "p99 under load", "load_p99_us", "asyncio", PYKKA, 0.02),
            ("7", "restart", "restart_us", "asyncio", PYKKA, 0.25),
        )
    ]
    for loop, name in OURS.items():
        found = figures.ratio((name, "work", "restart_us"), (name, "work", "ask_us"))
        goals.append(Goal("7", f"restart against an ask, {loop}", found, "<=", 3.0))
    return goals


def _slower(figures: Figures, which: str, what: str, name: str, ours: str, peer: str, bound: float) -> Goal:
    mine, theirs = figures.get(ours, "work", name), figures.get(peer, "work", name)
    why = f"{number(mine)} µs against {number(theirs)} µs of wall time"
    found = figures.ratio((ours, "work", name), (peer, "work", name))
    return Goal(which, f"{what}, {ours} against {peer}", found, "<=", bound, why=why)

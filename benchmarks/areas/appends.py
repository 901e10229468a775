"""Appending without fsync, encoding included, at one writer and at a hundred (goal 11)."""

from __future__ import annotations

from benchmarks import peers, sessions
from benchmarks.areas.area import Plan, Report, failures, grid
from benchmarks.areas.opening import MODULE
from benchmarks.goals import Goal, number
from benchmarks.runner import Cell, Figures, python, run

OURS, THREAD, AIO, PI = "ours", "anyio.to_thread", "aiofiles", "pi"
WAYS = {OURS: "ours", THREAD: "thread", AIO: "aiofiles"}
WRITERS = {"1 writer": 1, "100 writers": 100}
PI_ENTRIES = 2_000  # pi's append slows with the length of its file; this is its good case


def measure(plan: Plan) -> Report:
    """Ours and the thread hops on the same lines; pi where node is installed."""
    node, why = peers.find_pi()
    figures = run(_cells(plan, node), plan.rounds, plan.told)
    subjects = [*WAYS, *([PI] if node else [])]
    return Report(
        tables=[
            grid("Appending a message of 1.4 kB, CPU µs", figures, subjects, tuple(WRITERS), "cpu_us"),
            grid("The same, wall µs", figures, subjects, tuple(WRITERS), "wall_us"),
            grid("The same, p99 of one append, wall µs", figures, tuple(WAYS), tuple(WRITERS), "p99_us"),
        ],
        notes=[*([why] if why else []), *failures(figures)],
        goals=_goals(figures),
    )


def _cells(plan: Plan, node: str | None) -> list[Cell]:
    cells = []
    for name, way in WAYS.items():
        for case, writers in WRITERS.items():
            cells.append(Cell(name, case, python("appending", plan.folder, way, writers)))
    if node:
        file = plan.folder / "pi.jsonl"
        sessions.write(file, PI_ENTRIES)
        command = (node, "--expose-gc", str(MODULE), str(peers.MANAGER), str(file), "append")
        cells.append(Cell(PI, "1 writer", (*command, str(plan.folder / "pi-copy.jsonl"))))
    return cells


def _goals(figures: Figures) -> list[Goal]:
    why = _parts(figures)
    one, many = tuple(WRITERS)
    return [
        Goal("11", "pi's append against ours", _against(figures, PI, one), ">=", 4.0, why=why),
        Goal("11", f"anyio.to_thread, {many}", _against(figures, THREAD, many), ">=", 8.0, why=why),
        Goal("11", f"aiofiles, {many}", _against(figures, AIO, many), ">=", 8.0, why=why),
    ]


def _against(figures: Figures, peer: str, case: str) -> float | None:
    return figures.ratio((peer, case, "cpu_us"), (OURS, case, "cpu_us"))


def _parts(figures: Figures) -> str:
    """An append is an encoding and a checked write: how much is which."""
    whole, encode = figures.get(OURS, "1 writer", "cpu_us"), figures.get(OURS, "1 writer", "encode_us")
    if whole is None or encode is None:
        return ""
    return (
        f"of {number(whole)} µs at one writer {number(encode)} are ids and encoding, the rest is the write "
        "between two looks at who owns the file"
    )

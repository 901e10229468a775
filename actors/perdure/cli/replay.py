"""`perdure replay`: scenarios in virtual time; exit 0 only if all that they expect holds."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Any, Literal

import anyio

from perdure.cli.loops import loop_of
from perdure.cli.output import emit, say, table
from perdure.errors import UsageError
from perdure.replay.player import Player
from perdure.replay.scenario import Scenario, load


def run(
    paths: list[Path],
    *,
    window: int | None,
    seed: int | None,
    backend: Literal["asyncio", "uvloop", "trio"],
    keep: Path | None,
    as_json: bool,
) -> int:
    """Run each scenario; one object for one, `{"runs": […]}` for several."""
    files = scenarios(paths)
    loaded = [load(path) for path in files]  # all are read before the first is run
    reports = []
    for path, scenario in zip(files, loaded, strict=True):
        report = play(scenario, path.stem, window, seed, backend, keep)
        reports.append(report)
        if not as_json:
            show(report)
            if keep is not None:
                say(f"kept in {keep / path.stem}")
                say()
    if as_json:
        emit(reports[0] if len(reports) == 1 else {"ok": all(r["ok"] for r in reports), "runs": reports})
    return 0 if all(r["ok"] for r in reports) else 1


def scenarios(paths: list[Path]) -> list[Path]:
    """The files meant: of a folder all `*.jsonl` in it. Raises `UsageError` where there is none."""
    found: list[Path] = []
    for path in paths:
        files = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
        if not files:
            raise UsageError(f"{path}: no scenario (*.jsonl) in this folder")
        found += files
    return found


def play(
    scenario: Scenario,
    name: str,
    window: int | None,
    seed: int | None,
    backend: Literal["asyncio", "uvloop", "trio"],
    keep: Path | None,
) -> dict[str, Any]:
    """One run, in a folder that goes, or in `keep`/name."""
    loop, options = loop_of(backend)
    with tempfile.TemporaryDirectory(prefix="perdure-replay-") as temporary:
        folder = keep / name if keep is not None else Path(temporary)
        if keep is not None and (folder / "state").exists():
            raise UsageError(f"{folder}: holds an earlier run: choose another folder for --keep")
        player = Player(scenario, folder, window=window, seed=seed)
        report: dict[str, Any] = anyio.run(partial(player.play), backend=loop, backend_options=options)
    return report | ({"kept": str(folder)} if keep is not None else {})


def show(report: dict[str, Any]) -> None:
    """A verdict, the failures, a line a session."""
    say(f"{'ok    ' if report['ok'] else 'FAILED'}  {report['scenario']}")
    for failure in report["failures"]:
        say(f"        {failure}")
    rows: list[tuple[str, ...]] = [
        (
            "session",
            "turns",
            "steps",
            "requests",
            "compactions",
            "truncations",
            "overflows",
            "from cache",
            "USD",
        )
    ]
    for s in report["sessions"]:
        tokens = s["tokens"]
        prompt = tokens["input"] + tokens["cache_read"] + tokens["cache_write"]
        share = f"{tokens['cache_read'] / prompt:.0%}" if prompt else "-"
        counts = (s["turns"], s["steps"], s["requests"], s["compactions"], s["truncations"], s["overflows"])
        rows.append((s["key"], *(f"{n:,}" for n in counts), share, f"{s['cost_usd']:.2f}"))
    say(table(rows, frozenset(range(1, 9))))
    say()

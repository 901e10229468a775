"""`perdure demo`: many sessions through virtual days on the embedded model, and what became of them."""

from __future__ import annotations

import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any, Literal

import anyio

from perdure.cli.loops import loop_of
from perdure.cli.output import emit, say, table, warn
from perdure.context.numbers import SIZE_BYTES
from perdure.edges.models import catalog
from perdure.edges.models.accounting import Accounting
from perdure.edges.models.scripted import ScriptedModel
from perdure.edges.session import keys
from perdure.edges.session.history import History
from perdure.errors import UsageError
from perdure.host import Host, Sent
from perdure.kernel.virtual import VirtualClock
from perdure.records import ModelInfo, Usage
from perdure.replay import week
from perdure.replay.cast import Stage
from perdure.replay.watch import Watch, WatchedModel

WINDOW = 32_000
TRUNCATE_AFTER = 256 * 1024  # bytes: a demo is too short for the usual two MiB
MOST_AWAKE = 96
START = 1_767_225_600_000  # 2026-01-01, a fixed day: the demo is the same whenever it runs

assert TRUNCATE_AFTER < SIZE_BYTES


def run(
    *, sessions: int, days: int, seed: int, backend: Literal["asyncio", "uvloop", "trio"], as_json: bool
) -> int:
    """Host them, show progress, end with a table; exit 1 if anything was lost or refused."""
    for told, count in (("--sessions", sessions), ("--days", days)):
        if count < 1:
            raise UsageError(f"{told} {count}: give a number of 1 or more")
    name, options = loop_of(backend)
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="perdure-demo-") as folder:
        play = partial(_play, Path(folder), sessions, days, seed, Progress(days, quiet=as_json))
        report = anyio.run(play, backend=name, backend_options=options)
    report["seconds"] = round(time.perf_counter() - began, 1)
    emit(report) if as_json else show(report)
    return 0 if not report["lost"] and not report["refused"] and not report["errors"] else 1


async def _play(folder: Path, sessions: int, days: int, seed: int, progress: Progress) -> dict[str, Any]:
    clock, watch = VirtualClock(seed, START), Watch()
    stage, accounting = Stage(clock), Accounting()
    acknowledged: dict[str, list[str]] = {}

    def model(info: ModelInfo) -> WatchedModel:
        scripted = ScriptedModel(info, week.answer, clock, accounting=accounting)
        return WatchedModel(scripted, watch, stage, keep_text=False)

    def sent(key: str, mid: str, _: Sent) -> None:
        acknowledged.setdefault(key, []).append(mid)
        progress.tick(clock.now())

    week.furnish(folder / "state" / "workspaces")
    host = Host(
        folder / "state",
        model="scripted",
        factories={"scripted": model},
        models={"scripted": catalog.resolve("scripted")},
        window=WINDOW,
        clock=clock,
        most_awake=MOST_AWAKE,
        truncate_after=TRUNCATE_AFTER,
        environ={},
    )
    async with host:
        host.services.events.subscribe("demo", watch.event)
        await host.kernel.gather("users", *(partial(week.live, host, n, days, sent) for n in range(sessions)))
        totals = host.status()["totals"]
    progress.done()
    return _report(folder, watch, acknowledged, totals, days)


def _report(
    folder: Path, watch: Watch, acknowledged: dict[str, list[str]], totals: dict[str, Any], days: int
) -> dict[str, Any]:
    seen = list(watch.sessions.values())
    usage = sum((s.usage for s in seen), Usage())
    paths = {key: folder / "state" / "sessions" / keys.relative_path(key) for key in acknowledged}
    return {
        "sessions": len(acknowledged),
        "days": days,
        "messages": sum(map(len, acknowledged.values())),
        "turns": sum(s.turns for s in seen),
        "model_calls": sum(s.requests for s in seen),
        "compactions": sum(s.compactions for s in seen),
        "truncations": sum(s.truncations for s in seen),
        "sleeps": totals["sleeps"],
        "cache_read_share": round(usage.cache_read / max(1, usage.prompt), 3),
        "cost_usd": round(usage.cost_usd, 2),
        "refused": sum(s.refused for s in seen),
        "errors": sum(s.errors + s.overflows for s in seen),
        "lost": sum(History(paths[key]).missing_mids(mids) for key, mids in acknowledged.items()),
        "bytes": sum(p.stat().st_size for p in (folder / "state" / "sessions").rglob("*") if p.is_file()),
    }


def show(report: dict[str, Any]) -> None:
    """The table a person understands."""
    rows: list[tuple[str, ...]] = [
        ("sessions hosted", f"{report['sessions']:,}"),
        ("virtual days", f"{report['days']:,}"),
        ("messages acknowledged", f"{report['messages']:,}"),
        ("turns", f"{report['turns']:,}"),
        ("model calls", f"{report['model_calls']:,}"),
        ("compactions", f"{report['compactions']:,}"),
        ("truncations", f"{report['truncations']:,}"),
        ("put to sleep", f"{report['sleeps']:,}"),
        ("prompt tokens read from cache", f"{report['cache_read_share']:.0%}"),
        ("cost at list price", f"${report['cost_usd']:,.2f}"),
        ("on disk", f"{report['bytes'] / 1e6:,.1f} MB"),
        ("requests refused", f"{report['refused']:,}"),
        ("turns that failed", f"{report['errors']:,}"),
        ("messages lost", f"{report['lost']:,}"),
    ]
    say()
    say(table(rows, frozenset({1})))
    say()
    say(f"{report['days']} days in {report['seconds']:.0f} seconds. lost: {report['lost']}")


class Progress:
    """A line that says which virtual day it is: in place on a terminal, one a day elsewhere."""

    def __init__(self, days: int, *, quiet: bool) -> None:
        self.days, self._quiet = days, quiet
        self._live = sys.stderr.isatty()
        self._shown = -1
        self._messages = 0

    def tick(self, now: float) -> None:
        """Another message was acknowledged at this virtual time."""
        self._messages += 1
        day = int(now // week.DAY) + 1
        if self._quiet or (day == self._shown and (not self._live or self._messages % 50)):
            return
        self._shown = day
        text = f"day {min(day, self.days)} of {self.days}, {self._messages:,} messages"
        if self._live:
            sys.stderr.write(f"\r{text}\x1b[K")
            sys.stderr.flush()
        else:
            warn(text)

    def done(self) -> None:
        """The line is left."""
        if self._live and not self._quiet:
            sys.stderr.write("\n")

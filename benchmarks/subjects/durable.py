"""Durable appends by a hundred writers: each waits until its line can't be lost, then writes the next.

    python -m benchmarks.subjects.durable FOLDER ours|each|sqlite LOOP

`ours` is the host's own way: inline append, journal, one sync for all that came together. `each` syncs every
line in its own file (fdatasync). `sqlite` puts a hundred lines into one transaction (WAL, synchronous FULL).
All get the same encoded line of about 1.5 kB; LOOP is asyncio, uvloop or trio for `ours`.
"""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio

from benchmarks.measure import cpu, fresh, percentile, report, wall
from benchmarks.subjects.appending import NOW, Encoder, _grant
from perdure.actors.durable import Durable
from perdure.edges.journal.form import Identity
from perdure.edges.journal.journal import Journal
from perdure.edges.log import open_log
from perdure.edges.session.files import SessionFiles
from perdure.edges.session.writer import LocalSessionFile
from perdure.kernel.clock import RealClock
from perdure.kernel.io import IoPolicy
from perdure.kernel.kernel import Kernel
from perdure.kernel.run import backend_options

WRITERS = 100
MOST = {"ours": 40_000, "each": 2_000, "sqlite": 20_000}


class Told:
    """What was measured."""

    def __init__(self) -> None:
        self.taken: list[float] = []
        self.began, self.spent = wall(), cpu()

    def done(self, count: int, **more: float) -> None:
        """Hand it in."""
        took, used = wall() - self.began, cpu() - self.spent
        figures = {"per_second": count / took, "cpu_us": used / count * 1e6}
        for name, share in (("p50_us", 0.5), ("p99_us", 0.99)):
            figures[name] = percentile(self.taken, share) * 1e6
        report(**figures, **more)


async def ours(folder: Path) -> None:
    """As a host with `durability = "power"` does it, from the append to the acknowledgement."""
    clock, io = RealClock(), IoPolicy(False)
    (folder / "journal").mkdir()
    journal = Journal(folder / "journal", folder, Identity("here", "now"))
    log = open_log(folder / "log", level="error", wall_ms=clock.wall_ms)
    async with Kernel(clock) as kernel:
        durable = Durable(kernel, io, journal, log)
        files = SessionFiles(folder, _grant(folder), journal=journal)
        held = [files.create(f"agent:main:w{i}", "/srv", NOW).file for i in range(WRITERS)]
        encoder, left, told = Encoder(), [MOST["ours"]], Told()

        async def lane(file: LocalSessionFile) -> None:
            while left[0] > 0:
                left[0] -= 1
                began, waiter = wall(), clock.waiter()
                file.append((encoder.line(),))
                durable.settle(waiter)
                await clock.wait(waiter, 60)
                told.taken.append(wall() - began)

        async with anyio.create_task_group() as group:
            for file in held:
                group.start_soon(lane, file)
        told.done(len(told.taken), batch=journal.records / journal.batches, trims=journal.trims)


def each(folder: Path) -> None:
    """One sync for each line, in the file of its writer; `p50_us` is the price of one."""
    fds = [os.open(folder / f"{i}", os.O_WRONLY | os.O_CREAT | os.O_APPEND) for i in range(WRITERS)]
    encoder, told = Encoder(), Told()
    for n in range(MOST["each"]):
        began = wall()
        os.write(fds[n % WRITERS], encoder.line())
        os.fdatasync(fds[n % WRITERS])
        told.taken.append(wall() - began)
    told.done(MOST["each"])


def sqlite(folder: Path) -> None:
    """A hundred lines in a transaction: the best that group commit by SQLite could give."""
    db = sqlite3.connect(folder / "db", isolation_level=None)
    db.execute("pragma journal_mode = wal")
    db.execute("pragma synchronous = full")
    db.execute("create table lines (session integer, line blob)")
    db.execute("create index sessions on lines (session)")
    encoder, told = Encoder(), Told()
    for _ in range(MOST["sqlite"] // WRITERS):
        began = wall()
        db.execute("begin")
        db.executemany("insert into lines values (?, ?)", [(n, encoder.line()) for n in range(WRITERS)])
        db.execute("commit")
        told.taken.append(wall() - began)
    told.done(MOST["sqlite"])


def main(folder: Path, way: str, loop: Any) -> None:
    """Run one way."""
    if way == "ours":
        name, options = backend_options(loop)
        anyio.run(partial(ours, folder), backend=name, backend_options=options)
    else:
        plain: dict[str, Callable[[Path], None]] = {"each": each, "sqlite": sqlite}
        plain[way](folder)


if __name__ == "__main__":
    main(fresh(sys.argv[1]), sys.argv[2], sys.argv[3])

"""Appending messages to session files, encoding included, without fsync.

    python -m benchmarks.subjects.appending FOLDER ours|thread|aiofiles WRITERS

`ours` writes as the host does: inline, under a grant, ownership looked at again before it is acknowledged.
`thread` hops to a worker thread for each write (anyio), `aiofiles` writes and flushes. The peers get the
same encoded line and check nothing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import cycle
from pathlib import Path

import anyio
from anyio.lowlevel import checkpoint
from anyio.to_thread import run_sync

from benchmarks.measure import cpu, fresh, percentile, report, wall
from perdure.contracts import Grant
from perdure.edges.placement import LocalPlacement
from perdure.edges.session import lines
from perdure.edges.session.facts import Facts
from perdure.edges.session.files import SessionFiles
from perdure.edges.session.ids import Ids
from perdure.edges.session.writer import LocalSessionFile
from perdure.records import Text, User

MESSAGE = User((Text("x" * 1400),), 1)
NOW = 1_760_000_000_000
MOST = {"ours": 20_000, "thread": 5_000, "aiofiles": 5_000}
Append = Callable[[], Awaitable[object]]


class Encoder:
    """Makes the next line, ids included."""

    def __init__(self) -> None:
        self._ids, self._facts = Ids(1), Facts(1)
        self._parent: str | None = None

    def line(self) -> bytes:
        """One message entry behind the one before."""
        entry = self._ids.entry(NOW)
        line = lines.message_line(entry, self._parent, NOW, MESSAGE, self._facts)
        self._parent = entry
        return line


async def ours(folder: Path, writers: int) -> Append:
    """The host's own writer."""
    files = SessionFiles(folder, _grant(folder), sync=False)
    held = cycle([files.create(f"agent:main:w{i}", "/srv", NOW).file for i in range(writers)])
    encoder = Encoder()

    async def append() -> None:
        file: LocalSessionFile = next(held)
        file.append((encoder.line(),))
        if writers > 1:
            await checkpoint()

    return append


def _grant(folder: Path) -> Grant:
    grant = LocalPlacement(folder, wall_ms=NOW).grant(0)
    assert grant is not None
    return grant


async def thread(folder: Path, writers: int) -> Append:
    """A hop to a thread for each write."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    held = cycle([os.open(folder / f"{i}.jsonl", flags) for i in range(writers)])
    encoder = Encoder()
    return lambda: run_sync(os.write, next(held), encoder.line())


async def aio(folder: Path, writers: int) -> Append:
    """aiofiles, as its documentation shows it."""
    import aiofiles

    held = cycle([await aiofiles.open(folder / f"{i}.jsonl", "ab") for i in range(writers)])
    encoder = Encoder()

    async def append() -> None:
        file = next(held)
        await file.write(encoder.line())
        await file.flush()

    return append


async def lane(append: Append, left: list[int], taken: list[float]) -> None:
    """One writer: append until nothing is left to do."""
    while left[0] > 0:
        left[0] -= 1
        began = wall()
        await append()
        taken.append(wall() - began)


async def main(folder: Path, way: str, writers: int) -> None:
    """Share the appends out among the writers and measure them together."""
    append = await {"ours": ours, "thread": thread, "aiofiles": aio}[way](folder, writers)
    await append()
    left = [MOST[way]]
    taken: list[float] = []
    began, spent = wall(), cpu()
    async with anyio.create_task_group() as group:
        for _ in range(writers):
            group.start_soon(lane, append, left, taken)
    took, used, count = wall() - began, cpu() - spent, len(taken)
    report(
        wall_us=took / count * 1e6,
        cpu_us=used / count * 1e6,
        p99_us=percentile(taken, 0.99) * 1e6,
        encode_us=encoding(),
    )


def encoding(count: int = 5_000) -> float:
    """CPU µs of making a line, without writing it."""
    encoder, spent = Encoder(), cpu()
    for _ in range(count):
        encoder.line()
    return (cpu() - spent) / count * 1e6


if __name__ == "__main__":
    anyio.run(partial(main, fresh(sys.argv[1]), sys.argv[2], int(sys.argv[3])))

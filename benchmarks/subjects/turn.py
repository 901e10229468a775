"""One persisted turn of a hosted session with an instant model, as its history grows.

    python -m benchmarks.subjects.turn FOLDER LOOP bounded|open MESSAGES turn|parts

`bounded`: the history is compacted, the live view is the same however long it is. `open`: all of it is
live. `parts` measures the pieces of a turn instead: pipeline, appends and the rest, in separate turns.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio

from benchmarks.measure import cpu, fresh, median, report, resident, wall, written
from perdure.contracts import Answer, Request
from perdure.edges.session import keys, lines
from perdure.edges.session.facts import Checkpoint, Facts
from perdure.edges.session.ids import entry_id
from perdure.edges.settings import CompactionSettings, LogSettings, Settings
from perdure.host import Host
from perdure.kernel.run import backend_options
from perdure.records import Assistant, Message, ModelInfo, Text, Usage, User

TEXT = "The worker reads a file, runs the tests, and reports what it found in it. " * 5
TURNS = 15
WARM, KEY = "agent:main:bench:dm:warm", "agent:main:bench:dm:it"
KEPT = 8  # messages behind the compaction of a bounded history
START_MS = 1_760_000_000_000
WINDOW = 50_000_000  # tokens; nothing here may overflow
QUIET = Settings(log=LogSettings(level="off"), compaction=CompactionSettings(trigger="manual"))


class Instant:
    """A model that answers at once and remembers the last request."""

    def __init__(self) -> None:
        self.info = ModelInfo("bench", "instant", window=WINDOW)
        self.body = b""

    async def stream(self, request: Request) -> AsyncIterator[Answer]:
        """The same answer each time, with the usage a provider would report."""
        self.body = request.body
        usage = Usage(len(request.body) // 4, 90)
        info = self.info
        yield Answer(Assistant((Text(TEXT),), "stop", info.provider, info.api, info.id, usage))

    @property
    def seen(self) -> int:
        """Messages of the last request."""
        return len(json.loads(self.body)["messages"])


def said(number: int) -> Message:
    """User and assistant in turn."""
    if number % 2 == 0:
        return User((Text(TEXT),), START_MS)
    return Assistant((Text(TEXT),), "stop", "bench", "anthropic-messages", "instant", Usage(900, 90))


def write_history(path: Path, messages: int, *, bounded: bool) -> None:
    """A session file with so many messages; bounded, a compaction covers all but the last eight."""
    path.parent.mkdir(parents=True, exist_ok=True)
    parent, ids = None, []
    with open(path, "wb") as f:
        f.write(lines.header_line("0199d5c2-7b1e-7000-8000-000000000000", START_MS, "/srv"))
        for number in range(messages):
            entry = entry_id(START_MS + number, 1, number)
            ids.append(entry)
            f.write(lines.message_line(entry, parent, START_MS + number, said(number), Facts(1)))
            parent = entry
        if bounded:
            entry, kept = entry_id(START_MS + messages, 1, messages), ids[-KEPT]
            record = Checkpoint(epoch=1, leaf=entry, compactions=1, kept=kept)
            f.write(lines.compaction_line(entry, parent, START_MS, TEXT * 4, kept, 9_000, record, b"{}"))


async def turn(host: Host, key: str) -> None:
    """From the user's message to the agent's rest."""
    sent = await host.send(key, TEXT)
    await sent.reply()


def write_apart(folder: Path, messages: int, *, bounded: bool) -> None:
    """The histories, written by another process: what making them leaves in memory is not measured."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    for key, count in ((WARM, 10), (KEY, messages)):
        write_history(folder / "sessions" / keys.relative_path(key), count, bounded=bounded)
    os.sync()
    os._exit(0)


async def main(folder: Path, what: str) -> None:
    """A warm host, then turns one by one."""
    model = Instant()
    async with Host(folder, settings=QUIET, model=model, workspace=folder, environ={}) as host:
        for key in (WARM, WARM, WARM, KEY, KEY):
            await turn(host, key)
        if what == "parts":
            await parts(host)
        took: list[float] = []
        began, before = wall(), written()
        for _ in range(TURNS):
            spent = cpu()
            await turn(host, KEY)
            took.append(cpu() - spent)
        report(
            cpu_ms=median(took) * 1e3,
            wall_ms=(wall() - began) / TURNS * 1e3,
            written_kb=(written() - before) / TURNS / 1e3,
            seen=model.seen,
            held_mb=resident() / 1e6,
        )


# --- where the time goes --------------------------------------------------------------------------


class Stopwatch:
    """CPU seconds spent inside functions that are wrapped in it."""

    def __init__(self) -> None:
        self.spent = 0.0

    def wrap(self, holder: Any, name: str) -> None:
        """From now on calls of `holder.name` are measured."""
        inner: Callable[..., Any] = getattr(holder, name)

        def timed(*args: Any, **more: Any) -> Any:
            began = cpu()
            try:
                return inner(*args, **more)
            finally:
                self.spent += cpu() - began

        setattr(holder, name, timed)


async def parts(host: Host) -> None:
    """Shares of a turn; measuring costs a little itself, so the whole is taken from the same turns."""
    from perdure.actors.transcript import Transcript
    from perdure.context import pipeline

    history, request, append = Stopwatch(), Stopwatch(), Stopwatch()
    history.wrap(pipeline, "history")
    request.wrap(pipeline, "request")
    append.wrap(Transcript, "append")
    spent = cpu()
    for _ in range(TURNS):
        await turn(host, KEY)
    whole = (cpu() - spent) / TURNS
    report(
        whole_ms=whole * 1e3,
        pipeline_ms=(history.spent + request.spent) / TURNS * 1e3,
        history_ms=history.spent / TURNS * 1e3,
        request_ms=request.spent / TURNS * 1e3,
        append_ms=append.spent / TURNS * 1e3,
    )


if __name__ == "__main__":
    place, loop, kind, messages, what = sys.argv[1:]
    folder = fresh(place)
    write_apart(folder, int(messages), bounded=kind == "bounded")
    name, options = backend_options(loop)  # type: ignore[arg-type]  # one of the three, from the area
    anyio.run(partial(main, folder, what), backend=name, backend_options=options)

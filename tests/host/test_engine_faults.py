"""Engines that ship, when their store is harmed under a running host, and when the host dies under them."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import anyio
import pytest

from helpers_engines import agrees, id_of, slot
from helpers_host import KEY, Fn, Play, ask, calls, hosted, real, virtual
from helpers_kernel import LOOPS
from perdure.edges import disk, sqlite
from perdure.edges.models.reply import say
from perdure.errors import PerdureError
from perdure.events import Notice
from perdure.host import Host
from perdure.kernel.clock import RealClock
from perdure.kernel.virtual import VirtualClock
from perdure.plugins.engines.cross_session.store import path_of
from perdure.plugins.engines.lossless.store import NAME
from perdure.plugins.engines.retrieval.index import folder_of

OTHER, THIRD = "agent:second:cli:dm:other", "agent:third:cli:dm:plain"
ENGINES = ("lossless", "retrieval", "cross-session")
LONG_AGO = 2_000.0  # seconds: no rest of an engine lasts as long
WORDS = "The lemon tree in row seven needs water and a stake before the wind comes on Thursday. "


# --- what is done to a store ----------------------------------------------------------------------

Harm = Callable[[Path, ExitStack], None]


def deleted(store: Path, _: ExitStack) -> None:
    for path in _files(store, "*.sqlite*"):
        path.unlink()


def beheaded(store: Path, _: ExitStack) -> None:
    """The file is gone, its log is not."""
    for path in _files(store, "*.sqlite"):
        path.unlink()


def emptied(store: Path, _: ExitStack) -> None:
    """With its log. Not the `-shm`: that is memory, and who cuts it ends every program that uses it."""
    for path in _files(store, "*.sqlite", "*-wal"):
        os.truncate(path, 0)


def halved(store: Path, _: ExitStack) -> None:
    for path in _files(store, "*.sqlite", "*-wal"):
        os.truncate(path, path.stat().st_size // 2)


def garbage(store: Path, _: ExitStack) -> None:
    for path in _files(store, "*.sqlite", "*-wal"):
        with path.open("r+b") as file:
            file.write(b"\xa5\x00garbage\xff" * (path.stat().st_size // 10))


def refusing(number: int) -> Harm:
    """What the disk answers to whoever would write there."""

    def harm(store: Path, stack: ExitStack) -> None:
        def fault(op: str, path: str) -> None:
            if path.startswith(str(store)):
                raise OSError(number, os.strerror(number), path)

        stack.enter_context(disk.faults(fault))

    return harm


def _files(store: Path, *patterns: str) -> list[Path]:
    found = (path for pattern in patterns for path in store.parent.rglob(pattern))
    return [path for path in found if str(path).startswith(str(store))]


HARMS: dict[str, Harm] = {
    "deleted": deleted,
    "beheaded": beheaded,
    "emptied": emptied,
    "halved": halved,
    "garbage": garbage,
    "read-only": refusing(errno.EROFS),
    "full": refusing(errno.ENOSPC),
}


def store_of(folder: Path, engine: str) -> Path:
    """How the names begin of what the engine stores of the session."""
    below = folder / "state" / "plugins" / engine
    if engine == "retrieval":
        return folder_of(below, id_of(folder))
    return path_of(below, "main") if engine == "cross-session" else below / NAME


# --- what is true afterwards ----------------------------------------------------------------------


def logged(folder: Path) -> list[dict[str, Any]]:
    path = folder / "state" / "runtime.log"
    return [json.loads(row) for row in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.parametrize("when", ["between turns", "in a turn"])
@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("engine", ENGINES)
def test_a_session_outlives_the_harm_that_is_done_to_its_engines_store(
    tmp_path: Path, engine: str, harm: str, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes on at once, it is told, nobody else is troubled, and later the engine has all of it again."""
    small = sqlite._PRAGMAS + "pragma cache_size = 1;"
    monkeypatch.setattr(sqlite, "_PRAGMAS", small)  # what is read comes from the file
    stack, harmed = ExitStack(), list[float]()

    async def main(clock: VirtualClock) -> None:
        async def breaks(_arguments: Any, _context: Any) -> str:
            harmed.append(clock.now())
            HARMS[harm](store_of(tmp_path, engine), stack)
            return "done"

        play = Play(say(f"Noted. {WORDS}"), say(WORDS * 5))
        told: list[tuple[float, Notice]] = []
        async with hosted(tmp_path, play, clock, settings=slot(engine), tools=[Fn("break", breaks)]) as host:
            host.services.events.subscribe("test", lambda e: _note(told, clock.now(), e))
            await ask(host, "My name is Ada, and the code word is blue heron 7731.")
            await ask(host, "another", OTHER)
            await ask(host, "a third", THIRD)
            await host.command(THIRD, "/engine legacy")
            await ask(host, "and then?")
            await clock.sleep(1)
            if when == "in a turn":
                play.then(calls("break"))
            else:
                await breaks(None, None)
            for n in range(2):
                for key in (KEY, OTHER, THIRD):
                    assert (await ask(host, f"after {n}", key)).stop == "stop"
            stack.close()
            await clock.sleep(LONG_AGO)
            (line,) = (each for each in host.status()["engines"] if each["id"] == engine)
            for key in (KEY, OTHER, THIRD):
                assert (await ask(host, "And now?", key)).stop == "stop"
            await clock.sleep(1)
            (after,) = (each for each in host.status()["engines"] if each["id"] == engine)
            assert (after["failures"], after["state"], after["behind"]) == (line["failures"], "well", [])
            await agrees(host, tmp_path, engine)
            assert play.refused == 0
        named = [row for row in logged(tmp_path) if engine in (row.get("engine"), row.get("plugin"))]
        assert named or harm == "halved"  # that may go by unseen: the log has all
        assert bool(told) == bool(line["failures"])
        assert all(at - harmed[0] <= 1 and engine in notice.text for at, notice in told)
        touched = {notice.key for _, notice in told}
        assert touched <= ({KEY, OTHER} if engine == "lossless" else {KEY})  # it has one database for all
        async with hosted(tmp_path, play, clock, settings=slot(engine)) as host:
            assert (await ask(host, "still there?")).stop == "stop"
            await clock.sleep(1)
            await agrees(host, tmp_path, engine)
            assert host.status()["engines"][0]["failures"] == 0

    with stack:
        virtual(main)


def _note(told: list[tuple[float, Notice]], at: float, event: object) -> None:
    if isinstance(event, Notice) and event.kind == "engine":
        told.append((at, event))


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("engine", ["lossless", "retrieval"])
def test_in_real_threads_a_store_that_is_deleted_is_begun_anew_and_is_whole(
    tmp_path: Path, engine: str, loop: Any
) -> None:
    async def main() -> None:
        play = Play()
        async with hosted(tmp_path, play, RealClock(), settings=slot(engine)) as host:
            await ask(host, "The code word is blue heron 7731.")
            for n in range(2):
                deleted(store_of(tmp_path, engine), ExitStack())
                for key in (KEY, OTHER):
                    assert (await ask(host, f"after {n}", key)).stop == "stop"
            await ask(host, "and now?")
            await becomes_whole(host)
            assert play.refused == 0
        async with hosted(tmp_path, play, RealClock(), settings=slot(engine)) as host:
            await ask(host, "still there?")
            await becomes_whole(host)
            assert host.status()["engines"][0]["failures"] == 0

    async def becomes_whole(host: Host) -> None:
        for _ in range(400):  # the hooks behind a turn
            try:
                return await agrees(host, tmp_path, engine)
            except (AssertionError, PerdureError):
                await anyio.sleep(0.05)
        return await agrees(host, tmp_path, engine)

    real(main, loop, 60)

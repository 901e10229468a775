"""`perdure serve`: a host and its HTTP API, until it is told to stop."""

from __future__ import annotations

import os
import signal
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import anyio

from perdure.cli.config import names_of_nothing
from perdure.cli.loops import loop_of
from perdure.cli.output import emit, one_line, say, warn
from perdure.cli.reloading import reload_on_hangup
from perdure.edges import state as state_folder
from perdure.edges.config import load
from perdure.edges.machine import raise_open_files
from perdure.edges.models.scripted import ScriptedModel
from perdure.errors import UsageError
from perdure.host import Host

if TYPE_CHECKING:
    import socket

    from perdure.hosting.draining import Drained
    from perdure.server.running import Server

LAST_PORT = 65_535
_NEEDED = ("starlette", "hypercorn", "prometheus_client")


def run(
    *,
    host: str | None,
    port: int | None,
    state: Path | None,
    backend: Literal["asyncio", "uvloop", "trio"],
    as_json: bool,
) -> int:
    """Serve until SIGTERM or SIGINT. Exit 0 after an orderly end."""
    if any(find_spec(name) is None for name in _NEEDED):
        raise UsageError("the HTTP API is not installed: pip install 'perdure[server]'")
    from perdure.server.running import guarded, listen

    if port is not None and not 0 <= port <= LAST_PORT:
        raise UsageError(f"--port {port}: give a number from 1 to {LAST_PORT:,}, or 0 for any that is free")
    read = partial(load, state=state, flags={"server.host": host, "server.port": port})
    settings = read()
    for finding in names_of_nothing(settings, "the configuration"):
        warn(f"perdure: {finding}")
    raise_open_files()
    made = Host(state_folder.state_folder(state).path, settings=settings, approve="events")
    made.reread = read  # a reload must not forget the flags
    guarded(made)
    sock = listen(settings.server)
    loop, options = loop_of(backend)
    anyio.run(_hosted, made, sock, as_json, backend=loop, backend_options=options)
    return 0


async def _hosted(host: Host, sock: socket.socket, as_json: bool) -> None:
    from perdure.server.running import serve

    with sock, anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as received:
        async with host, serve(host, sock) as server, anyio.create_task_group() as group:
            await group.start(reload_on_hangup, host)
            await _warm(host)
            host.freeze()
            _tell(host, server, as_json)
            number = await anext(received)
            group.start_soon(_second, received)
            seconds = host.settings.server.drain_seconds
            warn(f"perdure: {signal.Signals(number).name}: draining for at most {seconds:g} s")
            told = await server.drain(seconds)
            group.cancel_scope.cancel()
            if not told.whole:
                warn(_cut_off(told))


async def _warm(host: Host) -> None:
    """The scripted model's tokenizer takes a second to load: not on the loop, when somebody waits."""
    for model in host.resolver.models():
        if isinstance(model, ScriptedModel):
            await host.io.run(model.warm)


async def _second(received: object) -> None:
    number = await anext(received)  # type: ignore[call-overload]
    os._exit(128 + number)


def _cut_off(told: Drained) -> str:
    parts = ((told.turns, "turns"), (told.unsettled, "deliveries"), (told.stuck, "sessions that hold on"))
    names = "; ".join(f"{len(found)} {what} ({', '.join(found[:5])})" for found, what in parts if found)
    return one_line(f"perdure: cut off, and taken up at the next start: {names}", 2_000)


def _tell(host: Host, server: Server, as_json: bool) -> None:
    if as_json:
        emit({"url": server.url, "state": host.folder.root, "pid": os.getpid()})
    else:
        say(f"perdure serves {host.folder.root} at {server.url}")
        for problem in host.away:
            warn(f"[tools: {problem}]")

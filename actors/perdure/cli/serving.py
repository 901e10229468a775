"""`perdure serve`: a host and its HTTP API, until it is told to stop."""

from __future__ import annotations

import gc
import os
import signal
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import anyio

from perdure.cli.config import names_of_nothing
from perdure.cli.loops import loop_of
from perdure.cli.output import emit, say, warn
from perdure.edges import state as state_folder
from perdure.edges.config import load
from perdure.errors import UsageError
from perdure.host import Host

if TYPE_CHECKING:
    import socket

    from perdure.server.running import Server

_NEEDED = ("starlette", "hypercorn", "prometheus_client")


class Overdue(Exception):
    """Turns did not end in time: the host closes without waiting for them any longer."""


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

    settings = load(state=state, flags={"server.host": host, "server.port": port})
    for finding in names_of_nothing(settings, "the configuration"):
        warn(f"perdure: {finding}")
    made = Host(state_folder.state_folder(state).path, settings=settings, approve="events")
    guarded(made)
    sock = listen(settings.server)
    loop, options = loop_of(backend)
    try:
        anyio.run(_hosted, made, sock, as_json, backend=loop, backend_options=options)
    except* Overdue:
        warn("perdure: some turns did not end in time; they are taken up at the next start")
    return 0


async def _hosted(host: Host, sock: socket.socket, as_json: bool) -> None:
    from perdure.server.running import serve

    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as received:
        async with host, serve(host, sock) as server, anyio.create_task_group() as group:
            settle()
            _tell(host, server, as_json)
            number = await anext(received)
            group.start_soon(_second, received)
            seconds = host.settings.server.drain_seconds
            warn(f"perdure: {signal.Signals(number).name}: draining for at most {seconds:g} s")
            rested = await server.drain(seconds)
            group.cancel_scope.cancel()
            if not rested:
                raise Overdue


async def _second(received: object) -> None:
    number = await anext(received)  # type: ignore[call-overload]
    os._exit(128 + number)


def settle() -> None:
    """What start-up has made stays: later collections need not look at it."""
    gc.collect()
    gc.freeze()


def _tell(host: Host, server: Server, as_json: bool) -> None:
    if as_json:
        emit({"url": server.url, "state": host.folder.root, "pid": os.getpid()})
    else:
        say(f"perdure serves {host.folder.root} at {server.url}")
        for problem in host.away:
            warn(f"[tools: {problem}]")

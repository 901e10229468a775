"""`perdure serve` with a scripted model, in a child process that is killed. Real clock, files and sockets.

Its sessions compact and truncate all the time: the window is small, and covered entries move out early.
"""

from __future__ import annotations

import os
import random
from collections.abc import Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

import perdure.server.app  # noqa: F401  # loaded before any child is forked
from helpers_host import Fn
from helpers_killed import INFO, WORDS
from helpers_serve import tenant
from perdure.actors.services import Timing
from perdure.contracts import Request, ToolContext
from perdure.edges.models.reply import ScriptedReply, call
from perdure.edges.models.scripted import ScriptedModel
from perdure.edges.models.summaries import extractive_summariser, is_summary_request
from perdure.edges.settings import HostSettings, Settings
from perdure.edges.settings_hosting import ServerSettings
from perdure.host import Host
from perdure.kernel.clock import RealClock
from perdure.kernel.run import Backend, backend_options
from perdure.records import Record, Text
from perdure.server.running import listen, serve

TENANT = "clients"
DRAIN = 30.0


class Life(Record):
    """How one life of the host is lived."""

    folder: str
    port: int
    loop: Backend
    durability: str
    awake: int = 64  # sessions in memory; fewer than there are make them sleep and wake under load


def hosting(life: Life, ready: Connection, orders: Connection) -> None:
    """The child's whole life: tells when it takes requests, and ends when its orders do."""
    name, options = backend_options(life.loop)
    anyio.run(_hosting, life, ready, orders, backend=name, backend_options=options)


async def _hosting(life: Life, ready: Connection, orders: Connection) -> None:
    folder, clock = Path(life.folder), RealClock()
    server = ServerSettings(port=life.port)
    durable = HostSettings(durability=life.durability, journal_mb=1, awake=life.awake)  # type: ignore[arg-type]
    settings = Settings(host=durable, server=server, tenants=(tenant(TENANT, operator=True),))
    host = Host(
        folder / "state",
        model=ScriptedModel(INFO, answer, clock),
        tools=[marker(folder)],
        clock=clock,
        settings=settings,
        workspace=folder,
        truncate_after=4_096,
        timing=Timing(retries=1),
        environ={},
    )
    async with host, serve(host, listen(server), {}) as serving:
        ready.send_bytes(b"ready")
        await anyio.to_thread.run_sync(_over, orders, abandon_on_cancel=True)
        await serving.drain(DRAIN)


def _over(orders: Connection) -> None:
    try:
        orders.recv_bytes()
    except EOFError:
        return


def answer(body: dict[str, Any], request: Request) -> ScriptedReply:
    """Two parallel calls for a question, then words, after moments: deaths come in the middle."""
    if is_summary_request(body):
        return extractive_summariser(body, request)
    content = body["messages"][-1]["content"]
    wait = random.random() * 0.02
    if any(b["type"] == "tool_result" for b in content):
        return ScriptedReply((Text(f"done {WORDS * 8}"),), latency=wait, chunks=4, pace=wait / 8)
    mark = os.urandom(6).hex()
    calls = (call("mark", f"toolu_{mark}_a", n=1), call("mark", f"toolu_{mark}_b", n=2))
    return ScriptedReply((Text("looking"), *calls), latency=wait, chunks=2)


def marker(folder: Path) -> Fn:
    """A tool with a consequence: one line in a file for each run."""
    fd = os.open(folder / "marks", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    async def mark(arguments: Mapping[str, Any], context: ToolContext) -> str:
        os.write(fd, context.call_id.encode() + b"\n")
        await anyio.sleep(random.random() * 0.01)
        return f"marked {arguments['n']}"

    return Fn("mark", mark)

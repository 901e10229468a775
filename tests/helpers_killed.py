"""A host in a child process that is killed: hears orders, tells what was acknowledged, by a pair of pipes.

An order is `{"key", "mid", "text"}`. Tools write one marker line when they begin, so that a second run of
the same call would show. Requests and refusals of the strict door are told too. Real clock,
real files; durability is `power` on trio.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread

from helpers_host import Fn
from perdure.actors.services import Timing
from perdure.contracts import Request, ToolContext
from perdure.edges.models.accounting import Accounting
from perdure.edges.models.reply import ScriptedReply, call, say
from perdure.edges.models.scripted import ScriptedModel
from perdure.edges.models.summaries import extractive_summariser, is_summary_request
from perdure.edges.settings import HostSettings, Settings
from perdure.host import Host, Sent
from perdure.kernel.clock import RealClock
from perdure.kernel.run import backend_options
from perdure.records import ModelInfo, Text

Accounting().text("the tokenizer is loaded once, before any child is forked: warm")
INFO = ModelInfo("scripted", "test", window=12_000, cache_minimum=16)
WORDS = "words upon words that fill a window "


class Told:
    """The child's way to its parent: one write for each fact."""

    def __init__(self, facts: Connection) -> None:
        self._facts = facts

    def __call__(self, **fact: Any) -> None:
        self._facts.send_bytes(json.dumps(fact).encode())


def answer(body: dict[str, Any], request: Request) -> ScriptedReply:
    """Two parallel calls for a question, then words: enough to fill the window now and then."""
    if is_summary_request(body):
        return extractive_summariser(body, request)
    content = body["messages"][-1]["content"]
    if any(b["type"] == "tool_result" for b in content):
        return say(f"done {WORDS * 8}", chunks=3)
    mark = os.urandom(6).hex()
    calls = (call("mark", f"toolu_{mark}_a", n=1), call("mark", f"toolu_{mark}_b", n=2))
    return ScriptedReply((Text("looking"), *calls), chunks=2)


def marker(folder: Path, tell: Told) -> Fn:
    """A tool with a consequence: one line in a file for each run."""
    fd = os.open(folder / "marks", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    async def mark(arguments: Mapping[str, Any], context: ToolContext) -> str:
        os.write(fd, context.call_id.encode() + b"\n")
        tell(tool=context.call_id)
        for _ in range(3):
            await anyio.lowlevel.checkpoint()
        return f"marked {arguments['n']}"

    return Fn("mark", mark)


def serve(folder: Path, loop: Any, orders: Connection, facts: Connection) -> None:
    """The child's whole life; it ends when its orders do."""
    name, options = backend_options(loop)
    settings = Settings(host=HostSettings(durability="power" if loop == "trio" else "process", journal_mb=1))
    anyio.run(_serve, folder, orders, Told(facts), settings, backend=name, backend_options=options)


async def _serve(folder: Path, orders: Connection, tell: Told, settings: Settings) -> None:
    clock = RealClock()
    model = ScriptedModel(INFO, answer, clock, on_request=lambda r: tell(request=r.session))
    async with Host(
        folder / "state",
        model=model,
        tools=[marker(folder, tell)],
        clock=clock,
        settings=settings,
        workspace=folder,
        truncate_after=4_096,
        timing=Timing(retries=1),
        environ={},
    ) as host:
        tell(ready=os.getpid())
        async with anyio.create_task_group() as tasks:
            while (
                order := await anyio.to_thread.run_sync(_next, orders, abandon_on_cancel=True)
            ) is not None:
                sent = await host.send(order["key"], order["text"], mid=order["mid"])
                tell(ack=order["mid"], repeated=sent.receipt.repeated)
                tasks.start_soon(_reply, sent, model, order["mid"], tell)


def _next(orders: Connection) -> dict[str, Any] | None:
    try:
        return dict(json.loads(orders.recv_bytes()))
    except EOFError:
        return None


async def _reply(sent: Sent, model: ScriptedModel, mid: str, tell: Told) -> None:
    reply = await sent.reply(60)
    tell(reply=mid, stop=reply.stop, errors=list(reply.errors), refused=model.refused)

"""The served host of the load: the real server, on a model as slow as a real one.

Started as a process of its own. Prints where it listens, then its figures for each line on standard input.
"""

from __future__ import annotations

import json
import sys
import tempfile
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

import anyio

from benchmarks.load.stalls import Stalls
from perdure.contracts import Request
from perdure.edges.models.accounting import Accounting
from perdure.edges.models.reply import ScriptedReply, call, say
from perdure.edges.models.scripted import ScriptedModel
from perdure.edges.models.sources import demo_source
from perdure.edges.models.summaries import is_flush_request
from perdure.edges.settings import Settings
from perdure.edges.settings_hosting import ServerSettings
from perdure.host import Host
from perdure.kernel.clock import RealClock
from perdure.kernel.run import backend_options
from perdure.records import ModelInfo, Text
from perdure.server.running import listen, serve

INFO = ModelInfo("scripted", "realistic", window=32_000, cache_minimum=1_024)
FIRST_TOKEN = (0.4, 2.0)  # seconds; the slowest of a hundred takes the upper
PACE = 0.05  # seconds between two of the pieces that an answer is streamed in
PIECES = 16
EVERY = 3  # one message in so many makes the model use a tool first


def answer(body: dict[str, Any], request: Request) -> ScriptedReply:
    """What the demo's assistant says, at the pace of a real one."""
    found = demo_source(body, request)
    if is_flush_request(request):
        return found
    draw = int.from_bytes(blake2b(request.body[-400:], digest_size=4).digest(), "big") / 2**32
    latency = FIRST_TOKEN[0] + (FIRST_TOKEN[1] - FIRST_TOKEN[0]) * draw**3
    if (
        found.blocks
        and isinstance(found.blocks[-1], Text)
        and draw < 1 / EVERY
        and "tool_result" not in str(body["messages"][-1]["content"])
    ):
        found = ScriptedReply((Text("Let me look."), call("find", pattern="*.md")))
    text = "".join(b.text for b in found.blocks if isinstance(b, Text))
    if len(found.blocks) == 1 and text:
        found = say(text + " " + "It will take some words to say why. " * 12)
    return ScriptedReply(found.blocks, latency=latency, chunks=PIECES, pace=PACE)


async def hosted(state: Path) -> None:
    """Until standard input ends."""
    clock, stalls = RealClock(), Stalls()
    Accounting().text("the tokenizer of the scripted model is loaded before anybody comes")
    settings = Settings(server=ServerSettings(port=0))
    model = ScriptedModel(INFO, answer, clock)
    workspace = state / "workspace"
    workspace.mkdir()
    host = Host(state / "state", settings=settings, model=model, workspace=workspace, freeze=True, environ={})
    async with host, serve(host, listen(settings.server), {}) as server, anyio.create_task_group() as group:
        group.start_soon(stalls.watch)
        print(json.dumps({"url": server.url, "token": server.token}), flush=True)
        while await anyio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True):
            told, collector = host.status()["host"], host.pauses
            figures = {"rss_mb": round(told["rss_bytes"] / 1e6, 1), "awake": told["awake"]}
            figures["collected_max"] = round(max(collector.longest) * 1000, 2)
            figures["frozen_again"], collector.longest = collector.frozen_again, [0.0, 0.0, 0.0]
            print(json.dumps({**figures, "refused": model.refused, **stalls.take()}), flush=True)
        group.cancel_scope.cancel()


def main() -> None:
    """On asyncio, or on the loop that the first argument names."""
    name, options = backend_options(sys.argv[1] if len(sys.argv) > 1 else "asyncio")  # type: ignore[arg-type]
    with tempfile.TemporaryDirectory(prefix="perdure-load-") as folder:
        anyio.run(partial(hosted, Path(folder)), backend=name, backend_options=options)


if __name__ == "__main__":
    main()

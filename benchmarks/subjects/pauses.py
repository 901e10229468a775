"""Longest pause of the collector beside 200 active sessions of 500 entries and 100,000 that sleep.

`python -m benchmarks.subjects.pauses [frozen|plain] [active] [entries] [idle]`: JSON with CPU milliseconds.
"""

from __future__ import annotations

import gc
import json
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import anyio

from perdure.edges.models.reply import ScriptedReply, say
from perdure.edges.models.scripted import ScriptedModel
from perdure.edges.resident import rss_bytes
from perdure.edges.settings import LogSettings, Settings
from perdure.host import Host
from perdure.kernel.virtual import VirtualClock
from perdure.records import ModelInfo

START = 1_767_225_600_000
WORDS = "the pump in row seven leaks again and the night crew waits for parts "


def answer(body: dict[str, Any], request: object) -> ScriptedReply:
    """Always the same few words."""
    return say(WORDS * 4)


async def measure(frozen: bool, active: int, entries: int, idle: int) -> dict[str, Any]:
    """Fill the host, then let everybody speak twice more while pauses are counted."""
    clock = VirtualClock(1, START)
    info = ModelInfo("scripted", "pauses", window=1_000_000)
    model = ScriptedModel(info, answer, clock, strict=False, accounting=False)
    with tempfile.TemporaryDirectory() as folder:
        quiet = Settings(log=LogSettings(level="error"))
        async with Host(
            Path(folder) / "state", settings=quiet, model=model, tools=(), clock=clock, most_awake=100_000,
            environ={},
        ) as host:  # fmt: skip
            host.pauses._now = time.thread_time  # of this thread: other programs are no pause of ours
            for n in range(idle):
                host.directory.ref(f"agent:main:cli:dm:idle{n}")
            if frozen:
                host.freeze()
            keys = [f"agent:main:cli:dm:{n}" for n in range(active)]
            for k in range(entries // 2):
                for key in keys:
                    sent = await host.send(key, f"{k} {WORDS}")
                    await sent.reply(1_000)
            filling = list(host.pauses.longest)
            host.pauses.longest = [0.0, 0.0, 0.0]
            gc.collect()
            full = host.pauses.longest[2]
            for _ in range(2):
                for key in keys:
                    sent = await host.send(key, WORDS)
                    await sent.reply(1_000)
            return {
                "frozen": frozen,
                "full_ms": round(full * 1000, 1),
                "filling_ms": [round(each * 1000, 1) for each in filling],
                "turning_ms": [round(each * 1000, 1) for each in host.pauses.longest],
                "tracked": len(gc.get_objects()),
                "entries": sum(len(s.transcript.items) for s in host.directory.awake.values()),
                "rss_mb": rss_bytes() >> 20,
            }


if __name__ == "__main__":
    told = sys.argv[1:] or ["frozen"]
    sizes = [int(each) for each in told[1:]] or [200, 500, 100_000]
    sys.stdout.write(json.dumps(anyio.run(partial(measure, told[0] == "frozen", *sizes))) + "\n")

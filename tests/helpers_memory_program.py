"""Fills a host with sessions and tells what they own by the host's count, and by the process's growth.

`python helpers_memory_program.py SESSIONS TURNS CHARS WORD [ENGINE]`: JSON with bytes a session.
"""

from __future__ import annotations

import gc
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from helpers_host import Fn, Play, ask, hosted, virtual
from perdure.contracts import Request
from perdure.edges.models.reply import ScriptedReply, call, say
from perdure.edges.resident import rss_bytes
from perdure.kernel.virtual import VirtualClock
from perdure.records import ModelInfo


class Teller(Play):
    """Calls a tool, then answers; keeps nothing of what it was asked."""

    def __init__(self, chars: int, word: str) -> None:
        super().__init__()
        self._said, self._text = 0, word * (chars // len(word))

    def _saw(self, request: Request) -> None:
        return

    async def __call__(self, body: dict[str, Any], request: Request) -> ScriptedReply:
        self._said += 1
        if self._said % 2:
            return ScriptedReply((call("look", f"toolu_{self._said}", q="x" * 20),))
        return say(self.text())

    def text(self) -> str:
        """Never the same object twice."""
        return f"{self._said} {self._text}"


async def fill(clock: VirtualClock) -> dict[str, int]:
    """Bytes that one session owns, and bytes that the process grew by for each."""
    sessions, turns, chars = map(int, sys.argv[1:4])
    play = Teller(chars, sys.argv[4])

    async def look(arguments: Any, context: Any) -> str:
        return play.text()

    info, tools = ModelInfo("scripted", "test", window=1_000_000), [Fn("look", look)]
    environ = {"PERDURE_PLUGINS__SLOTS__CONTEXT_ENGINE": (*sys.argv, "legacy")[5]}
    options: dict[str, Any] = {"accounting": False, "most_awake": 10_000, "environ": environ}
    with tempfile.TemporaryDirectory() as folder:
        async with hosted(Path(folder), play, clock, info=info, tools=tools, **options) as host:
            for n in range(16):  # what an engine keeps for all is there then
                await ask(host, "warm", f"agent:main:cli:dm:warm{n}")
            gc.collect()
            before, owned = rss_bytes(), host.services.memory.total
            for n in range(sessions):
                for _ in range(turns):
                    await ask(host, play.text(), f"agent:main:cli:dm:{n}")
            gc.collect()
            resident, owned = rss_bytes() - before, host.services.memory.total - owned
            return {"owned": owned // sessions, "resident": resident // sessions}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(virtual(fill)))

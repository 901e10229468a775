"""Who answers in the soak: a strict scripted model that obeys a small language, and one tool."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio.lowlevel

from benchmarks.soak.crowd import number, sentence
from perdure.contracts import Request, ToolContext, ToolOutput
from perdure.edges.models.reply import ScriptedReply, call, say
from perdure.edges.models.summaries import extractive_summariser, is_summary_request, last_text
from perdure.records import Text, ToolSpec
from perdure.replay import generate

POOL = tuple(generate.text(kind, 24_000, seed) for seed, kind in enumerate(("code", "log", "prose", "json")))
SCHEMA = b'{"type":"object","properties":{"chars":{"type":"integer"},"seed":{"type":"integer"}}}'


def answer(body: dict[str, Any], request: Request) -> ScriptedReply:
    """`look N CHARS …` calls the tool N times at once; anything else, and results, get a few sentences."""
    if is_summary_request(body):
        return extractive_summariser(body, request)
    said = last_text(body)
    seed = number(len(said), len(request.body))
    latency = 1.0 + seed % 5
    if said.startswith("look ") and body["messages"][-1]["role"] == "user" and not _results(body):
        _, calls, chars, *_ = said.split()
        blocks = tuple(
            call("look", f"toolu_{seed:08x}{n}", chars=int(chars), seed=seed + n) for n in range(int(calls))
        )
        return ScriptedReply((Text("Let me look."), *blocks), latency=latency)
    return say(f"{sentence(seed, 8 + seed % 24)}.", latency=latency)


def _results(body: dict[str, Any]) -> bool:
    content = body["messages"][-1]["content"]
    return isinstance(content, list) and any(block.get("type") == "tool_result" for block in content)


class Look:
    """Gives as much text as it is asked for, never twice the same."""

    spec = ToolSpec("look", "Look something up.", SCHEMA, "look something up")

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        await anyio.lowlevel.checkpoint()
        chars, seed = int(arguments["chars"]), int(arguments["seed"])
        pool = POOL[seed % len(POOL)]
        at = seed % (len(pool) - chars) if chars < len(pool) else 0
        return ToolOutput((Text(f"result {seed}\n{pool[at : at + chars]}"),))

"""Sessions on scripted models of every wire family, through tools, pictures and a switch of model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from helpers_host import KEY, Play, ask, calls, hosted, tells, virtual
from helpers_kernel import each_loop
from perdure.edges.models.reply import ScriptedReply, call, say
from perdure.edges.models.strict import validate
from perdure.kernel.run import Backend
from perdure.kernel.virtual import VirtualClock
from perdure.records import ModelInfo, Text, Thinking

GOOGLE = ModelInfo("google", "gemini-3-pro-preview", "google-generative-ai", thinking="adaptive")
CONVERSE = "bedrock-converse-stream"
BEDROCK = ModelInfo("amazon-bedrock", "anthropic.claude-opus-4-6-v1", CONVERSE, thinking="adaptive")
CLAUDE = ModelInfo("anthropic", "claude-opus-4-6", thinking="adaptive")
RESPONSES = ModelInfo("openai", "gpt-5.2", "openai-responses", thinking="adaptive")
FAMILIES = [GOOGLE, BEDROCK, CLAUDE, RESPONSES]


def thoughtful(name: str, n: int) -> ScriptedReply:
    """An answer that thinks, speaks and calls twice."""
    return ScriptedReply((Thinking(f"hm {n}"), Text(f"so {n}"), call(name), call(name)))


@each_loop
def test_a_session_goes_from_family_to_family_and_no_request_is_refused(
    loop: Backend, tmp_path: Path
) -> None:
    async def main(clock: VirtualClock) -> Play:
        play = Play(key=KEY)
        known = {info.ref: info for info in FAMILIES}
        factories = {info.provider: (lambda i: play.model(clock, i)) for info in FAMILIES}
        host = hosted(tmp_path, play, clock, tools=[tells("look")], models=known, factories=factories)
        async with host:
            for n, info in enumerate((*FAMILIES, *reversed(FAMILIES))):
                await host.command(KEY, f"/model {info.ref}")
                play.then(thoughtful("look", n), say(f"done {n}"))
                reply = await ask(host, f"turn {n}")
                assert (reply.text, reply.errors) == (f"done {n}", ())
        return play

    play = virtual(main, loop)
    assert play.refused == 0
    assert len(play.bodies[KEY]) == 16
    for n, raw in enumerate(play.bodies[KEY]):
        body: dict[str, Any] = json.loads(raw)
        validate(body, model=(*FAMILIES, *reversed(FAMILIES))[n // 2])
        assert all(f"turn {k}" in raw.decode() for k in range(n // 2 + 1))


def test_a_scripted_model_of_bedrock_serves_the_cache_at_its_points(tmp_path: Path) -> None:
    info = ModelInfo("amazon-bedrock", "claude", CONVERSE, cache_minimum=16)

    async def main(clock: VirtualClock) -> list[Any]:
        play = Play(calls("look"))
        async with hosted(tmp_path, play, clock, info=info, tools=[tells("look", "x" * 4000)]) as host:
            return [(await ask(host, "go")).usage, (await ask(host, "on")).usage]

    first, second = virtual(main)
    assert first.cache_write > 0
    assert second.cache_read > first.cache_write // 2

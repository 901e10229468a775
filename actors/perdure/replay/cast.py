"""Who plays a scenario's parts: the scripted model's source and the tools, both fed by cues.

They wait by the clock only, and tell the stage when a cue begins and ends, so that a step can fall into
the middle of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from perdure.contracts import Request, Tool, ToolContext, ToolOutput
from perdure.edges.models.reply import ScriptedReply, say
from perdure.edges.models.summaries import extractive_summariser, is_flush_request, is_summary_request
from perdure.edges.tools.outcome import result
from perdure.errors import ModelError
from perdure.kernel.clock import Clock
from perdure.kernel.waiter import Waiter
from perdure.records import Block, Text, ToolCall, ToolSpec
from perdure.replay import content
from perdure.replay.cues import Cues
from perdure.replay.steps import ModelStep

ASIDE = 0.01  # seconds that belong to what follows a cue directly, before the next one
UNSCRIPTED = "(The script has no answer here.)"


class Stage:
    """What the cast shares: cues by session, what has begun and ended; `followed` cues let a step by."""

    def __init__(self, clock: Clock, followed: frozenset[int] = frozenset()) -> None:
        self.clock, self._followed = clock, followed
        self.cues: dict[str, Cues] = {}
        self._begun: dict[int, Waiter[None]] = {}
        self._ended: dict[int, Waiter[None]] = {}
        self._held: dict[str, float] = {}
        self.tool_runs: dict[str, int] = {}

    def of(self, session: str) -> Cues:
        """The session's cues."""
        return self.cues.setdefault(session, Cues())

    def begun(self, at: int) -> Waiter[None]:
        """Set when the step at `at` is taken."""
        return self._begun.setdefault(at, self.clock.waiter(f"step {at} to begin"))

    def ended(self, at: int) -> Waiter[None]:
        """Set when it has come back."""
        return self._ended.setdefault(at, self.clock.waiter(f"step {at} to end"))

    async def pass_time(self, session: str, at: int, latency: float) -> None:
        """Play the step's duration."""
        self.begun(at).set()
        await self.clock.sleep(latency)
        self.ended(at).set()
        if at in self._followed:
            self._held[session] = self.clock.now() + ASIDE

    async def hold(self, session: str) -> None:
        """The next request or call lets a step by that comes directly after the last cue."""
        until = self._held.pop(session, 0.0)
        if until > self.clock.now():
            await self.clock.sleep(until - self.clock.now())


async def answer(stage: Stage, body: dict[str, Any], request: Request) -> ScriptedReply:
    """The model's source: the next cue of the session; summaries and notes take none."""
    if is_summary_request(body):
        return extractive_summariser(body, request)
    if is_flush_request(request):
        return say("NO_REPLY")
    session = request.session
    cue = stage.of(session).model()
    if cue is None:
        return ScriptedReply((Text(UNSCRIPTED),))
    at, step = cue
    await stage.pass_time(session, at, step.latency)
    return _reply(step)


def _reply(step: ModelStep) -> ScriptedReply:
    if step.stop == "error":
        raise ModelError("invalid", step.error or "recorded error")
    blocks = content.answered(step)
    if step.stop == "aborted":
        return ScriptedReply(tuple(b for b in blocks if isinstance(b, Text)), "aborted")
    fault = step.fault or "none"
    stop = step.stop if blocks else step.stop or "stop"
    options: dict[str, Any] = {"malformed": _torn(blocks)} if fault == "malformed_arguments" else {}
    return ScriptedReply(
        blocks, stop if fault == "none" else step.stop, fault=fault, retry_after=step.retry_after, **options
    )


def _torn(blocks: tuple[Block, ...]) -> str:
    """What streams in place of the first call's arguments: unreadable ones as written, others cut in half."""
    raw = next((b.arguments for b in blocks if isinstance(b, ToolCall)), b"")
    try:
        msgspec.json.decode(raw)
    except msgspec.DecodeError:
        return raw.decode("utf-8", "replace")
    return raw[: max(1, len(raw) // 2)].decode("utf-8", "replace")


class ScriptedTool:
    """A tool that returns what the script says; where it says nothing, the real one runs, if there is one."""

    def __init__(self, spec: ToolSpec, stage: Stage, real: Tool | None) -> None:
        self.spec, self._stage, self._real = spec, stage, real

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        stage, session = self._stage, context.session
        await stage.hold(session)
        stage.tool_runs[session] = stage.tool_runs.get(session, 0) + 1
        cue = stage.of(session).tool(ToolCall(context.call_id, self.spec.name))
        if cue is None:
            stage.of(session).unscripted += self._real is None
            return await self._real.run(arguments, context) if self._real else result(UNSCRIPTED)
        at, step = cue
        await stage.pass_time(session, at, step.latency)
        return ToolOutput(content.said(step), step.error)


def cast_tools(stage: Stage, real: tuple[Tool, ...], called: tuple[str, ...]) -> tuple[ScriptedTool, ...]:
    """A scripted tool for each real one, and for every other name that the script calls."""
    known = {tool.spec.name for tool in real}
    others = [name for name in dict.fromkeys(called) if name not in known]
    plain: Callable[[str], ToolSpec] = lambda name: ToolSpec(  # noqa: E731
        name, f"The tool {name} of the script.", b'{"type":"object"}', f"{name}, as the script has it"
    )
    return (
        *(ScriptedTool(tool.spec, stage, tool) for tool in real),
        *(ScriptedTool(plain(name), stage, None) for name in others),
    )

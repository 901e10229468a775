"""Hosts for tests: in virtual time or real, with a scripted model that records what it was asked."""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import anyio
import anyio.lowlevel

from perdure.contracts import Request, ToolContext, ToolOutput
from perdure.edges.models.reply import ScriptedReply, call, say
from perdure.edges.models.scripted import ScriptedModel
from perdure.edges.models.strict import validate
from perdure.edges.models.summaries import extractive_summariser, is_summary_request
from perdure.events import Notice
from perdure.host import Host
from perdure.kernel.clock import Clock
from perdure.kernel.kernel import Kernel
from perdure.kernel.run import Backend, backend_options, run
from perdure.kernel.virtual import VirtualClock
from perdure.records import ModelInfo, Text, ToolSpec

KEY = "agent:main:cli:dm:local"
START = 1_767_600_000_000  # 2026-01-05 08:00 UTC
INFO = ModelInfo("scripted", "test", window=200_000, cache_minimum=16)
OBJECT = b'{"type":"object"}'

Answer: TypeAlias = "ScriptedReply | BaseException | Callable[[dict[str, Any], Request], Any]"


class Play:
    """A source of answers: one queue for each session, then `ok N`. Summaries are extracted, or `summary`."""

    def __init__(self, *replies: Answer, key: str = KEY, summary: Answer | None = None) -> None:
        self.queues: dict[str, deque[Answer]] = defaultdict(deque)
        self.queues[key].extend(replies)
        self.summary = summary
        self.bodies: dict[str, list[bytes]] = defaultdict(list)
        self.summaries: list[bytes] = []
        self.models: list[ScriptedModel] = []

    def then(self, *replies: Answer, key: str = KEY) -> None:
        """More answers for a session."""
        self.queues[key].extend(replies)

    def model(self, clock: Clock, info: ModelInfo = INFO, **options: Any) -> ScriptedModel:
        """A strict model that plays this; what it is asked is kept."""
        model = ScriptedModel(info, self, clock, on_request=self._saw, **options)
        self.models.append(model)
        return model

    def _saw(self, request: Request) -> None:
        session, _, purpose = request.session.partition("#")
        if purpose:
            self.summaries.append(request.body)
            return
        self.bodies[session].append(request.body)

    async def __call__(self, body: dict[str, Any], request: Request) -> ScriptedReply:
        if is_summary_request(body):
            return await _played(self.summary or extractive_summariser, body, request)
        session = request.session or KEY
        queue = self.queues[session]
        reply = queue.popleft() if queue else say(f"ok {len(self.bodies[session])}")
        return await _played(reply, body, request)

    @property
    def refused(self) -> int:
        """Requests that the strict door or the window refused."""
        return sum(model.refused for model in self.models)

    def last(self, key: str = KEY) -> dict[str, Any]:
        """The last request of a session."""
        return dict(json.loads(self.bodies[key][-1]))


async def _played(reply: Answer, body: dict[str, Any], request: Request) -> ScriptedReply:
    if isinstance(reply, BaseException):
        raise reply
    if isinstance(reply, ScriptedReply):
        return reply
    found = reply(body, request)
    return found if isinstance(found, ScriptedReply) else await found


def calls(*names: str, text: str = "", **options: Any) -> ScriptedReply:
    """An answer that calls these tools, in parallel."""
    texts = (Text(text),) if text else ()
    return ScriptedReply(
        (*texts, *(call(name, f"toolu_{name}_{n}") for n, name in enumerate(names))), **options
    )


class Fn:
    """A tool made of a function of (arguments, context); what isn't an output becomes its text."""

    def __init__(self, name: str, fn: Callable[..., Awaitable[Any]]) -> None:
        self.spec = ToolSpec(name, f"The tool {name}.", OBJECT, name)
        self._fn, self.runs = fn, 0

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        self.runs += 1
        found = await self._fn(arguments, context)
        return ToolOutput((Text(found),)) if isinstance(found, str) else found


def tells(name: str, text: str = "done") -> Fn:
    """A tool that returns a text."""

    async def fn(arguments: Mapping[str, Any], context: ToolContext) -> str:
        await anyio.lowlevel.checkpoint()
        return text

    return Fn(name, fn)


class Gate:
    """A tool, or a model's answer, that says when it has begun and waits until it may go on."""

    def __init__(self, clock: Clock, reply: ScriptedReply | None = None) -> None:
        self._clock, self._reply = clock, reply or say("gated")
        self.begun, self._go = clock.waiter("the gate's beginning"), clock.waiter("the gate to open")

    def open(self) -> None:
        self._go.set()

    async def arrived(self) -> None:
        await self._clock.wait(self.begun, 1000)

    async def pass_through(self) -> None:
        self.begun.set()
        await self._clock.wait(self._go, 86_400)

    async def __call__(self, body: dict[str, Any], request: Request) -> ScriptedReply:
        await self.pass_through()
        return self._reply

    def tool(self, name: str) -> Fn:
        async def fn(arguments: Mapping[str, Any], context: ToolContext) -> str:
            await self.pass_through()
            return f"{name} went through"

        return Fn(name, fn)


def hosted(
    folder: Path,
    play: Play,
    clock: Clock,
    *,
    info: ModelInfo = INFO,
    tools: Iterable[Any] = (),
    accounting: bool = True,
    **options: Any,
) -> Host:
    """A host on `folder/state` that plays `play`, with the same workspace name everywhere."""
    (folder / "workspace").mkdir(exist_ok=True)
    given = {"workspace": folder / "workspace", "shown_workspace": "/workspace", "environ": {}} | options
    model = play.model(clock, info, accounting=accounting)
    return Host(folder / "state", model=model, tools=tuple(tools), clock=clock, **given)


def virtual(main: Callable[[VirtualClock], Awaitable[Any]], loop: Backend = "asyncio", seed: int = 0) -> Any:
    """`main(clock)` under virtual time; the driver's own kernel outlives the hosts."""
    clock = VirtualClock(seed, START)

    async def root(_: Kernel) -> Any:
        return await main(clock)

    return run(root, backend=loop, clock=clock)


def real(main: Callable[[], Awaitable[Any]], loop: Backend = "asyncio", seconds: float = 30.0) -> Any:
    """`main()` by the machine's time, with a net around it."""
    name, options = backend_options(loop)

    async def bounded() -> Any:
        with anyio.fail_after(seconds):
            return await main()

    return anyio.run(bounded, backend=name, backend_options=options)


async def ask(host: Host, text: str, key: str = KEY, **options: Any) -> Any:
    """Send and await the reply."""
    sent = await host.send(key, text, **options)
    return await sent.reply(100_000)


def notices(host: Host) -> list[Notice]:
    """What users are told from now on, in a list that grows."""
    seen: list[Notice] = []
    host.services.events.subscribe("test", lambda e: seen.append(e) if isinstance(e, Notice) else None)
    return seen


# --- what stands in files -------------------------------------------------------------------------


def session_path(folder: Path, key: str = KEY) -> Path:
    """Where a session's file is."""
    from perdure.edges.session import keys

    return folder / "state" / "sessions" / keys.relative_path(key)


def entries(path: Path) -> list[dict[str, Any]]:
    """All whole lines of a session file, decoded; a torn last line is left out."""
    found = []
    for row in path.read_bytes().split(b"\n"):
        try:
            found.append(json.loads(row))
        except ValueError:
            continue
    return [entry for entry in found if isinstance(entry, dict)]


def messages(path: Path, role: str | None = None) -> list[dict[str, Any]]:
    """The message entries of a file, in order."""
    found = [e for e in entries(path) if e["type"] == "message"]
    return [e for e in found if role in (None, e["message"]["role"])]


def said_by_users(path: Path) -> list[str]:
    """Texts of the user messages, in order."""
    return [text_of(e["message"]) for e in messages(path, "user")]


def text_of(message: Mapping[str, Any]) -> str:
    """All text of a message as stored, or as sent."""
    content = message["content"]
    return content if isinstance(content, str) else "".join(b.get("text", "") for b in content)


def accepted(bodies: Iterable[bytes], info: ModelInfo = INFO) -> None:
    """Every body passes the strict door."""
    for body in bodies:
        validate(json.loads(body), model=info)

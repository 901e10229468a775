"""What a model sees of subagents: four tools. All answer with JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from perdure.actors.services import Services
from perdure.actors.subagents.mail import Halt, Kindred, Spawn
from perdure.actors.subagents.spawning import MOST_TASK, Refused, Wish
from perdure.contracts import Tool, ToolContext, ToolOutput
from perdure.edges.session.kin import ChildGrant, Kin, Relatives
from perdure.edges.session.kin import line_of as line
from perdure.edges.settings import Settings
from perdure.edges.tools.arguments import Checked
from perdure.edges.tools.builtin import offered
from perdure.edges.tools.outcome import failure, result
from perdure.edges.tools.spec import make_spec, number, text
from perdure.errors import UsageError
from perdure.kernel.errors import DeadlineExceeded
from perdure.kernel.waiter import Waiter
from perdure.records import ToolSpec

MARGIN = 5.0  # seconds before its deadline that a tool which waits gives up by itself
WAIT = 300.0  # seconds that `sessions_wait` waits where it isn't told
_WHICH = "Session key or run id of a subagent of this session"

SPAWN = make_spec(
    "sessions_spawn",
    "Begin a subagent: a session of its own that does one task in the background. Returns at once; its "
    "result comes by itself as a message. Mode isolated: it knows the task only, so say all it needs; "
    "forked: it knows this conversation up to now; projected: it is shown the newest part of it.",
    "Begin a subagent for one task",
    {
        "task": text("What it is to do, and what to report", minLength=1, maxLength=MOST_TASK),
        "label": text("A short name", maxLength=100),
        "mode": text("Its context (default isolated)", enum=["isolated", "forked", "projected"]),
        "agentId": text("The agent (default and only choice: this one)", maxLength=64),
        "model": text("provider/model (default: the agent's)", maxLength=200),
        "thinking": text("Thinking level", enum=["off", "minimal", "low", "medium", "high"]),
        "runTimeoutSeconds": number("Seconds after which it ends", 0, 86_400),
        "timeoutSeconds": number("The same", 0, 86_400),
        "cleanup": text("What becomes of its session (default keep)", enum=["keep", "delete"]),
        "maxTokens": number("Tokens that it and its own subagents may use", 1, 1_000_000_000),
        "maxUsd": {"type": "number", "description": "US dollars that they may spend", "minimum": 0},
        "contextTokens": number("Tokens of a projected context", 1, 1_000_000),
    },
    required=("task",),
)
LIST = make_spec(
    "sessions_list",
    "List the subagents of this session: which run, how the others ended, what they used.",
    "List subagents",
    {},
)
STOP = make_spec(
    "sessions_stop",
    "Stop a subagent of this session, and its own. What it has found so far comes as its result.",
    "Stop a subagent",
    {"session": text(_WHICH, minLength=1, maxLength=300)},
    required=("session",),
)
AWAIT = make_spec(
    "sessions_wait",
    "Wait until subagents of this session have ended (all of them, or those named). Their results come as "
    "messages of their own. Only where there is nothing else to do: results come without waiting, too.",
    "Wait for subagents",
    {
        "sessions": {
            "type": "array",
            "items": text(_WHICH, maxLength=300),
            "description": "Which (default: all)",
            "maxItems": 64,
        },
        "timeoutSeconds": number("Seconds to wait at most (default 300)", 0, 86_400),
    },
)


SPECS = (SPAWN, LIST, STOP, AWAIT)


def subagent_tools(settings: Settings, services: Callable[[], Services] | None = None) -> tuple[Tool, ...]:
    """Those that the settings let through; none by default. `services` is asked with each call, for it comes
    after the tools; without it they are to be looked at only.
    """
    if not settings.subagents.enabled:
        return ()
    ask, lists = services or _nobody, (settings.tools.allow, settings.tools.deny)
    every = (SpawnTool(ask), ListTool(ask), StopTool(ask), WaitTool(ask))
    return tuple(Checked(tool) for tool in every if offered(tool.spec.name, *lists))


def _nobody() -> Services:
    raise UsageError("no host runs: nothing can be begun")


class _Of:
    spec: ToolSpec

    def __init__(self, services: Callable[[], Services]) -> None:
        self._services = services

    async def _kindred(self, key: str) -> Relatives:
        services = self._services()
        done: Waiter[Relatives] = services.clock.waiter(f"{key}: its subagents")
        services.family.post(key, Kindred(done))
        return await services.clock.wait(done, services.timing.ask)


class SpawnTool(_Of):
    """See `SPAWN`."""

    spec = SPAWN

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        services = self._services()
        done: Waiter[ChildGrant] = services.clock.waiter(f"{context.session}: its subagent")
        try:
            if not services.family.post(context.session, Spawn(context.call_id, wish(arguments), done)):
                return refused(Refused("storage", "this session has no file"))
            grant = await services.clock.wait(done, 4 * services.timing.ask)
        except Refused as error:
            return refused(error)
        except DeadlineExceeded:
            return refused(Refused("queue", "it did not begin in time; if it does, its result will come"))
        told: dict[str, Any] = {"status": "accepted", "childSessionKey": grant.child, "runId": grant.run}
        told |= {"mode": grant.mode, "timeoutSeconds": (grant.deadline - grant.began) / 1000}
        told |= {"maxTokens": grant.tokens} if grant.tokens else {}
        told |= {"maxUsd": grant.usd} if grant.usd else {}
        told["note"] = "Its result comes as a message; end the turn, or go on with something else."
        return _json(told)


class ListTool(_Of):
    """See `LIST`."""

    spec = LIST

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        relatives = await self._kindred(context.session)
        told = {"sessions": [line(kin) for kin in relatives.children], "earlier": relatives.past}
        return _json(told)


class StopTool(_Of):
    """See `STOP`."""

    spec = STOP

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        services = self._services()
        found = named(await self._kindred(context.session), (arguments["session"],))
        if isinstance(found, str):
            return failure(found)
        (kin,) = found
        if kin.ending is not None:
            return _json(line(kin) | {"note": "it had ended already"})
        done: Waiter[bool] = services.clock.waiter(f"{kin.grant.child}: its stop")
        services.family.post(kin.grant.child, Halt("stopped by its parent", run=kin.grant.run, done=done))
        await services.clock.wait(done, services.timing.ask)
        return _json(line(kin) | {"state": "stopping", "note": "its result comes as a message"})


class WaitTool(_Of):
    """See `AWAIT`."""

    spec = AWAIT

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        services, family = self._services(), self._services().family
        most = max(0.0, services.timing.tool - MARGIN)
        until = services.clock.now() + min(float(arguments.get("timeoutSeconds", WAIT)), most)
        wanted = tuple(arguments.get("sessions") or ())
        while True:
            seen = family.version
            found = named(await self._kindred(context.session), wanted)
            if isinstance(found, str):
                return failure(found)
            left = [kin for kin in found if kin.ending is None]
            if not left or not await family.after(seen, until):
                break
        told = {"status": "timeout" if left else "done", "sessions": [line(kin) for kin in found]}
        told |= {"note": "what runs goes on, and its result will come"} if left else {}
        return _json(told)


def wish(arguments: Mapping[str, Any]) -> Wish:
    """The arguments of `sessions_spawn`. Raises `Refused`."""
    get = arguments.get
    told: dict[str, Any] = {
        "task": get("task", ""),
        "label": get("label", ""),
        "agent": get("agentId", ""),
        "model": get("model", ""),
        "thinking": get("thinking", ""),
        "mode": get("mode", "isolated"),
        "seconds": get("runTimeoutSeconds") or get("timeoutSeconds") or 0,
        "cleanup": get("cleanup", "keep"),
        "tokens": get("maxTokens", 0),
        "usd": get("maxUsd", 0.0),
        "context_tokens": get("contextTokens", 0),
    }
    try:
        return msgspec.convert(told, Wish)
    except msgspec.ValidationError as error:
        raise Refused("arguments", str(error)) from None


def named(relatives: Relatives, which: tuple[str, ...]) -> tuple[Kin, ...] | str:
    """The children that keys, run ids or labels name, all that are open where none is; else what is wrong."""
    if not which:
        return relatives.open
    found: list[Kin] = []
    for name in which:
        these = [k for k in relatives.children if name in (k.grant.child, k.grant.run, k.grant.label)]
        if len(these) != 1:
            many = "names several subagents" if these else "is no subagent of this session"
            return f"{name[:120]!r} {many}: give a session key or run id as sessions_list shows it"
        found += these
    return tuple(found)


def refused(error: Refused) -> ToolOutput:
    """A call that began nothing, with the reason."""
    status = "error" if error.why in ("engine", "storage", "arguments") else "forbidden"
    told = {"status": status, "reason": error.why, "error": str(error)}
    return failure(msgspec.json.encode(told).decode(), **told)


def _json(told: dict[str, Any]) -> ToolOutput:
    return result(msgspec.json.encode(told).decode(), **told)

"""One batch of tool calls: parallel, each result appended as it completes, none run twice by itself.

Every call is a job of its own behind the bulkhead: whatever a tool raises, swallows or never returns
becomes an error result of that call. On an abort the children are stopped in call order, by us.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.actors.evidence import bounded
from perdure.actors.messages import Snapshot
from perdure.actors.recalling import SessionRecall
from perdure.actors.services import Services
from perdure.actors.waits import inside
from perdure.contracts import Recall, ToolOutput
from perdure.edges.tools.outcome import bad_arguments, failed, failure, timed_out, unknown_tool
from perdure.errors import PerdureError
from perdure.events import ToolEnded, ToolStarted
from perdure.kernel.errors import DeadlineExceeded
from perdure.kernel.outcome import Failed, Lost, Returned, describe
from perdure.records import ToolCall, ToolResult

if TYPE_CHECKING:
    from perdure.actors.turn import Turn


@dataclass(frozen=True, slots=True)
class CallContext:
    """What one running tool may use."""

    session: str
    session_id: str
    call_id: str
    workspace: Path
    recall: Recall
    services: Services
    virtual: bool

    async def run_blocking(self, work: Callable[[], Any]) -> Any:
        return await self.services.io.run(work)


async def run_batch(
    turn: Turn, view: Snapshot, asked_by: str, calls: tuple[ToolCall, ...], unparsable: Mapping[str, str]
) -> None:
    """Run `calls` of the assistant entry `asked_by` and append their results; returns when all are in."""
    work = [partial(_run_one, turn, view, call, unparsable.get(call.id)) for call in calls]
    outcomes = await turn.services.kernel.gather(f"{turn.key}#{turn.number}.{asked_by}", *work)
    for call, outcome in zip(calls, outcomes, strict=True):
        if isinstance(outcome, Failed) and isinstance(outcome.error, PerdureError):
            raise outcome.error  # the session did not take the result: the turn is over, or its disk is full
        if isinstance(outcome, Failed | Lost):
            await _append(turn, call, failed(call.name, describe(outcome)))


async def _run_one(turn: Turn, view: Snapshot, call: ToolCall, unparsable: str | None) -> None:
    services = turn.services
    services.events.publish(ToolStarted(turn.key, call.id, call.name))
    output = await _output(turn, view, call, unparsable)
    await _append(turn, call, *await bounded(services, output))
    services.events.publish(ToolEnded(turn.key, call.id, call.name, output.is_error))


async def _output(turn: Turn, view: Snapshot, call: ToolCall, unparsable: str | None) -> ToolOutput:
    services = turn.services
    tool = turn.tool(view, call.name)
    if tool is None:
        return unknown_tool(call.name, [spec.name for spec in view.environment.tools])
    arguments = object_or_none(call.arguments)
    if unparsable is not None or arguments is None:
        return bad_arguments(call.name, unparsable or "a JSON object is expected")
    refusal = await services.approvals.refusal(turn.key, view.session_id, call.id, tool, arguments)
    if refusal is not None:
        return failure(refusal, refused=True)
    context = CallContext(
        session=turn.key,
        session_id=view.session_id,
        call_id=call.id,
        workspace=services.resolver.workspace(turn.key),
        recall=SessionRecall(services, Path(view.file)),
        services=services,
        virtual=services.clock.virtual,
    )

    async def run() -> ToolOutput:
        tenant = services.gates.tenancy.of(turn.key)
        permits = services.gates.tool(tenant.name, call.name)
        async with permits.use(tenant.name, turn.key, timeout=services.timing.tool):
            with inside(turn.key):
                return await tool.run(arguments, context)

    try:
        with services.clock.fail_after(services.timing.tool):  # a job: what ignores its end is left behind
            (outcome,) = await services.kernel.gather(f"{turn.key}#{turn.number}.{call.id}", run)
    except DeadlineExceeded:
        return timed_out(call.name, services.timing.tool)
    if isinstance(outcome, Returned):
        try:
            return checked(outcome.value)
        except (TypeError, msgspec.DecodeError) as error:
            outcome = Failed(error)
    services.log.warning("tool.failed", session=turn.key, tool=call.name, error=describe(outcome))
    return failed(call.name, outcome.error if isinstance(outcome, Failed) else describe(outcome))


def object_or_none(raw: bytes) -> dict[str, Any] | None:
    """A call's arguments, where they are an object."""
    try:
        value = msgspec.json.decode(raw)
    except msgspec.DecodeError:
        return None
    return value if isinstance(value, dict) else None


def checked(output: object) -> ToolOutput:
    """What can be written as it is. Raises `TypeError`, `DecodeError` for a tool's mistake."""
    if not isinstance(output, ToolOutput):
        raise TypeError(f"it returned {type(output).__name__}, not a ToolOutput")
    if output.details is not None:
        if not isinstance(output.details, bytes):
            raise TypeError("its details are not JSON as bytes")
        msgspec.json.decode(output.details, type=msgspec.Raw)
    return output


async def _append(turn: Turn, call: ToolCall, output: ToolOutput, evidence: tuple[str, ...] = ()) -> None:
    now = turn.services.clock.wall_ms()
    result = ToolResult(call.id, call.name, output.content, output.is_error, output.details, now)
    await turn.append(result, evidence=evidence)

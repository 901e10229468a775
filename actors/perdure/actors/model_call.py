"""One model call with the retries it deserves: the only place that repeats a request.

The vendors' own retries are switched off, so that every wait is in the kernel's time and seen.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from math import inf
from typing import TypeVar

from perdure.actors.gates import Slot
from perdure.actors.messages import Snapshot
from perdure.actors.services import Services, Timing
from perdure.actors.spending import Reservation
from perdure.actors.tally import Tally
from perdure.context.pipeline import Prepared
from perdure.contracts import Answer, CallStarted, ModelEvent, Request, TextDelta, ThinkingDelta
from perdure.errors import ModelError
from perdure.events import Notice, Said, Thought
from perdure.kernel.errors import DeadlineExceeded
from perdure.records import Block, Text, Thinking, Usage

T = TypeVar("T")


async def call_model(
    services: Services, view: Snapshot, prepared: Prepared, tally: Tally, slot: Slot
) -> Answer:
    """The model's answer to `prepared`. Raises the `ModelError` that retrying did not cure.

    `slot` is held for the first try and given back after each.
    """
    env = view.environment
    request = Request(prepared.body, env.model, prepared.tokens, view.key)
    for attempt in range(services.timing.retries + 1):
        try:
            return await _allowed(services, request, env.output_cap, slot, _once, tally)
        except ModelError as error:
            last = attempt == services.timing.retries
            if last or not error.retryable or later(services.timing, error):
                raise
            wait = pause(services.timing, attempt, error.retry_after)
            tally.errors.append(str(error))
            services.calls.retried(env.model.ref)
            services.log.warning(
                "model.retry", session=view.key, kind=error.kind, wait=wait, attempt=attempt + 1
            )
            services.events.publish(
                Notice(view.key, "retry", f"{error}; trying again in {round(wait, 1):g} s")
            )
            await services.clock.sleep(wait)
    raise AssertionError("unreachable")


async def answer_of(
    services: Services, request: Request, until: float = inf, *, slot: Slot | None = None, output: int = 0
) -> Answer:
    """One call that nobody listens to, without a second try, at most until `until`. Raises `ModelError`.

    `output`: tokens that the answer may have, where that isn't the model's own limit.
    """
    key, _, _ = request.session.partition("#")
    slot = slot or services.gates.slot(key, band="back")
    most = output or request.model.max_output
    return await _allowed(services, request, most, slot, _quietly, until, until=until)


async def _allowed(
    services: Services,
    request: Request,
    output: int,
    slot: Slot,
    call: Callable[[Services, Request, T], Awaitable[Answer]],
    given: T,
    *,
    until: float = inf,
) -> Answer:
    """`call` once the provider has room and the budget allows it; both are told what became of it."""
    reserved, ref = await _reserved(services, request, output, slot, until), request.model.ref
    services.calls.asked(ref)
    try:
        answer = await call(services, request, given)
    except ModelError as error:
        services.calls.failed(ref, error.kind)
        slot.failed(error)
        if error.kind not in UNKNOWN_COST:  # refused: nothing was used
            reserved.settle(Usage())
        raise
    else:
        slot.worked()
        reserved.settle(answer.message.usage)
        return answer
    finally:
        reserved.settle(None)  # cancelled, or nobody knows
        slot.give()


UNKNOWN_COST = frozenset({"timeout", "cut", "aborted", "empty", "invalid"})  # something may have been made


async def _reserved(
    services: Services, request: Request, output: int, slot: Slot, until: float
) -> Reservation:
    """Near a cap one call after the other is made; who waits for that holds up no other tenant."""
    key, _, _ = request.session.partition("#")
    clock, longest = services.clock, services.gates.models.queue_seconds
    while True:
        left = max(0.001, min(longest, until - clock.now()))
        await slot.take(request.model.provider, left)
        try:
            reserved = services.spending.reserve(key, request.model, request.tokens, output)
        except BaseException:
            slot.give()
            raise
        if reserved is not None:
            return reserved
        slot.give()
        try:
            await services.spending.settled(key, left)
        except DeadlineExceeded:
            raise ModelError("timeout", f"no other call under the same cap ended in {left:.0f} s") from None


async def _quietly(services: Services, request: Request, until: float) -> Answer:
    stream = services.resolver.model(request.model).stream(request)
    try:
        while True:
            left = max(0.001, until - services.clock.now())
            with services.clock.fail_after(min(services.timing.model_idle, left)):
                event = await anext(stream)
            if isinstance(event, Answer):
                return event
    except DeadlineExceeded:
        raise ModelError("timeout", "the model went silent, or took too long") from None
    except StopAsyncIteration:
        raise ModelError("cut", "the model's stream ended early") from None
    finally:
        await stream.aclose()  # type: ignore[attr-defined]  # every model streams from an async generator


def later(timing: Timing, error: ModelError) -> float:
    """Seconds that are too long for a turn to wait, if the provider wants them; else 0."""
    wait = error.retry_after or 0.0
    return wait if error.retryable and wait > timing.longest_wait else 0.0


def pause(timing: Timing, attempt: int, retry_after: float | None) -> float:
    """Seconds before the next try: what the provider asked for, else doubling up to the cap."""
    backoff = min(timing.retry_cap, timing.retry_base * 2.0**attempt)
    return max(retry_after, timing.retry_base) if retry_after is not None else backoff


async def _once(services: Services, request: Request, tally: Tally) -> Answer:
    tally.partial, tally.asked = "", services.clock.wall_ms()
    stream = services.resolver.model(request.model).stream(request)
    try:
        while True:
            try:
                with services.clock.fail_after(services.timing.model_idle):
                    event = await anext(stream)
            except DeadlineExceeded:
                idle = services.timing.model_idle
                raise ModelError("timeout", f"the model sent nothing for {idle:.0f} s") from None
            except StopAsyncIteration:
                raise ModelError("cut", "the model's stream ended before its answer was whole") from None
            if isinstance(event, Answer):
                return _checked(event)
            _publish(services, request.session, event, tally)
    finally:
        await stream.aclose()  # type: ignore[attr-defined]  # every model streams from an async generator


def _checked(answer: Answer) -> Answer:
    message = answer.message
    if message.stop == "error":
        raise ModelError("invalid", message.error or "the model refused")
    if message.stop == "stop" and not any(map(_says, message.content)):
        raise ModelError("empty", "the model's answer is blank: no word, no tool call")
    return answer


def _says(block: Block) -> bool:
    """Whether somebody can do something with it; thinking alone is for the model itself."""
    return not isinstance(block, Thinking) and (not isinstance(block, Text) or bool(block.text.strip()))


def _publish(services: Services, key: str, event: ModelEvent, tally: Tally) -> None:
    match event:
        case TextDelta(text):
            tally.partial += text
            services.events.publish(Said(key, text))
        case ThinkingDelta(text):
            services.events.publish(Thought(key, text))
        case CallStarted() | Answer():
            pass

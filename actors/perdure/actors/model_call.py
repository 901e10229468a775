"""One model call with the retries it deserves: the only place that repeats a request.

The vendors' own retries are switched off, so that every wait is in the kernel's time and seen.
"""

from __future__ import annotations

from math import inf

from perdure.actors.messages import Snapshot, Tally
from perdure.actors.services import Services, Timing
from perdure.context.pipeline import Prepared
from perdure.contracts import Answer, CallStarted, ModelEvent, Request, TextDelta, ThinkingDelta
from perdure.errors import ModelError
from perdure.events import Notice, Said, Thought
from perdure.kernel.errors import DeadlineExceeded
from perdure.records import Block, Text, Thinking


async def call_model(services: Services, view: Snapshot, prepared: Prepared, tally: Tally) -> Answer:
    """The model's answer to `prepared`. Raises the `ModelError` that retrying did not cure."""
    request = Request(prepared.body, view.environment.model, prepared.tokens, view.key)
    ref = request.model.ref
    for attempt in range(services.timing.retries + 1):
        services.calls.asked(ref)
        try:
            return await _once(services, request, tally)
        except ModelError as error:
            services.calls.failed(ref, error.kind)
            if not error.retryable or attempt == services.timing.retries:
                raise
            wait = pause(services.timing, attempt, error.retry_after)
            tally.errors.append(str(error))
            services.calls.retried(ref)
            services.log.warning(
                "model.retry", session=view.key, kind=error.kind, wait=wait, attempt=attempt + 1
            )
            services.events.publish(
                Notice(view.key, "retry", f"{error}; trying again in {round(wait, 1):g} s")
            )
            await services.clock.sleep(wait)
    raise AssertionError("unreachable")


async def answer_of(services: Services, request: Request, until: float = inf) -> Answer:
    """One call that nobody listens to, without a second try, at most until `until`. Raises `ModelError`."""
    services.calls.asked(request.model.ref)
    try:
        return await _answered(services, request, until)
    except ModelError as error:
        services.calls.failed(request.model.ref, error.kind)
        raise


async def _answered(services: Services, request: Request, until: float) -> Answer:
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

"""The model inside: answers from a script, as strict about requests as a provider, and exact in its bill.

The default of the runtime, of replay and of every test. It refuses what the provider would refuse,
counts with a real tokenizer and keeps a prompt cache in the script's clock.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing
from hashlib import blake2b, sha256
from inspect import isawaitable
from typing import Any, Protocol

import msgspec

from perdure.contracts import Answer, CallStarted, ModelEvent, Request, TextDelta, ThinkingDelta
from perdure.edges.models.accounting import Accounting, Plan
from perdure.edges.models.classify import model_error
from perdure.edges.models.issued import Issued
from perdure.edges.models.partial import read_arguments
from perdure.edges.models.reply import REFUSALS, ScriptedReply, Source
from perdure.edges.models.rules.refusal import Json, Refused, invalid, too_long
from perdure.edges.models.strict import validate
from perdure.errors import ModelError
from perdure.records import Assistant, Block, ModelInfo, Text, Thinking, ToolCall, Usage

__all__ = ["PromptDigests", "ScriptedModel", "ScriptedReply", "Source"]


class Pace(Protocol):
    """What is used of the kernel's clock: no wait of a scripted model goes past it."""

    def now(self) -> float: ...
    def wall_ms(self) -> int: ...
    async def sleep(self, seconds: float, /) -> None: ...
    def waiter(self) -> Any: ...
    async def wait(self, waiter: Any, /) -> Any: ...


class ScriptedModel:
    """Implements `contracts.Model`. `source` decides each answer from the decoded body and the request.

    `strict` checks structure, `known` also by rules that are only hearsay, `accounting` counts tokens
    (give an `Accounting` to share one cache between models). `on_request` sees every request first.
    Counters: `requests`, `refused` (by strict or the window), `errors` by kind.
    """

    def __init__(
        self,
        info: ModelInfo,
        source: Source,
        clock: Pace,
        *,
        strict: bool = True,
        known: bool = True,
        accounting: bool | Accounting = True,
        on_request: Callable[[Request], None] | None = None,
    ) -> None:
        self.info = info
        self.requests = self.refused = 0
        self.errors: dict[str, int] = {}
        self._source, self._clock, self._on_request = source, clock, on_request
        self._strict, self._known, self._issued = strict, known, Issued()
        self._accounting = (
            accounting if isinstance(accounting, Accounting) else Accounting() if accounting else None
        )

    async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        """The events of one answer. Raises `ModelError` for a refusal or a scripted fault."""
        self.requests += 1
        if self._on_request:
            self._on_request(request)
        try:
            body, plan = self.check(request)
            found = self._source(body, request)
            reply = await found if isawaitable(found) else found
            await self._clock.sleep(reply.latency)
            async with aclosing(self._play(reply, request, plan)) as events:
                async for event in events:
                    yield event
        except Refused as refusal:
            self.refused += 1
            raise self._counted(
                model_error(refusal.status, f"{refusal.error_type}: {refusal.message}")
            ) from None
        except ModelError as error:
            raise self._counted(error) from None

    def check(self, request: Request) -> tuple[Json, Plan]:
        """Decode, check and count a request. Raises `Refused` in the provider's wording."""
        body = decode(request.body)
        if self._strict:
            validate(body, known=self._known, model=self.info)
            self._issued.check(body["messages"])
        if self._accounting is None:
            return body, Plan(0)
        plan = self._accounting.plan(body, self.info, self._clock.now())
        if plan.tokens > self.info.window:
            too_long(plan.tokens, self.info.window)
        return body, plan

    async def _play(self, reply: ScriptedReply, request: Request, plan: Plan) -> AsyncGenerator[ModelEvent]:
        if reply.fault == "stall":
            await self._clock.wait(self._clock.waiter())  # never set: only a deadline ends it
        refuse(reply, plan, self.info)
        if self._accounting is not None:
            self._accounting.commit(plan, self._clock.now())
        blocks = tuple(_named(block, n, request.body) for n, block in enumerate(reply.blocks))
        events = [event for block in blocks for event in deltas(block, reply.chunks)]
        if reply.fault == "cut":
            events = events[: len(events) // 2]
        for n, event in enumerate(events):
            if n and reply.pace:
                await self._clock.sleep(reply.pace)
            yield event
        if reply.fault == "cut":
            raise ModelError("cut", "the answer broke off: the stream ended before its last event")
        if reply.fault == "empty" or (not blocks and reply.fault == "none"):
            raise ModelError("empty", "the model returned an empty answer")
        yield self._answer(reply, blocks, plan)

    def _answer(self, reply: ScriptedReply, blocks: tuple[Block, ...], plan: Plan) -> Answer:
        errors: list[tuple[str, str]] = []
        if reply.fault == "malformed_arguments":
            blocks = tuple(_broken(block, reply.malformed, errors) for block in blocks)
        self._issued.remember(blocks)
        stop = reply.stop or ("toolUse" if any(isinstance(b, ToolCall) for b in blocks) else "stop")
        refusal = "the model refused to answer (refusal)" if reply.fault == "refusal" else None
        message = Assistant(
            blocks,
            "error" if refusal else stop,
            self.info.provider,
            self.info.api,
            self.info.id,
            reply.usage or self._usage(blocks, plan),
            refusal,
            self._clock.wall_ms(),
        )
        return Answer(message, tuple(errors))

    def _usage(self, blocks: tuple[Block, ...], plan: Plan) -> Usage | None:
        if self._accounting is None:
            return None
        return plan.usage(self.info, sum(self._accounting.text(written(block)) for block in blocks) or 1)

    def _counted(self, error: ModelError) -> ModelError:
        self.errors[error.kind] = self.errors.get(error.kind, 0) + 1
        return error


class PromptDigests:
    """SHA-256 over the request bodies of each session, in order; give it as `on_request`."""

    def __init__(self) -> None:
        self._chains: dict[str, Any] = {}

    def __call__(self, request: Request) -> None:
        self._chains.setdefault(request.session, sha256()).update(request.body)

    def hex(self, session: str) -> str:
        """The digest so far; that of nothing for a session without requests."""
        chain = self._chains.get(session) or sha256()
        return str(chain.hexdigest())


def decode(body: bytes) -> Json:
    """The body as an object, or `Refused` in the words of a provider's JSON reader."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        invalid(f"The request body is not valid JSON: {error}")
    if not isinstance(value, dict):
        invalid("The request body is not valid JSON: an object is expected")
    return value


def refuse(reply: ScriptedReply, plan: Plan, info: ModelInfo) -> None:
    """Raise the error of a fault that comes before the first token, in the provider's wording."""
    if reply.fault == "overflow":
        message = f"prompt is too long: {max(plan.tokens, info.window + 1)} tokens > {info.window} maximum"
        raise model_error(400, f"invalid_request_error: {message}")
    if reply.fault in REFUSALS:
        status, kind, message = REFUSALS[reply.fault]
        wait = {} if reply.retry_after is None else {"retry-after": f"{reply.retry_after:g}"}
        raise model_error(status, f"{kind}: {message}", wait)


def deltas(block: Block, chunks: int) -> Iterator[ModelEvent]:
    """What a block looks like while it is streamed."""
    if isinstance(block, Text):
        yield from (TextDelta(piece) for piece in split(block.text, chunks))
    elif isinstance(block, Thinking) and not block.redacted:
        yield from (ThinkingDelta(piece) for piece in split(block.thinking, chunks))
    elif isinstance(block, ToolCall):
        yield CallStarted(block.id, block.name)


def split(text: str, chunks: int) -> list[str]:
    """A text in at most `chunks` pieces of about the same length."""
    size = max(1, -(-len(text) // max(1, chunks)))
    return [text[n : n + size] for n in range(0, len(text), size)]


def written(block: Block) -> str:
    """The text that a block cost the model to write."""
    if isinstance(block, Text):
        return block.text
    if isinstance(block, Thinking):
        return block.thinking
    return f"{block.name} {block.arguments.decode('utf-8', 'replace')}" if isinstance(block, ToolCall) else ""


def _named(block: Block, n: int, body: bytes) -> Block:
    """Give a call its id and thinking its signature: from the request, so that a replay gives the same."""
    if isinstance(block, ToolCall) and not block.id:
        return msgspec.structs.replace(block, id=f"toolu_{_mark(body, n)}")
    if isinstance(block, Thinking) and not block.signature:
        return msgspec.structs.replace(block, signature=f"sig_{_mark(body, n)}")
    return block


def _mark(body: bytes, n: int) -> str:
    return blake2b(body, digest_size=12, salt=n.to_bytes(8, "big")).hexdigest()


def _broken(block: Block, raw: str, errors: list[tuple[str, str]]) -> Block:
    if not isinstance(block, ToolCall):
        return block
    arguments, problem = read_arguments(raw)
    if problem:
        errors.append((block.id, problem))
    return msgspec.structs.replace(block, arguments=arguments)

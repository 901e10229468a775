"""The model inside: answers from a script, as strict about requests as a provider, and exact in its bill.

The default of the runtime, of replay and of every test. It refuses what the provider would refuse,
counts with a real tokenizer and keeps a prompt cache in the script's clock.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from hashlib import sha256
from typing import Any

import msgspec

from perdure.contracts import Answer, CallStarted, ModelEvent, Request, TextDelta, ThinkingDelta
from perdure.edges.models.accounting import Accounting
from perdure.edges.models.classify import model_error
from perdure.edges.models.partial import read_arguments
from perdure.edges.models.provider import Decided, Pace, Provider
from perdure.edges.models.reply import ScriptedReply, Source, split
from perdure.edges.models.rules.refusal import Refused
from perdure.edges.models.tokenizer import TOKENIZER
from perdure.errors import ModelError, ModelErrorKind
from perdure.records import Assistant, Block, ModelInfo, Text, Thinking, ToolCall

__all__ = ["Pace", "PromptDigests", "ScriptedModel", "ScriptedReply", "Source"]


MIDWAY: dict[str, tuple[ModelErrorKind, str]] = {
    "cut": ("cut", "the answer broke off: the stream ended before its last event"),
    "overloaded_midway": ("overloaded", "overloaded_error: Overloaded"),
}


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
        embedded: bool = False,
    ) -> None:
        self.info = info
        self.cache_is_here = embedded  # what it has cached ends with this process
        self.requests = self.refused = 0
        self.errors: dict[str, int] = {}
        books = accounting if isinstance(accounting, Accounting) else Accounting() if accounting else None
        self._provider = Provider(info, source, clock, strict=strict, known=known, accounting=books)
        self._clock, self._on_request = clock, on_request

    def warm(self) -> None:
        """Load what the first request would stop the loop for. Blocking."""
        if self._provider.accounting is not None:
            TOKENIZER.load()

    async def stream(self, request: Request) -> AsyncGenerator[ModelEvent]:
        """The events of one answer. Raises `ModelError` for a refusal or a scripted fault."""
        self.requests += 1
        if self._on_request:
            self._on_request(request)
        try:
            decided = await self._ask(request)
            async with aclosing(self._play(decided)) as events:
                async for event in events:
                    yield event
        except ModelError as error:
            self.errors[error.kind] = self.errors.get(error.kind, 0) + 1
            raise

    async def _ask(self, request: Request) -> Decided:
        try:
            body = self._provider.structure(request.body)
            plan = self._provider.plan(body)
        except Refused as refusal:
            self.refused += 1
            raise _error(refusal) from None
        return await self._provider.decide(body, plan, request)

    async def _play(self, decided: Decided) -> AsyncGenerator[ModelEvent]:
        reply = decided.reply
        if reply.fault == "stall":
            await self._clock.wait(self._clock.waiter())  # never set: only a deadline ends it
        failed = self._provider.failure(decided)
        if failed is not None:
            raise _error(failed, reply.retry_after)
        self._provider.begin(decided)
        events = [event for block in decided.blocks for event in deltas(block, reply.chunks)]
        if reply.fault in MIDWAY:
            events = events[: len(events) // 2]
        for n, event in enumerate(events):
            if n and reply.pace:
                await self._clock.sleep(reply.pace)
            yield event
        if reply.fault in MIDWAY:
            raise ModelError(*MIDWAY[reply.fault])
        if reply.fault == "empty" or (not decided.blocks and reply.fault == "none"):
            raise ModelError("empty", "the model returned an empty answer")
        yield self._answer(decided)

    def _answer(self, decided: Decided) -> Answer:
        reply, blocks = decided.reply, decided.blocks
        errors: list[tuple[str, str]] = []
        if reply.fault == "malformed_arguments":
            blocks = tuple(_broken(block, reply.malformed, errors) for block in blocks)
        stop = reply.stop or ("toolUse" if any(isinstance(b, ToolCall) for b in blocks) else "stop")
        refusal = "the model refused to answer (refusal)" if reply.fault == "refusal" else None
        message = Assistant(
            blocks,
            "error" if refusal else stop,
            self.info.provider,
            self.info.api,
            self.info.id,
            decided.usage(self.info) if self._provider.accounting is not None or reply.usage else None,
            refusal,
            self._clock.wall_ms(),
        )
        return Answer(message, tuple(errors))


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


def deltas(block: Block, chunks: int) -> Iterator[ModelEvent]:
    """What a block looks like while it is streamed."""
    if isinstance(block, Text):
        yield from (TextDelta(piece) for piece in split(block.text, chunks))
    elif isinstance(block, Thinking) and not block.redacted:
        yield from (ThinkingDelta(piece) for piece in split(block.thinking, chunks))
    elif isinstance(block, ToolCall):
        yield CallStarted(block.id, block.name)


def _error(refusal: Refused, retry_after: float | None = None) -> ModelError:
    wait = {} if retry_after is None else {"retry-after": f"{retry_after:g}"}
    return model_error(refusal.status, f"{refusal.error_type}: {refusal.message}", wait)


def _broken(block: Block, raw: str, errors: list[tuple[str, str]]) -> Block:
    if not isinstance(block, ToolCall):
        return block
    arguments, problem = read_arguments(raw)
    if problem:
        errors.append((block.id, problem))
    return msgspec.structs.replace(block, arguments=arguments)

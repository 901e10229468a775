"""The provider behind a scripted model: checks a request, counts it, and asks the script for the answer.

Shared by the model inside the process and by the server on the loopback interface, so that both refuse,
count and remember the same.
"""

from __future__ import annotations

from hashlib import blake2b
from inspect import isawaitable
from typing import Any, Protocol

import msgspec

from perdure.contracts import Request
from perdure.edges.models.accounting import Accounting, Plan, written
from perdure.edges.models.issued import Issued
from perdure.edges.models.reply import ScriptedReply, Source
from perdure.edges.models.rules.refusal import Json, Refused, invalid
from perdure.edges.models.strict import family_of
from perdure.records import Block, ModelInfo, Record, Thinking, ToolCall, Usage


class Pace(Protocol):
    """What is used of the kernel's clock: no wait of a scripted model goes past it."""

    def now(self) -> float: ...
    def wall_ms(self) -> int: ...
    async def sleep(self, seconds: float, /) -> None: ...
    def waiter(self) -> Any: ...
    async def wait(self, waiter: Any, /) -> Any: ...


class Decided(Record):
    """An answer before it is told: its blocks have their ids and signatures, its tokens are counted."""

    reply: ScriptedReply
    blocks: tuple[Block, ...]
    plan: Plan
    output: int

    def usage(self, info: ModelInfo) -> Usage:
        """What the script says, else what was counted."""
        return self.reply.usage or self.plan.usage(info, self.output)


class Provider:
    """One scripted provider, of the family that the model's API names. `accounting` None counts nothing
    and knows no window. A body that was checked is in the shape of the Messages API (`Family.read`).

    An answer ends where the window does, with stop "length"; `max_tokens` doesn't cut it, because scripts
    made from recordings were counted by another tokenizer.
    """

    def __init__(
        self,
        info: ModelInfo,
        source: Source,
        clock: Pace,
        *,
        strict: bool = True,
        known: bool = True,
        accounting: Accounting | None = None,
    ) -> None:
        self.info, self.clock, self.accounting = info, clock, accounting
        self.family = family_of(info.api)
        self._source, self._strict, self._known = source, strict, known
        self._issued = Issued()

    def structure(self, raw: bytes, *, counting: bool = False) -> Json:
        """Decode a body and check all but its size. Raises `Refused`."""
        body = decode(raw)
        if self._strict:
            self.family.validate(body, known=self._known, model=self.info, counting=counting)
        read = self.family.read(body)
        if self._strict and self.family.unaltered:
            self._issued.check(read["messages"])
        return read

    def plan(self, body: Json) -> Plan:
        """Count a body. Raises `Refused` over the window."""
        if self.accounting is None:
            return Plan(0)
        plan = self.accounting.plan(body, self.info, self.clock.now())
        self.family.room(plan.tokens, body.get("max_tokens", 0), self.info)
        return plan

    async def decide(self, body: Json, plan: Plan, request: Request) -> Decided:
        """Ask the script; wait until its first token."""
        found = self._source(body, request)
        reply = await found if isawaitable(found) else found
        blocks = tuple(self._named(block, n, request.body) for n, block in enumerate(reply.blocks))
        await self.clock.sleep(reply.latency)
        if self.accounting is None:
            return Decided(reply, blocks, plan, 1)
        output = sum(self.accounting.text(written(block)) for block in blocks)
        room = max(1, self.info.window - plan.tokens)
        if output > room and reply.fault == "none":
            blocks, output = self.accounting.cut(blocks, room), room
            reply = msgspec.structs.replace(reply, stop="length")
        return Decided(reply, blocks, plan, max(1, output))

    def failure(self, decided: Decided) -> Refused | None:
        """The error that a fault sends before the first token, in the provider's wording."""
        return self.family.refusal(decided.reply.fault, decided.plan.tokens, self.info)

    def begin(self, decided: Decided) -> None:
        """The answer begins: the cache is readable, and its thinking can't be changed any more."""
        if self.accounting is not None:
            self.accounting.commit(decided.plan, self.clock.now())
        self._issued.remember(decided.blocks)

    def _named(self, block: Block, n: int, body: bytes) -> Block:
        """A call gets its id, thinking its signature: from the request, so that a replay gives the same."""
        if isinstance(block, ToolCall) and not block.id:
            return msgspec.structs.replace(block, id=self.family.call_id(_mark(body, n)))
        if isinstance(block, Thinking) and not block.signature:
            return msgspec.structs.replace(block, signature=self.family.signature(_mark(body, n), block))
        return block


def decode(body: bytes) -> Json:
    """The body as an object, or `Refused` in the words of a provider's JSON reader."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        invalid(f"The request body is not valid JSON: {error}")
    if not isinstance(value, dict):
        invalid("The request body is not valid JSON: an object is expected")
    return value


def _mark(body: bytes, n: int) -> str:
    return blake2b(body, digest_size=12, salt=n.to_bytes(8, "big")).hexdigest()

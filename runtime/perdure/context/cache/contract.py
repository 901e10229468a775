"""Prompt caching: where the marks stand, what changed since the last call, whether the cache broke.

At most four marks: one on the stable system prompt (it covers the tools before it), up to three on
messages. They move with the conversation and never stand on thinking or on empty text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Literal, Protocol, TypeAlias

import msgspec

from perdure.context.prompt.boundary import tool_names
from perdure.context.text.characters import encodable
from perdure.records import ModelInfo, Record

Retention: TypeAlias = Literal["none", "short", "long"]

LIFE: dict[Retention, float] = {"none": 0.0, "short": 300.0, "long": 3600.0}
"""Seconds that a cached prefix lives after its last use."""

MAX_MARKS = 4
SPACING = 15  # blocks: the provider looks back 20 from a mark, so an older write is always in sight
MAX_STABLE_CACHE_READ_RATIO = 0.95
MIN_CACHE_BREAK_TOKEN_DROP = 1000

READ_PRICE = 0.1
WRITE_PRICE: dict[Retention, float] = {"none": 1.0, "short": 1.25, "long": 2.0}
"""What a cached token costs to read and to write, as a multiple of the price of input."""


# --- marks ----------------------------------------------------------------------------------------


def mark(retention: Retention) -> dict[str, str] | None:
    """The value of `cache_control`; every mark of a request has the same life, so their order is free."""
    if retention == "none":
        return None
    return {"type": "ephemeral", "ttl": "1h"} if retention == "long" else {"type": "ephemeral"}


class Sized(Protocol):
    """A message on the wire, as far as marks care: whose it is and how many blocks it has."""

    @property
    def role(self) -> str: ...
    @property
    def blocks(self) -> int: ...


def marked_messages(messages: Sequence[Sized]) -> tuple[int, ...]:
    """Which wire messages carry a mark, by index, in order.

    The newest (it writes), the one the previous request ended with (it hits, however many blocks one
    step added), and one about `SPACING` blocks before, for when the previous end was changed.
    """
    newest = len(messages) - 1
    if newest < 0:
        return ()
    previous = _before(messages, _before(messages, newest, "assistant"), "user")
    if previous < 0:
        return (newest,)
    earlier, passed = previous, 0
    while earlier > 0 and (passed < SPACING or messages[earlier].role != "user"):
        passed += messages[earlier].blocks
        earlier -= 1
    if messages[earlier].role == "user" and passed >= SPACING:
        return (earlier, previous, newest)
    return (previous, newest)


def _before(messages: Sequence[Sized], at: int, role: str) -> int:
    while at >= 0 and messages[at].role != role:
        at -= 1
    return at


# --- what changed since the last call ---------------------------------------------------------------


class Change(Record):
    """One input of the cache that differs from the call before; `code` as in the reference."""

    code: str
    detail: str


class Snapshot(Record):
    """All inputs of one call that the provider's cache depends on, but the messages."""

    provider: str | None
    model: str | None
    api: str | None = None
    retention: str | None = None
    strategy: str | None = None
    transport: str | None = None
    system_digest: str = ""
    tool_digest: str = ""
    tools: tuple[str, ...] = ()


def snapshot(
    model: ModelInfo,
    system: str,
    tools: Iterable[str],
    *,
    retention: str | None = None,
    strategy: str | None = "boundary-aware",
    transport: str | None = "sse",
) -> Snapshot:
    """The inputs of a call. Tools are compared as a set of names, the system text by its digest."""
    names = tool_names(tools)
    return Snapshot(
        model.provider, model.id, model.api, retention, strategy, transport,
        digest(system), digest(msgspec.json.encode(sorted(names)).decode()), names,
    )  # fmt: skip


def digest(text: str) -> str:
    """SHA-256 of the text, hex."""
    return sha256(encodable(text).encode()).hexdigest()


def differences(before: Snapshot, after: Snapshot) -> tuple[Change, ...]:
    """What differs, in a fixed order: model, retention, transport, strategy, system prompt, tools."""
    found = [_model_change(before, after)]
    for code, a, b in (
        ("cacheRetention", before.retention, after.retention),
        ("transport", before.transport, after.transport),
        ("streamStrategy", before.strategy, after.strategy),
    ):
        if a != b:
            found.append(Change(code, f"{_said(a)} -> {_said(b)}"))
    if before.system_digest != after.system_digest:
        found.append(Change("systemPrompt", "system prompt digest changed"))
    if before.tool_digest != after.tool_digest:
        same = len(before.tools) == len(after.tools)
        counts = f"{len(before.tools)} -> {len(after.tools)} tools"
        found.append(Change("tools", "tool set changed with same count" if same else counts))
    return tuple(change for change in found if change is not None)


def _model_change(before: Snapshot, after: Snapshot) -> Change | None:
    if (before.provider, before.model) != (after.provider, after.model):
        old = f"{_said(before.provider)}/{_said(before.model)}"
        return Change("model", f"{old} -> {_said(after.provider)}/{_said(after.model)}")
    if before.api != after.api:
        return Change("model", f"{_said(before.api)} -> {_said(after.api)}")
    return None


def _said(value: str | None) -> str:
    return "default" if value is None else value


# --- whether it broke -------------------------------------------------------------------------------


class Break(Record):
    """A meaningful drop of what was read from the cache, with what had changed before it."""

    previous: int
    read: int
    changes: tuple[Change, ...] = ()


class Observation(Record):
    """What one session remembers between calls; `read` is what the next one should find in the cache."""

    snapshot: Snapshot | None = None
    read: int | None = None
    pending: tuple[Change, ...] = ()

    def begin(self, now: Snapshot) -> Observation:
        """A call starts. Changes of a call that never completed are not forgotten."""
        if now is self.snapshot:
            return self
        new = differences(self.snapshot, now) if self.snapshot is not None else ()
        codes = {change.code for change in new}
        kept = tuple(change for change in self.pending if change.code not in codes)
        return Observation(now, self.read, kept + new)

    def complete(self, read: int | None, written: int = 0) -> tuple[Observation, Break | None]:
        """A call ended with `read` tokens from the cache (None: unknown); a break if it dropped.

        What the call wrote can be read by the next one, so that counts as well: a first call that only
        wrote is followed by one that reads, or the cache broke.
        """
        if self.snapshot is None:
            return self, None
        if read is None:
            return Observation(self.snapshot, self.read), None
        broke = self.read is not None and is_break(self.read, read)
        found = Break(self.read or 0, read, self.pending) if broke else None
        return Observation(self.snapshot, read + written), found


def is_break(previous: int, read: int) -> bool:
    """The seed's test: below 95 % of the last read, and by 1,000 tokens or more."""
    dropped = previous - read
    return read < previous * MAX_STABLE_CACHE_READ_RATIO and dropped >= MIN_CACHE_BREAK_TOKEN_DROP

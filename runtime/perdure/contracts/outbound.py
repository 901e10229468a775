"""Ways out for answers that no caller awaits."""

from __future__ import annotations

from typing import Literal, Protocol, TypeAlias, runtime_checkable

from perdure.records import Record

Outbound: TypeAlias = Literal["reply", "scheduled", "failed"]


class Delivery(Record):
    """An answer on its way out. `id` is the same for every attempt: a receiver can de-duplicate by it.

    `event`: a `reply` to somebody, a `scheduled` result that only the system asked for, or a turn that
    `failed` (then `error` says why). `at`: wall ms when the answer was written; `attempt` counts from 1.
    """

    id: str
    key: str
    channel: str
    event: Outbound
    text: str
    entry: str
    at: int
    attempt: int = 1
    stop: str = "stop"
    error: str = ""


class Delivered(Record):
    """The receiver has it; `ref` is its own name for it, if it told one."""

    ref: str = ""


@runtime_checkable
class OutboundChannel(Protocol):
    """A way out. Raises `DeliveryFailed`, and nothing else that is not a bug.

    `idempotent`: the receiver does the same `id` once, so an attempt whose end is unknown is repeated.
    """

    @property
    def name(self) -> str: ...
    @property
    def idempotent(self) -> bool: ...
    async def send(self, delivery: Delivery) -> Delivered: ...

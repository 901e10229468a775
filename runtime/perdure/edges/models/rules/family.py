"""What a scripted model must know of an API to be its provider: what it refuses, how, and how it reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from perdure.edges.models.rules.refusal import Json, Refused
from perdure.records import ModelInfo, Record, Thinking


class Validator(Protocol):
    """Raises `Refused` with the provider's status, type and message for the first rule `body` breaks."""

    def __call__(
        self, body: Json, *, known: bool = True, model: ModelInfo | None = None, counting: bool = False
    ) -> None: ...


class Family(Record, gc=True):
    """One API. All functions are pure.

    `validate`: every structural rule. `read`: the body as the Messages API would have it, which is what
    scripts look at, tokens are counted by and caches are keyed by. `room(tokens, wanted, model)`: raises
    `Refused` for a prompt that the window can't hold. `refusal(fault, tokens, model)`: the reply to a
    scripted fault, None where the fault is none that refuses. `error_body`: the JSON of such a reply.
    `call_id(mark)`: an id as the provider gives to calls, from 24 hex digits. `signature(mark, block)`:
    what proves a thinking block. `unaltered`: thinking of the latest answer comes back whole or not at all.
    """

    validate: Validator
    read: Callable[[Json], Json]
    room: Callable[[int, int, ModelInfo], None]
    refusal: Callable[[str, int, ModelInfo], Refused | None]
    error_body: Callable[[Refused], Json]
    call_id: Callable[[str], str]
    signature: Callable[[str, Thinking], str]
    unaltered: bool = False

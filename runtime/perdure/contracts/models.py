"""What a model is asked and what it answers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol, TypeAlias, runtime_checkable

from perdure.records import Assistant, ModelInfo, Record


class Request(Record):
    """One model call, ready for the wire. `body` is the provider's whole JSON body, encoded once."""

    body: bytes
    model: ModelInfo
    tokens: int = 0
    session: str = ""


class TextDelta(Record):
    """More text of the answer."""

    text: str


class ThinkingDelta(Record):
    """More of the model's reasoning."""

    text: str


class CallStarted(Record):
    """The model began to ask for a tool."""

    id: str
    name: str


class Answer(Record):
    """The whole answer, last event of a stream.

    `errors` names calls whose arguments could not be parsed: `(call id, what was wrong)`.
    """

    message: Assistant
    errors: tuple[tuple[str, str], ...] = ()


ModelEvent: TypeAlias = TextDelta | ThinkingDelta | CallStarted | Answer


class Model(Protocol):
    """Streams one answer. Raises `ModelError`, and nothing else that is not a bug."""

    @property
    def info(self) -> ModelInfo: ...
    def stream(self, request: Request) -> AsyncIterator[ModelEvent]: ...


@runtime_checkable
class Lacking(Protocol):
    """A model that can tell, without a call and at once, that none can succeed."""

    def lacks(self) -> str:
        """What is missing (a key, a package) and what to do, in one line; empty: nothing that is known."""
        ...

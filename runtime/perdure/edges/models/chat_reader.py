"""Reads the chunks of a Chat Completions stream into our events, and the whole into one answer.

Compatible servers differ: reasoning comes under one of three names, calls come whole or in pieces,
with or without index and id, usage in the last chunk, in one of its own, or not at all.
"""

from __future__ import annotations

from typing import Any

import msgspec

from perdure.context.safety.reasoning import FIELDS
from perdure.contracts import Answer, CallStarted, ModelEvent, TextDelta, ThinkingDelta
from perdure.edges.models.classify import model_error
from perdure.edges.models.events import Json, text_at
from perdure.edges.models.partial import read_arguments
from perdure.edges.models.usage import usage_of
from perdure.errors import ModelError
from perdure.records import Assistant, Block, ModelInfo, Stop, Text, Thinking, ToolCall

STOPS: dict[str, Stop] = {
    "stop": "stop",
    "eos": "stop",
    "end_turn": "stop",
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "tool_calls": "toolUse",
    "function_call": "toolUse",
    "content_filter": "error",
    "error": "error",
}
FILTERED = "the provider's content filter stopped the answer (content_filter)"
REFUSED = "the model refused to answer (refusal)"


class _Call:
    """A call that is being streamed."""

    def __init__(self, ident: str) -> None:
        self.ident, self.name, self.told = ident, "", False
        self.arguments: list[str] = []


class ChatReader:
    """One answer in the making: `feed` it the chunks in order, then ask for the `answer`."""

    def __init__(self, info: ModelInfo) -> None:
        self._info = info
        self._text: list[str] = []
        self._thought: list[str] = []
        self._field = ""
        self._refusal: list[str] = []
        self._calls: dict[object, _Call] = {}
        self._usage: Any = None
        self._reason: str | None = None

    def feed(self, chunk: Json) -> list[ModelEvent]:
        """What this chunk means for who listens. Raises `ModelError` for a failure inside the stream."""
        if chunk.get("error"):
            raise failure(chunk["error"])
        self._usage = chunk.get("usage") or self._usage
        choices = chunk.get("choices")
        told: list[ModelEvent] = []
        for choice in choices[:1] if isinstance(choices, list) else ():
            self._usage = choice.get("usage") or self._usage
            self._reason = text_at(choice, "finish_reason") or self._reason
            told += self._delta(choice.get("delta") or {})
        return told

    def answer(self, now_ms: int) -> Answer:
        """The whole. Raises `ModelError`: "cut" before a finish reason, "empty" without any content."""
        if self._reason is None:
            raise ModelError("cut", "the answer broke off: the stream ended without a finish reason")
        stop = STOPS.get(self._reason, "stop")
        calls = list(self._calls.values())
        if stop == "stop" and calls:  # some servers say "stop" although a tool is called
            stop = "toolUse"
        if stop == "toolUse" and not calls:
            stop = "stop"
        error = FILTERED if self._reason == "content_filter" else REFUSED if self._refusal else None
        if stop == "error" and error is None:
            raise ModelError("server", "the provider ended the answer with an error")
        errors: list[tuple[str, str]] = []
        blocks = self._blocks(calls, errors)
        if not blocks and stop == "stop" and error is None:
            raise ModelError("empty", "the model returned an empty answer")
        message = Assistant(
            blocks,
            "error" if error else stop,
            self._info.provider,
            self._info.api,
            self._info.id,
            usage_of(self._info, self._usage),
            error,
            now_ms,
        )
        return Answer(message, tuple(errors))

    def _blocks(self, calls: list[_Call], errors: list[tuple[str, str]]) -> tuple[Block, ...]:
        blocks: list[Block] = []
        thought, text = "".join(self._thought), "".join(self._text) + "".join(self._refusal)
        if thought.strip():
            blocks.append(Thinking(thought, self._field))
        if text.strip():
            blocks.append(Text(text))
        for call in calls:
            arguments, problem = read_arguments("".join(call.arguments))
            if problem:
                errors.append((call.ident, problem))
            blocks.append(ToolCall(call.ident, call.name, arguments))
        return tuple(blocks)

    def _delta(self, delta: Json) -> list[ModelEvent]:
        told: list[ModelEvent] = []
        for field in FIELDS:
            thought = text_at(delta, field)
            if thought and self._field in ("", field):
                self._field = field
                self._thought.append(thought)
                told.append(ThinkingDelta(thought))
        for field, into in (("content", self._text), ("refusal", self._refusal)):
            said = text_at(delta, field)
            if said:
                into.append(said)
                told.append(TextDelta(said))
        for piece in delta.get("tool_calls") or ():
            told += self._piece(piece)
        return told

    def _piece(self, piece: Json) -> list[ModelEvent]:
        call = self._call(piece)
        function = piece.get("function") or {}
        call.name += text_at(function, "name")
        call.arguments.append(_arguments(function.get("arguments")))
        if call.told or not call.name:
            return []
        call.told = True
        return [CallStarted(call.ident, call.name)]

    def _call(self, piece: Json) -> _Call:
        """By index; without one, a new id begins a new call and its absence goes on with the last."""
        index, ident = piece.get("index"), text_at(piece, "id")
        key: object = index if isinstance(index, int) else ident or None
        if key is None:
            key = next(reversed(self._calls), 0)
        found = self._calls.get(key)
        if found is not None and ident and found.ident != ident and found.name:
            key, found = (key, ident), self._calls.get((key, ident))  # one index for every call
        if found is None:
            found = self._calls[key] = _Call(ident or f"call_{len(self._calls)}")
        return found


def _arguments(value: Any) -> str:
    """A piece of JSON text; some servers send the object itself."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode() if value else ""


def failure(error: Any) -> ModelError:
    """The typed error of an error object inside a stream."""
    if not isinstance(error, dict):
        return model_error(None, str(error))
    words = [text_at(error, "type"), text_at(error, "code"), text_at(error, "message")]
    code = error.get("code")
    return model_error(code if type(code) is int else None, ": ".join(filter(None, words)))

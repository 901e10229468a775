"""Reads the events of a Messages stream into ours, and the whole into one answer.

Blocks never interleave; unknown events are ignored, unknown blocks kept as they came; usage is
cumulative, so the last number of each kind counts.
"""

from __future__ import annotations

from typing import Any

import msgspec

from perdure.context.cache.contract import READ_PRICE
from perdure.contracts import Answer, CallStarted, ModelEvent, TextDelta, ThinkingDelta
from perdure.edges.models.accounting import WRITE_PRICE
from perdure.edges.models.partial import read_arguments
from perdure.edges.models.usage import tokens_of
from perdure.errors import ModelError
from perdure.records import Assistant, Block, ModelInfo, Opaque, Stop, Text, Thinking, ToolCall, Usage

STOPS: dict[str | None, Stop] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "toolUse",
    "refusal": "error",
}


class _Open:
    """The block that is being streamed."""

    def __init__(self, start: Any) -> None:
        self.start = start
        self.text: list[str] = [getattr(start, "text", None) or getattr(start, "thinking", None) or ""]
        self.signature: str = getattr(start, "signature", None) or ""
        self.json: list[str] = []


class Reader:
    """One answer in the making: `feed` it the SDK's events in order, then ask for the `answer`."""

    def __init__(self, info: ModelInfo) -> None:
        self._info = info
        self._open: _Open | None = None
        self._blocks: list[Block] = []
        self._errors: list[tuple[str, str]] = []
        self._usage: dict[str, int] = {}
        self._hour = 0
        self._reason: str | None = None
        self._model = info.id
        self.ended = False

    def feed(self, event: Any) -> ModelEvent | None:
        """What this event means for who listens, if anything."""
        kind = event.type
        if kind == "content_block_delta":
            return self._delta(event.delta)
        if kind == "content_block_start":
            self._open = _Open(event.content_block)
            if event.content_block.type == "tool_use":
                return CallStarted(event.content_block.id, event.content_block.name)
        elif kind == "content_block_stop":
            self._close()
        elif kind == "message_start":
            self._model = event.message.model or self._model
            self._count(event.message.usage)
        elif kind == "message_delta":
            self._reason = event.delta.stop_reason or self._reason
            self._count(event.usage)
        elif kind == "message_stop":
            self.ended = True
        return None

    def answer(self, now_ms: int) -> Answer:
        """The whole. Raises `ModelError`: "cut" before the last event, "empty" without any content."""
        if not self.ended:
            raise ModelError("cut", "the answer broke off: the stream ended before its last event")
        stop = STOPS.get(self._reason, "stop")
        refusal = "the model refused to answer (refusal)" if self._reason == "refusal" else None
        if not self._blocks and stop == "stop":
            raise ModelError("empty", "the model returned an empty answer")
        message = Assistant(
            tuple(self._blocks),
            stop,
            self._info.provider,
            self._info.api,
            self._model,
            self.usage(),
            refusal,
            now_ms,
        )
        return Answer(message, tuple(self._errors))

    def usage(self) -> Usage:
        """Tokens as reported, priced by the catalogue."""
        read, write = (
            self._usage.get("cache_read_input_tokens", 0),
            self._usage.get("cache_creation_input_tokens", 0),
        )
        plain, out = self._usage.get("input_tokens", 0), self._usage.get("output_tokens", 0)
        hour = min(self._hour, write)
        weighed = plain + READ_PRICE * read + WRITE_PRICE["1h"] * hour + WRITE_PRICE["5m"] * (write - hour)
        cost = (weighed * self._info.price_input + out * self._info.price_output) / 1e6
        return Usage(plain, out, read, write, round(cost, 10))

    def _delta(self, delta: Any) -> ModelEvent | None:
        block = self._open
        if block is None:
            return None
        if delta.type == "text_delta":
            block.text.append(delta.text)
            return TextDelta(delta.text)
        if delta.type == "thinking_delta":
            block.text.append(delta.thinking)
            return ThinkingDelta(delta.thinking)
        if delta.type == "signature_delta":
            block.signature += delta.signature
        elif delta.type == "input_json_delta":
            block.json.append(delta.partial_json)
        return None

    def _close(self) -> None:
        block, self._open = self._open, None
        if block is None:
            return
        kind, text = block.start.type, "".join(block.text)
        if kind == "text":
            if text:
                self._blocks.append(Text(text))
        elif kind == "thinking":
            self._blocks.append(Thinking(text, block.signature or None))
        elif kind == "redacted_thinking":
            self._blocks.append(Thinking("", block.start.data, redacted=True))
        elif kind == "tool_use":
            self._blocks.append(self._call(block))
        else:
            self._blocks.append(Opaque(kind, msgspec.json.encode(block.start.to_dict())))

    def _call(self, block: _Open) -> ToolCall:
        raw = "".join(block.json)
        if not raw and block.start.input:
            raw = msgspec.json.encode(block.start.input).decode()
        arguments, problem = read_arguments(raw)
        if problem:
            self._errors.append((block.start.id, problem))
        return ToolCall(block.start.id, block.start.name, arguments)

    def _count(self, usage: Any) -> None:
        for name in (
            "input_tokens",
            "output_tokens",
            "cache_read_input_tokens",
            "cache_creation_input_tokens",
        ):
            value = getattr(usage, name, None)
            if value is not None:
                self._usage[name] = tokens_of(value)
        split = getattr(usage, "cache_creation", None)
        if split is not None:
            self._hour = tokens_of(getattr(split, "ephemeral_1h_input_tokens", None))

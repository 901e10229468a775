"""Reads the events of a Responses stream into ours, and the whole into one answer.

Items are taken when they are done: text, calls (their id is `call_…|fc_…`), reasoning with its item as
the block's signature, so that it can go back encrypted as it came.
"""

from __future__ import annotations

import msgspec

from perdure.contracts import Answer, CallStarted, ModelEvent, TextDelta, ThinkingDelta
from perdure.edges.models.chat_reader import FILTERED, REFUSED, failure
from perdure.edges.models.events import Json, text_at
from perdure.edges.models.partial import read_arguments
from perdure.edges.models.usage import usage_of
from perdure.errors import ModelError
from perdure.records import Assistant, Block, ModelInfo, Stop, Text, Thinking, ToolCall


class ResponsesReader:
    """One answer in the making: `feed` it the events in order, then ask for the `answer`."""

    def __init__(self, info: ModelInfo) -> None:
        self._info = info
        self._blocks: list[Block] = []
        self._errors: list[tuple[str, str]] = []
        self._refused = False
        self._ended: Json | None = None

    def feed(self, event: Json) -> list[ModelEvent]:
        """What this event means for who listens. Raises `ModelError` for a failure inside the stream."""
        kind, item = text_at(event, "type"), event.get("item") or {}
        if kind in ("response.output_text.delta", "response.refusal.delta"):
            return [TextDelta(text_at(event, "delta"))]
        if kind in ("response.reasoning_summary_text.delta", "response.reasoning_text.delta"):
            return [ThinkingDelta(text_at(event, "delta"))]
        if kind == "response.output_item.added" and item.get("type") == "function_call":
            return [CallStarted(_ident(item), text_at(item, "name"))]
        if kind == "response.output_item.done":
            self._done(item)
        elif kind in ("response.completed", "response.incomplete"):
            self._ended = event.get("response") or {}
        elif kind == "response.failed":
            response = event.get("response") or {}
            raise failure(response.get("error") or "server_error: the provider ended the answer")
        elif kind == "error" or event.get("error"):
            raise failure(event.get("error") or event)
        return []

    def answer(self, now_ms: int) -> Answer:
        """The whole. Raises `ModelError`: "cut" before the last event, "empty" without any content."""
        ended = self._ended
        if ended is None:
            raise ModelError("cut", "the answer broke off: the stream ended before its last event")
        stop, error = self._stop(ended)
        if not any(type(block) is not Thinking for block in self._blocks) and stop == "stop":
            raise ModelError("empty", "the model returned an empty answer")
        message = Assistant(
            tuple(self._blocks),
            stop,
            self._info.provider,
            self._info.api,
            self._info.id,
            usage_of(self._info, ended.get("usage")),
            error,
            now_ms,
        )
        return Answer(message, tuple(self._errors))

    def _stop(self, ended: Json) -> tuple[Stop, str | None]:
        incomplete = text_at(ended, "status") == "incomplete"
        if incomplete and text_at(ended.get("incomplete_details"), "reason") == "content_filter":
            return "error", FILTERED
        if self._refused:
            return "error", REFUSED
        if incomplete:
            return "length", None
        return ("toolUse" if any(type(b) is ToolCall for b in self._blocks) else "stop"), None

    def _done(self, item: Json) -> None:
        kind = item.get("type")
        if kind == "reasoning":
            self._blocks.append(_thinking(item))
        elif kind == "message":
            self._said(item)
        elif kind == "function_call":
            arguments, problem = read_arguments(text_at(item, "arguments"))
            ident = _ident(item)
            if problem:
                self._errors.append((ident, problem))
            self._blocks.append(ToolCall(ident, text_at(item, "name"), arguments))

    def _said(self, item: Json) -> None:
        parts = item.get("content") or ()
        self._refused = self._refused or any(text_at(part, "type") == "refusal" for part in parts)
        text = "".join(text_at(part, "text") or text_at(part, "refusal") for part in parts)
        if text.strip():
            mark = {"v": 1, "id": item.get("id"), "phase": item.get("phase")}
            kept = {key: value for key, value in mark.items() if value}
            self._blocks.append(Text(text, msgspec.json.encode(kept).decode()))


def _ident(item: Json) -> str:
    call, own = text_at(item, "call_id"), text_at(item, "id")
    return f"{call}|{own}" if own.startswith("fc_") else call


def _thinking(item: Json) -> Thinking:
    """The block of a reasoning item; its whole item is what proves it."""
    shown = "\n\n".join(text_at(part, "text") for part in item.get("summary") or ())
    shown = shown or "".join(text_at(part, "text") for part in item.get("content") or ())
    return Thinking(shown, msgspec.json.encode(item).decode())

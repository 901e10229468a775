"""The format's message JSON as typed shapes, and how hostile JSON is brought into them.

Strict decoding is the fast path; `loosen` accepts any JSON whatever and never raises.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec import Raw, Struct

from perdure.edges.session import tolerant

MISSING: Final = Raw()


class WireBlock(Struct, gc=False):
    """One content block, the fields of all kinds together."""

    type: str = ""
    text: str | None = None
    textSignature: str | None = None  # noqa: N815
    thinking: str | None = None
    thinkingSignature: str | None = None  # noqa: N815
    signature: str | None = None
    redacted: bool | None = None
    data: str | None = None
    mimeType: str | None = None  # noqa: N815
    source: Raw = MISSING
    id: str | None = None
    name: str | None = None
    arguments: Raw = MISSING
    input: Raw = MISSING
    thoughtSignature: str | None = None  # noqa: N815


class WireUsage(Struct, gc=False):
    """Token counts; numbers of JavaScript may be floats. Vendors' own names stand where ours don't."""

    input: float | None = None
    output: float | None = None
    cacheRead: float | None = None  # noqa: N815
    cacheWrite: float | None = None  # noqa: N815
    cost: Raw = MISSING
    input_tokens: float | None = None
    inputTokens: float | None = None  # noqa: N815
    prompt_tokens: float | None = None
    promptTokens: float | None = None  # noqa: N815
    output_tokens: float | None = None
    outputTokens: float | None = None  # noqa: N815
    completion_tokens: float | None = None
    completionTokens: float | None = None  # noqa: N815
    cache_read: float | None = None
    cache_read_input_tokens: float | None = None
    cached_tokens: float | None = None
    cache_write: float | None = None
    cache_creation_input_tokens: float | None = None

    def counts(self) -> tuple[float, float, float, float]:
        """Input, output, cache read and cache write; 0 for what is absent or below."""
        return (
            _first(
                self.input, self.input_tokens, self.inputTokens, self.prompt_tokens, self.promptTokens
            ),
            _first(
                self.output, self.output_tokens, self.outputTokens,
                self.completion_tokens, self.completionTokens,
            ),
            _first(self.cacheRead, self.cache_read, self.cache_read_input_tokens, self.cached_tokens),
            _first(self.cacheWrite, self.cache_write, self.cache_creation_input_tokens),
        )  # fmt: skip


def _first(*found: float | None) -> float:
    return max(0, next((each for each in found if each is not None), 0))


class WireProvenance(Struct, gc=False):
    """Where a user message came from."""

    kind: str
    sourceSessionKey: str | None = None  # noqa: N815
    sourceChannel: str | None = None  # noqa: N815
    sourceTool: str | None = None  # noqa: N815


class WireMessage(Struct, gc=False):
    """One message, the fields of all roles together."""

    role: str = ""
    content: list[Raw] | str | None = None
    timestamp: float | str | None = None
    provenance: WireProvenance | None = None
    stopReason: str | None = None  # noqa: N815
    provider: str | None = None
    api: str | None = None
    model: str | None = None
    usage: WireUsage | None = None
    errorMessage: str | None = None  # noqa: N815
    toolCallId: str | None = None  # noqa: N815
    toolUseId: str | None = None  # noqa: N815
    tool_use_id: str | None = None
    tool_call_id: str | None = None
    callId: str | None = None  # noqa: N815
    call_id: str | None = None
    toolName: str | None = None  # noqa: N815
    isError: bool | None = None  # noqa: N815
    details: Raw = MISSING
    summary: str | None = None
    tokensBefore: float | None = None  # noqa: N815
    fromId: str | None = None  # noqa: N815
    command: str | None = None
    output: str | None = None
    exitCode: float | None = None  # noqa: N815
    cancelled: bool | None = None
    truncated: bool | None = None
    fullOutputPath: str | None = None  # noqa: N815
    excludeFromContext: bool | None = None  # noqa: N815
    customType: str | None = None  # noqa: N815
    display: bool | None = None


_RAW: Final = frozenset({"source", "arguments", "input", "details", "cost"})
_BOOL: Final = frozenset({"redacted", "isError", "cancelled", "truncated", "excludeFromContext", "display"})
_NUMBER: Final = frozenset({"tokensBefore", "exitCode", "output", "cacheRead", "cacheWrite"})


def loosen_message(value: Mapping[str, Any]) -> WireMessage:
    """Any JSON object as a message: fields of the wrong type count as absent, text stays text."""
    fields = {name: _field(name, part) for name, part in value.items() if name in _PLAIN_MESSAGE}
    fields["content"] = _content(value.get("content"))
    stamp = value.get("timestamp")
    fields["timestamp"] = stamp if _number(stamp) or isinstance(stamp, str) else None
    if isinstance(usage := value.get("usage"), dict):
        fields["usage"] = WireUsage(
            **{n: _count(n, usage[n]) for n in WireUsage.__struct_fields__ if n in usage}
        )
    origin = value.get("provenance")
    if isinstance(origin, dict) and isinstance(origin.get("kind"), str):
        named = {n: _text(origin[n]) for n in WireProvenance.__struct_fields__ if n in origin}
        fields["provenance"] = WireProvenance(**named)  # type: ignore[arg-type]
    return WireMessage(**fields)


def loosen_block(value: Mapping[str, Any]) -> WireBlock:
    """Any JSON object as a block. A name is text: a number there names no tool."""
    fields = {n: _field(n, value[n]) for n in WireBlock.__struct_fields__ if n in value}
    if not isinstance(value.get("name"), str):
        fields.pop("name", None)
    return WireBlock(**fields)


_PLAIN_MESSAGE: Final = frozenset(WireMessage.__struct_fields__) - {
    "content",
    "timestamp",
    "usage",
    "provenance",
}


def _content(value: Any) -> list[Raw] | str | None:
    if isinstance(value, list):
        return [Raw(tolerant.dumps(part)) for part in value]
    if value is None or isinstance(value, str):
        return value
    return [Raw(tolerant.dumps(value))]


def _field(name: str, value: Any) -> Any:
    if name in _RAW:
        return Raw(tolerant.dumps(value))
    if name in _BOOL:
        return value if isinstance(value, bool) else None
    if name in _NUMBER and name != "output":
        return value if _number(value) else None
    return _text(value)


def _text(value: Any) -> str | None:
    """Text; numbers as ids of a careless writer; anything else counts as absent."""
    if value is None or isinstance(value, str):
        return value
    return str(value) if _number(value) else None


def _count(name: str, value: Any) -> Any:
    if name == "cost":
        return Raw(tolerant.dumps(value))
    return value if _number(value) else None


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)

"""The format's JSON to records: messages and entries. Total: no JSON whatever makes it raise.

Strict first, tolerant second. Synonyms other writers use for the same thing are understood here, so
nothing behind this module knows them.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final, cast, get_args

import msgspec
from msgspec import Raw, Struct

from perdure.edges.session import tolerant
from perdure.edges.session.encode import encode_content as encode_content
from perdure.edges.session.encode import encode_message as encode_message
from perdure.edges.session.wire import WireBlock, WireMessage, WireUsage, loosen_block, loosen_message
from perdure.records import (
    Assistant,
    Bash,
    Block,
    BranchSummary,
    Custom,
    Image,
    Message,
    Opaque,
    Provenance,
    Stop,
    Summary,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
    User,
)

CALLS: Final = frozenset({"toolCall", "toolUse", "functionCall", "tool_use"})
_STOPS: Final[dict[str, Stop]] = {
    **{stop: stop for stop in cast("tuple[Stop, ...]", get_args(Stop))},
    "tool_use": "toolUse",
    "max_tokens": "length",
    "end_turn": "stop",
}
_message: Final = msgspec.json.Decoder(WireMessage).decode
_block: Final = msgspec.json.Decoder(WireBlock).decode
_number: Final = msgspec.json.Decoder(float).decode
_REFUSED: Final = (msgspec.MsgspecError, RecursionError, UnicodeError)


# --- messages -------------------------------------------------------------------------------------


def decode_message(raw: bytes | Raw) -> Message | None:
    """The `message` field of an entry. `None`: not an object, or a role nobody knows (callers report it)."""
    try:
        wire = _message(raw)
        return _record(wire, decode_content(wire.content))
    except _REFUSED:
        pass
    try:
        value = tolerant.loads(bytes(raw))
    except ValueError:
        return None
    if not isinstance(value, dict):
        return None
    wire = loosen_message(value)
    return _record(wire, decode_content(wire.content))


def decode_content(content: list[Raw] | str | None) -> tuple[Block, ...]:
    """A string is one text, null and absent are nothing, everything else goes block by block."""
    if isinstance(content, str):
        return (Text(content),)
    return tuple(block for raw in content or () if (block := decode_block(raw)) is not None)


def decode_block(raw: bytes | Raw) -> Block | None:
    """One content block; of a kind we don't know `Opaque`; `None` for null."""
    try:
        return _block_record(_block(raw), raw)
    except _REFUSED:
        pass
    try:
        value = tolerant.loads(bytes(raw))
    except ValueError:
        return Opaque("", b"null")
    if isinstance(value, str):
        return Text(value)
    if isinstance(value, dict):
        return _block_record(loosen_block(value), tolerant.dumps(value))
    return None if value is None else Opaque("", tolerant.dumps(value))


def _block_record(block: WireBlock, raw: bytes | Raw) -> Block:
    match block.type:
        case "text":
            return Text(block.text or "", block.textSignature)
        case "thinking":
            signature = block.thinkingSignature or block.signature
            return Thinking(block.thinking or "", signature, bool(block.redacted))
        case "redacted_thinking":
            return Thinking("", block.data or block.thinkingSignature or block.signature, True)
        case "image":
            return _image(block, raw)
        case kind if kind in CALLS:
            arguments = block.arguments if bytes(block.arguments) else block.input
            return ToolCall(block.id or "", block.name or "", _as_written(arguments), block.thoughtSignature)
        case kind:
            return Opaque(kind or "", bytes(raw))


def _image(block: WireBlock, raw: bytes | Raw) -> Block:
    if block.data is not None:
        return Image(block.data, block.mimeType or "image/png")
    try:
        source = msgspec.json.decode(block.source, type=_Source) if bytes(block.source) else None
    except _REFUSED:
        source = None
    return Image(source.data, source.media_type) if source is not None else Opaque("image", bytes(raw))


class _Source(Struct, gc=False):
    data: str
    media_type: str = "image/png"


def _as_written(raw: Raw) -> bytes:
    """The JSON text of a call's arguments as it stands; `null` where there are none.

    What is no object is judged where calls are prepared for the wire: stored text isn't changed here.
    """
    return bytes(raw).strip() or b"null"


def _record(wire: WireMessage, content: tuple[Block, ...]) -> Message | None:
    stamp = millis(wire.timestamp)
    match wire.role:
        case "user":
            return User(content, stamp, _provenance(wire))
        case "assistant":
            return _assistant(wire, content, stamp)
        case "toolResult":
            return _result(wire, content, stamp)
        case "custom" | "hookMessage":
            display = True if wire.display is None else wire.display
            return Custom(wire.customType or "", content, display, stamp)
        case "compactionSummary":
            return Summary(wire.summary or "", whole_number(wire.tokensBefore), stamp)
        case "branchSummary":
            return BranchSummary(wire.summary or "", wire.fromId or "", stamp)
        case "bashExecution":
            return _bash(wire, stamp)
        case _:
            return None


def _provenance(wire: WireMessage) -> Provenance | None:
    if (origin := wire.provenance) is None:
        return None
    return Provenance(origin.kind, origin.sourceSessionKey, origin.sourceChannel, origin.sourceTool)


def _assistant(wire: WireMessage, content: tuple[Block, ...], stamp: int) -> Assistant:
    return Assistant(
        content,
        _STOPS.get(wire.stopReason or "", "error" if wire.errorMessage else "stop"),
        wire.provider or "",
        wire.api or "",
        wire.model or "",
        None if wire.usage is None else _usage(wire.usage),
        wire.errorMessage,
        stamp,
    )


def _result(wire: WireMessage, content: tuple[Block, ...], stamp: int) -> ToolResult:
    names = (wire.toolCallId, wire.toolUseId, wire.tool_use_id, wire.tool_call_id, wire.callId, wire.call_id)
    details = bytes(wire.details)
    return ToolResult(
        next((name for name in names if name), ""),
        wire.toolName or "",
        content,
        bool(wire.isError),
        details if details not in {b"", b"null"} else None,
        stamp,
    )


def _bash(wire: WireMessage, stamp: int) -> Bash:
    return Bash(
        wire.command or "",
        wire.output or "",
        None if wire.exitCode is None else int(wire.exitCode),
        bool(wire.cancelled),
        bool(wire.truncated),
        wire.fullOutputPath,
        bool(wire.excludeFromContext),
        stamp,
    )


def _usage(wire: WireUsage) -> Usage:
    sent, made, cached, written = map(whole_number, wire.counts())
    return Usage(sent, made, cached, written, _cost(wire.cost))


class _Cost(Struct, gc=False):
    total: float | None = None


def _cost(raw: Raw) -> float:
    data = bytes(raw)
    if not data:
        return 0.0
    try:
        if data.startswith(b"{"):
            return msgspec.json.decode(data, type=_Cost).total or 0.0
        return _number(data)
    except _REFUSED:
        return 0.0


# --- entries --------------------------------------------------------------------------------------


class WireEntry(Struct, gc=False):
    """The fields of all entry types that matter to a view or a listing."""

    type: str = ""
    timestamp: float | str | None = None
    message: Raw = Raw()
    summary: str | None = None
    tokensBefore: float | None = None  # noqa: N815
    firstKeptEntryIndex: float | None = None  # noqa: N815
    fromId: str | None = None  # noqa: N815
    customType: str | None = None  # noqa: N815
    content: list[Raw] | str | None = None
    display: bool | None = None
    provider: str | None = None
    modelId: str | None = None  # noqa: N815
    thinkingLevel: str | None = None  # noqa: N815
    name: str | None = None
    targetId: str | None = None  # noqa: N815
    label: str | None = None
    details: Raw = Raw()
    data: Raw = Raw()
    perdure: Raw = Raw()


_entry: Final = msgspec.json.Decoder(WireEntry).decode
_RAW: Final = frozenset({"message", "details", "data", "perdure"})
_NUMBER: Final = frozenset({"tokensBefore", "firstKeptEntryIndex"})


def decode_entry(raw: bytes) -> WireEntry:
    """The fields of one whole record, by either decoder; what has the wrong type counts as absent."""
    try:
        return _entry(raw)
    except _REFUSED:
        pass
    try:
        value = tolerant.loads(raw)
    except ValueError:
        return WireEntry()
    if not isinstance(value, dict):
        return WireEntry()
    return WireEntry(**{n: _field(n, value[n]) for n in WireEntry.__struct_fields__ if n in value})


def _field(name: str, value: Any) -> Any:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if name in _RAW:
        return Raw(tolerant.dumps(value))
    if name == "content":
        return [Raw(tolerant.dumps(p)) for p in value] if isinstance(value, list) else _text(value)
    if name in _NUMBER:
        return value if number else None
    if name == "timestamp":
        return value if number else _text(value)
    if name == "display":
        return value if isinstance(value, bool) else None
    return _text(value)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


class _QuickMessage(WireMessage, gc=False):
    content: list[WireBlock] | str | None = None  # type: ignore[assignment]


class _QuickEntry(Struct, gc=False):
    message: _QuickMessage


_quick: Final = msgspec.json.Decoder(_QuickEntry).decode
_SIMPLE: Final = frozenset({"text", "thinking", "redacted_thinking"}) | CALLS


def line_message(raw: bytes, kind: str) -> Message | None:
    """What the record of an entry of type `kind` puts into a view: in one pass where it is well-formed."""
    if kind == "message":
        try:
            wire = _quick(raw).message
            blocks = wire.content
            if not isinstance(blocks, list):
                return _record(wire, decode_content(blocks))
            if all(block.type in _SIMPLE or (block.type == "image" and block.data) for block in blocks):
                return _record(wire, tuple([_block_record(block, b"") for block in blocks]))
        except _REFUSED:
            pass
    return entry_message(decode_entry(raw))


def entry_message(entry: WireEntry) -> Message | None:
    """What an entry puts into a view, `None` if nothing (the format's rules)."""
    match entry.type:
        case "message":
            return decode_message(entry.message) if bytes(entry.message) else None
        case "custom_message":
            display = True if entry.display is None else entry.display
            content = decode_content(entry.content)
            return Custom(entry.customType or "", content, display, millis(entry.timestamp))
        case "branch_summary" if entry.summary:
            return BranchSummary(entry.summary, entry.fromId or "", millis(entry.timestamp))
        case _:
            return None


def entry_summary(entry: WireEntry) -> Summary:
    """A compaction as the message that leads its view."""
    return Summary(entry.summary or "", whole_number(entry.tokensBefore), millis(entry.timestamp))


# --- numbers and times ----------------------------------------------------------------------------


def whole_number(value: float | None) -> int:
    """An integer, 0 for what is absent."""
    return 0 if value is None else int(value)


def millis(stamp: float | str | None) -> int:
    """Milliseconds since 1970 of a number or an ISO text; 0 where it says nothing."""
    if isinstance(stamp, str):
        try:
            moment = datetime.fromisoformat(stamp)
            return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
        except (ValueError, OverflowError):
            return 0
    return whole_number(stamp)

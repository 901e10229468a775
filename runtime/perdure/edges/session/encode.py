"""Records to the format's JSON: camelCase, compact, non-ASCII kept, lone surrogates as escapes."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import Raw

from perdure.context.pictures import images
from perdure.edges.session import tolerant
from perdure.records import (
    Assistant,
    Bash,
    Block,
    BranchSummary,
    Custom,
    Image,
    Kept,
    Message,
    Opaque,
    Provenance,
    Summary,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
    User,
)

_NO_USAGE: Final = Usage()

_encode: Final = msgspec.json.Encoder().encode


def encode_message(message: Message) -> bytes:
    """One message, in one line. `decode_message` gives the same record back.

    (Two halves of a surrogate pair that stand side by side come back as the one character they are; an
    answer of which no usage is known comes back with one of zero.)
    """
    return _dump(_message(message))


def encode_content(blocks: tuple[Block, ...]) -> bytes:
    """Content blocks as a JSON list, in one line."""
    return _dump([_block(block) for block in blocks])


def _dump(value: Any) -> bytes:
    try:
        return _encode(value)
    except UnicodeEncodeError:  # a lone surrogate: JavaScript writes it as an escape, and so do we
        return tolerant.dumps(_plain(value))


def _plain(value: Any) -> Any:
    if isinstance(value, Raw):
        return tolerant.loads(bytes(value))
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    return [_plain(part) for part in value] if isinstance(value, list) else value


def _message(message: Message) -> dict[str, Any]:
    match message:
        case User():
            return _user(message)
        case Assistant():
            return _assistant(message)
        case ToolResult():
            return _result(message)
        case Summary():
            fields: dict[str, Any] = {"role": "compactionSummary", "summary": message.summary}
            return fields | {"tokensBefore": message.tokens_before, "timestamp": message.timestamp}
        case BranchSummary():
            fields = {"role": "branchSummary", "summary": message.summary, "fromId": message.from_id}
            return fields | {"timestamp": message.timestamp}
        case Custom():
            fields = {"role": "custom", "customType": message.kind, "content": _blocks(message.content)}
            return fields | {"display": message.display, "timestamp": message.timestamp}
        case Bash():
            return _bash(message)


def _blocks(content: tuple[Block, ...]) -> list[dict[str, Any] | Raw]:
    return [_block(block) for block in content]


def _user(message: User) -> dict[str, Any]:
    fields = {"role": "user", "content": _blocks(message.content), "timestamp": message.timestamp}
    if message.provenance is not None:
        fields["provenance"] = _provenance(message.provenance)
    return fields


def _provenance(origin: Provenance) -> dict[str, str]:
    names = {
        "kind": origin.kind,
        "sourceSessionKey": origin.source_session,
        "sourceChannel": origin.source_channel,
        "sourceTool": origin.source_tool,
    }
    return {name: value for name, value in names.items() if value is not None}


def _assistant(message: Assistant) -> dict[str, Any]:
    fields: dict[str, Any] = {"role": "assistant", "content": _blocks(message.content)}
    fields |= {"api": message.api, "provider": message.provider, "model": message.model}
    # Never without: readers of the format add usage up without looking whether it is there.
    fields["usage"] = _usage(message.usage or _NO_USAGE)
    fields["stopReason"] = message.stop
    if message.error is not None:
        fields["errorMessage"] = message.error
    return fields | {"timestamp": message.timestamp}


def _usage(usage: Usage) -> dict[str, Any]:
    total = usage.input + usage.output + usage.cache_read + usage.cache_write
    counts: dict[str, Any] = {"input": usage.input, "output": usage.output}
    counts |= {"cacheRead": usage.cache_read, "cacheWrite": usage.cache_write, "totalTokens": total}
    # The format splits the price by kind; we know the sum. Readers of the format add up `total` only.
    parts = dict.fromkeys(("input", "output", "cacheRead", "cacheWrite"), 0)
    return counts | {"cost": parts | {"total": usage.cost_usd}}


def _result(message: ToolResult) -> dict[str, Any]:
    fields: dict[str, Any] = {"role": "toolResult", "toolCallId": message.call_id, "toolName": message.tool}
    fields["content"] = _blocks(message.content)
    if message.details is not None:
        fields["details"] = _one_line(message.details)
    return fields | {"isError": message.is_error, "timestamp": message.timestamp}


def _bash(message: Bash) -> dict[str, Any]:
    fields: dict[str, Any] = {"role": "bashExecution", "command": message.command, "output": message.output}
    if message.exit_code is not None:
        fields["exitCode"] = message.exit_code
    fields |= {"cancelled": message.cancelled, "truncated": message.truncated}
    if message.full_output_path is not None:
        fields["fullOutputPath"] = message.full_output_path
    fields["timestamp"] = message.timestamp
    return fields | ({"excludeFromContext": True} if message.excluded else {})


def _block(block: Block) -> dict[str, Any] | Raw:
    match block:
        case Text():
            return _signed({"type": "text", "text": block.text}, "textSignature", block.signature)
        case Thinking():
            fields: dict[str, Any] = {"type": "thinking", "thinking": block.thinking}
            _signed(fields, "thinkingSignature", block.signature)
            return fields | ({"redacted": True} if block.redacted else {})
        case Image(kept=Kept() as kept):
            ours = {"image": kept, "mime": block.mime}
            return {"type": "text", "text": images.described(block), "perdure": ours}
        case Image():
            return {"type": "image", "data": block.data, "mimeType": block.mime}
        case ToolCall():
            call = {"type": "toolCall", "id": block.id, "name": block.name}
            call["arguments"] = _one_line(block.arguments)  # type: ignore[assignment]
            return _signed(call, "thoughtSignature", block.signature)
        case Opaque():
            return _one_line(block.raw)


def _signed(fields: dict[str, Any], name: str, signature: str | None) -> dict[str, Any]:
    if signature is not None:
        fields[name] = signature
    return fields


def _one_line(raw: bytes) -> Raw:
    """JSON of others, byte for byte, unless it would break the line or is no JSON."""
    try:
        return Raw(raw) if b"\n" not in raw else Raw(tolerant.dumps(tolerant.loads(raw)))
    except ValueError:
        return Raw(tolerant.dumps({"raw": tolerant.text(raw)}))

"""How an engine in another process is spoken to: one JSON object a line, over the child's stdin and stdout.

Host to child                                       Child to host
    {"hello": {"protocol": 1, "store", "settings"}}     {"hello": {"protocol": 1, "methods": [NAME, …]}}
    {"call": N, "method", "context", "arguments"}       {"call": N, "answer": VALUE}
    {"cancel": N}                                       {"call": N, "error": {"kind", "text"}}
    {"ask": M, "answer": VALUE}                         {"ask": M, "of": N, "what", "arguments"}
    {"ask": M, "error": {"kind", "text"}}               {"log": EVENT, "fields": {…}}

- The hellos come first, the host's before any call. `methods`: those of the contract that the child has.
- Calls may overlap; answers come in any order, each once. A cancelled call is answered, too: with the error
  of kind "cancelled". One that isn't, a second after it was cancelled, costs the child its life.
- `ask`: what the call N needs of its host: `history` (after, limit), `complete` (prompt, system, max_tokens),
  `rewrite_transcript_entries` (replacements), `delegate` (of `compact` alone).
- VALUE: null, booleans, numbers, strings, lists; a record of `perdure.records` or `perdure.contracts` is an
  object with "is", its class, and the fields that are no default; JSON inside of records is a string.
- A rollback is a number; the host gives it back as the only argument of the method `rollback`.
- stdout belongs to the protocol, stderr to the log. End of stdin: the host is gone, and so must the child be.
"""

from __future__ import annotations

import json
from typing import Any

from msgspec.structs import fields

from perdure.contracts import (
    Assembled,
    Bootstrapped,
    EngineCompaction,
    EngineContext,
    Maintained,
    Replacement,
    Rewritten,
    Spawn,
    TurnReport,
)
from perdure.errors import PerdureError
from perdure.records import (
    Assistant,
    Bash,
    BranchSummary,
    Custom,
    Image,
    Item,
    Kept,
    ModelInfo,
    Opaque,
    Provenance,
    Record,
    Summary,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
    User,
)

PROTOCOL = 1
LONGEST = 256 << 20  # bytes of a line; a child that sends a longer one is ended
KINDS: dict[str, type[Record]] = {
    kind.__name__: kind
    for kind in (
        Assembled, Assistant, Bash, Bootstrapped, BranchSummary, Custom, EngineCompaction, Image, Item, Kept,
        Maintained, ModelInfo, Opaque, Provenance, Replacement, Rewritten, Spawn, Summary, Text, Thinking,
        ToolCall, ToolResult, TurnReport, Usage, User,
    )
}  # fmt: skip
BYTES = {"arguments", "details", "raw"}  # fields that hold JSON as bytes
CONTEXT = (
    "session_id",
    "session_key",
    "session_file",
    "token_budget",
    "model",
    "prompt",
    "tools",
    "heartbeat",
)


class WireError(PerdureError):
    """The other side said what the protocol doesn't know: one of the two is broken, or of another version."""


def line(message: dict[str, Any]) -> bytes:
    """A message as it goes over the pipe. Lone surrogates survive: they are escaped."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def parsed(data: bytes) -> dict[str, Any]:
    """Raises `WireError` for what is no JSON object."""
    try:
        found = json.loads(data)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise WireError(f"not a message: {data[:80]!r}")
    return found


def pack(value: Any) -> Any:
    """A value as JSON can hold it. Raises `WireError` for one that it can't."""
    if isinstance(value, Record):
        return {"is": type(value).__name__} | {
            field.name: pack(given)
            for field in fields(value)
            if (given := getattr(value, field.name)) != field.default
        }
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    if isinstance(value, tuple | list):
        return [pack(each) for each in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise WireError(f"a {type(value).__name__} can't be sent to another process")


def unpack(value: Any) -> Any:
    """What `pack` made. Raises `WireError`."""
    if isinstance(value, list):
        return tuple(unpack(each) for each in value)
    if not isinstance(value, dict):
        return value
    kind = KINDS.get(value.get("is", ""))
    if kind is None:
        raise WireError(f"a record of an unknown kind: {str(value.get('is'))[:80]!r}")
    try:
        return kind(**{name: _field(name, given) for name, given in value.items() if name != "is"})
    except (TypeError, UnicodeError) as error:
        raise WireError(f"not a {kind.__name__}: {error}") from None


def _field(name: str, given: Any) -> Any:
    if name in BYTES and isinstance(given, str):
        return given.encode("utf-8", "surrogateescape")
    return unpack(given)


def pack_context(context: EngineContext) -> dict[str, Any]:
    """What a child is told of a call; `now`: the host's time when it began."""
    return {name: pack(getattr(context, name)) for name in CONTEXT} | {"now": context.runtime.wall_ms()}

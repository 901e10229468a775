"""The shapes of tool results: short text for the model, JSON details for programs, evidence when long."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from perdure.context.numbers import EVIDENCE_CHARS, HEAD_SHARE
from perdure.context.text.characters import clean
from perdure.context.text.secrets import redact
from perdure.contracts import ToolOutput
from perdure.records import Text

EXCERPT_CHARS = 32 * 1024
"""What stays in the context of an output that became evidence: enough to act on, small in any window."""

_SURROGATE = re.compile(r"[\ud800-\udfff]")


def details(**fields: Any) -> bytes:
    """JSON details, encoded once; lone surrogates (from undecodable file names) become U+FFFD."""
    return msgspec.json.encode(_encodable(fields))


def result(text: str, **fields: Any) -> ToolOutput:
    """A result; over 256 KiB of text it becomes evidence and the model sees head and tail."""
    text = clean(text)
    if len(text) <= EVIDENCE_CHARS:
        return ToolOutput((Text(text),), details=details(**fields))
    return ToolOutput(
        (Text(excerpt(text)),), details=details(**fields, chars=len(text)), full=text.encode("utf-8")
    )


def failure(text: str, **fields: Any) -> ToolOutput:
    """An error that the model should read and act on."""
    return ToolOutput((Text(clean(text)),), is_error=True, details=details(**fields) if fields else None)


def unknown_tool(name: str, known: Iterable[str]) -> ToolOutput:
    """The result for a call of a tool that doesn't exist."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1)
    hint = f" Did you mean {close[0]}?" if close else ""
    return failure(f"Unknown tool {brief(name)}.{hint} Available tools: {', '.join(names) or 'none'}.")


def bad_arguments(name: str, problems: str | Iterable[str]) -> ToolOutput:
    """The result for arguments that don't parse or don't fit; the call was not run."""
    lines = [problems] if isinstance(problems, str) else list(problems)
    listed = "\n".join(f"- {line}" for line in lines)
    return failure(f"Invalid arguments for {brief(name)}; the tool was not run:\n{listed}")


def failed(name: str, cause: object) -> ToolOutput:
    """The result for a tool that broke: an exception, or whatever else says how it ended."""
    kind = type(cause).__name__ if isinstance(cause, BaseException) else ""
    text = ": ".join(part for part in (kind, str(cause)) if part)
    return failure(
        f"The tool {brief(name)} failed ({redact(text[:2_000])}). It may have done part of its work."
    )


def timed_out(name: str, seconds: float) -> ToolOutput:
    """The result for a tool that was stopped at its deadline."""
    return failure(
        f"The tool {brief(name)} did not finish within {seconds:g} seconds and was stopped. It may have done "
        "part of its work."
    )


def brief(text: str) -> str:
    """A name or value as an error quotes it."""
    return repr(text if len(text) <= 200 else text[:199] + "…")


def excerpt(text: str, limit: int = EXCERPT_CHARS) -> str:
    """Head 70 / tail 30 of a text over `limit` characters, with what is missing said between them."""
    if len(text) <= limit:
        return text
    head = int(limit * HEAD_SHARE)
    tail = limit - head
    return f"{text[:head]}{gap(len(text) - limit, len(text))}{text[-tail:]}"


def gap(left_out: int, total: int) -> str:
    """The line between head and tail of an output that is kept whole elsewhere."""
    return (
        f"\n\n⚠️ [... {left_out:,} of {total:,} characters left out here — showing head and tail; "
        "the whole output is kept and can be read with recall ...]\n\n"
    )


def decoded(data: bytes) -> str:
    """Bytes of unknown origin as text: UTF-8 where it is, U+FFFD where it isn't."""
    return data.decode("utf-8", "replace")


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", value)
    if isinstance(value, Mapping):
        return {_encodable(k): _encodable(v) for k, v in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return [_encodable(v) for v in value]
    return value

"""Large texts are kept apart, by their hash; a note tells what they are: head, tail, structure."""

from __future__ import annotations

import re
from hashlib import sha256

import msgspec

from perdure.context.text.graphemes import cut_after, cut_before
from perdure.records import Record

HEAD_CHARS, TAIL_CHARS = 1_200, 600
_KEYS, _NAMES = 24, 16
_DECLARED = re.compile(r"^[ \t]*(?:async )?(?:def|class|function|fn|func|interface|struct|type) +(\w+)", re.M)
_HEADED = re.compile(r"^#{1,4} +(.{1,80})$", re.M)
_SCANNED = 400_000  # characters looked at for structure
_PARSED = 4_000_000  # longer JSON is told by its head


class Payload(Record):
    """A text that is kept apart. `digest`: SHA-256 of its UTF-8, hex."""

    digest: str
    text: str
    note: str


def payload(text: str) -> Payload:
    """The text with its hash and note. The same text gives the same note."""
    digest = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return Payload(digest, text, note(text, digest))


def note(text: str, digest: str) -> str:
    """What stands for the text: how to read it, its structure, its head and tail."""
    head = text[: cut_before(text, HEAD_CHARS)]
    tail = text[cut_after(text, len(text) - TAIL_CHARS) :]
    lines = text.count("\n") + 1
    return (
        f"[large payload sha256:{digest}, {len(text):,} characters, {lines:,} lines; `history_describe` with "
        f'id "{digest[:16]}" reads it]\n{structure(text)}\n--- head ---\n{head}\n--- tail ---\n{tail}'
    )


def structure(text: str) -> str:
    """One line: JSON by its keys, a table by its columns, code and prose by what they name."""
    start = text.lstrip()[:1]
    if start in "{[" and start and len(text) <= _PARSED and (told := _json(text)):
        return told
    part = text[:_SCANNED]
    if names := list(dict.fromkeys(_DECLARED.findall(part)))[:_NAMES]:
        return f"code; declares {', '.join(names)}"
    if names := list(dict.fromkeys(_HEADED.findall(part)))[:_NAMES]:
        return f"document; headings: {' | '.join(names)}"
    return _table(part) or "plain text"


def _json(text: str) -> str:
    try:
        value = msgspec.json.decode(text.encode("utf-8", "surrogatepass"))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""
    if isinstance(value, dict):
        return f"JSON object of {len(value):,} keys: {_named(value)}"
    if isinstance(value, list):
        first = value[0] if value else None
        of = f", each with {_named(first)}" if isinstance(first, dict) else ""
        return f"JSON array of {len(value):,} elements{of}"
    return ""


def _named(value: dict[str, object]) -> str:
    return ", ".join(str(key)[:60] for key in list(value)[:_KEYS])


def _table(text: str) -> str:
    rows = text[:20_000].splitlines()[:6]
    for mark, name in (("\t", "tab-separated"), (",", "comma-separated"), ("|", "bar-separated")):
        counts = [row.count(mark) for row in rows[:5]]
        if len(counts) >= 3 and counts[0] >= 2 and len(set(counts)) == 1:
            return f"{name} table; columns: {rows[0][:300]}"
    return ""

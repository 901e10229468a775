"""One line to the heads of its records: strict first, then tolerant, then what can be recovered.

A damaged line costs the damaged record only: whole records glued to it are found with their positions.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from perdure.context.truncation.dag import OWN, Node
from perdure.edges.session import tolerant
from perdure.edges.session.ids import Epoch
from perdure.edges.session.problems import Problem, problem
from perdure.edges.session.scan import BOM, Line

TYPES: Final = frozenset(
    {
        *("session", "message", "compaction", "branch_summary", "custom_message", "custom", "label"),
        *("model_change", "thinking_level_change", "session_info"),
    }
)
TYPE: Final = b'"type"'  # what every record holds
_ABSENT: Final = Raw()
_WITHOUT_ID: Final = frozenset(
    {"message", "compaction", "model_change", "thinking_level_change"}
)  # version 1
_START: Final = re.compile(rb'\{\s*"(?:type|id|parentId|timestamp)"\s*:')
_PADDING: Final = re.compile(rb"[\x00\s]+")
_TRIES = 64  # whole records looked for on one damaged line; more is noise, and each try reads the rest of it

Found: TypeAlias = tuple[list[Node], list[Problem]]


class Head(Struct, gc=False):
    """The few fields that link an entry, and where facts of ours may stand."""

    type: str
    id: str = ""
    parentId: str | UnsetType | None = UNSET  # noqa: N815
    customType: str | None = None  # noqa: N815
    firstKeptEntryId: str | None = None  # noqa: N815
    perdure: Raw = _ABSENT
    data: Raw = _ABSENT
    details: Raw = _ABSENT


class _Epoch(Struct, gc=False):
    e: Epoch = 0


class _Details(Struct, gc=False):
    perdure: _Epoch | None = None


_head: Final = msgspec.json.Decoder(Head).decode
_epoch: Final = msgspec.json.Decoder(_Epoch).decode
_details: Final = msgspec.json.Decoder(_Details).decode


def heads(line: Line) -> Found:
    """All records of one line in order, and what is wrong with it. Never raises on content."""
    data = line.data
    if (head := _strict(data)) is not None and (head.type in TYPES or is_entry(head)):
        return [_node(head, line.start, line.start + len(data), line.number)], []
    if line.lost:
        return [], [_passed_over(line)]
    if not line.data.strip():
        return [], []
    return _second_look(line)


def is_entry(head: Head) -> bool:
    """Whether a JSON object is an entry of the format: a known type, or any type with an id."""
    return head.type in TYPES or (head.type != "" and head.id != "")


def _strict(data: bytes) -> Head | None:
    try:
        return _head(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return None


def whole(data: bytes) -> Head | None:
    """The head of bytes that are exactly one JSON object, by either decoder."""
    if (head := _strict(data)) is not None:
        return head
    if not data.lstrip().startswith(b"{"):
        return None
    try:
        value = tolerant.loads(data)
    except ValueError:
        return None
    return _loose(value) if isinstance(value, dict) else None


def _loose(value: Mapping[str, Any]) -> Head:
    parent = value.get("parentId", UNSET)
    return Head(
        type=value["type"] if isinstance(value.get("type"), str) else "",
        id=_name(value.get("id")) or "",
        parentId=UNSET if parent is UNSET else _name(parent),
        customType=_name(value.get("customType")),
        firstKeptEntryId=_name(value.get("firstKeptEntryId")),
        **{
            name: Raw(tolerant.dumps(value[name])) for name in ("perdure", "data", "details") if name in value
        },
    )


def _name(value: Any) -> str | None:
    """An id as text: numbers link entries in JavaScript as well as strings do."""
    if value is None or isinstance(value, str):
        return value
    return tolerant.dumps(value).decode()


def _node(head: Head, start: int, end: int, number: int) -> Node:
    return Node(
        head.id or f"{start:016x}",  # derived from the position, as for version 1
        head.type,
        head.parentId or None,
        head.customType or "",
        head.firstKeptEntryId or "",
        start,
        end,
        number,
        _epoch_of(head),
    )


def _epoch_of(head: Head) -> int:
    """The epoch a line of ours was written under, -1 for a line without facts of ours."""
    try:
        if head.perdure is not _ABSENT:
            return max(0, _epoch(head.perdure).e)
        if head.type == "custom" and (head.customType or "").startswith(OWN):
            return max(0, _epoch(head.data).e)
        if head.type == "compaction" and b"perdure" in bytes(head.details):
            ours = _details(head.details).perdure
            return -1 if ours is None else max(0, ours.e)
    except (msgspec.MsgspecError, RecursionError):
        return -1
    return -1


# --- damaged lines --------------------------------------------------------------------------------


def _second_look(line: Line) -> Found:
    data, start = line.data, line.start
    if data.startswith(BOM):
        data, start = data[len(BOM) :], start + len(BOM)
    head = whole(data)
    if head is not None and is_entry(head):
        return [_node(head, start, line.end, line.number)], []
    if head is not None:
        return [], [problem("undecodable", line.number, start, "a JSON object, but no entry of the format")]
    nodes: list[Node] = []
    problems: list[Problem] = []
    for kind, begin, end, found in _pieces(data):
        at = start + begin
        if found is not None:
            if nodes and not any(p.byte < at and p.byte > nodes[-1].start for p in problems):
                problems.append(problem("glued", line.number, at, "a newline is missing before this record"))
            nodes.append(_node(found, at, start + end, line.number))
        elif kind == "nul":
            problems.append(problem("nul", line.number, at, f"{end - begin} NUL bytes"))
        else:
            problems.append(_damaged(data[begin:end], line.number, at, end < len(data)))
    return nodes, problems


def _passed_over(line: Line) -> Problem:
    if line.nul:
        return problem("nul", line.number, line.start, f"{line.lost} NUL bytes")
    detail = f"a line of {line.lost} bytes, longer than any program of the format can read"
    return problem("undecodable", line.number, line.start, detail)


def _damaged(stub: bytes, number: int, at: int, followed: bool) -> Problem:
    beside = f"; a whole record follows at byte {at + len(stub)}" if followed else ""
    if whole(stub) is None and stub.lstrip().startswith(b"{"):
        return problem("torn", number, at, f"a record was cut off after {len(stub)} bytes{beside}")
    return problem("undecodable", number, at, f"{len(stub)} bytes are not an entry{beside}")


def _pieces(data: bytes) -> list[tuple[str, int, int, Head | None]]:
    """A damaged line as (kind, begin, end, head): whole records, NUL runs, and what is left between."""
    pieces: list[tuple[str, int, int, Head | None]] = []
    tries, at = _TRIES if TYPE in data else 0, 0  # without a type nothing here is a record
    latin = data.decode("latin-1") if tries else ""  # a character a byte: positions are byte positions
    while at < len(data):
        if padding := _PADDING.match(data, at):
            nul = data.find(b"\0", at, padding.end())
            if nul >= 0:
                pieces.append(("nul", nul, data.rindex(b"\0", nul, padding.end()) + 1, None))
            at = padding.end()
            continue
        begin, end, head, tries = _next_record(data, latin, at, tries)
        if begin > at:
            pieces += _garbage(data, at, begin)
        if head is not None:
            pieces.append(("record", begin, end, head))
        at = end
    return pieces


def _garbage(data: bytes, begin: int, end: int) -> list[tuple[str, int, int, Head | None]]:
    """A stub, and the NUL run it may end in (a block that never reached the disk)."""
    body = len(data[begin:end].rstrip(b"\0 \t\r"))
    pieces: list[tuple[str, int, int, Head | None]] = [("stub", begin, begin + body, None)]
    nul = data.find(b"\0", begin + body, end)
    if nul >= 0:
        pieces.append(("nul", nul, data.rindex(b"\0", nul, end) + 1, None))
    return pieces


def _next_record(data: bytes, latin: str, at: int, tries: int) -> tuple[int, int, Head | None, int]:
    """The next whole record at `at` or later: (begin, end, head, tries left); else the end of the line."""
    place = at
    while tries > 0 and (match := _START.search(data, place)) is not None:
        tries -= 1
        begin = match.start()
        try:
            _, end = _PLAIN.raw_decode(latin, begin)
        except (ValueError, RecursionError):
            place = begin + 1
            continue
        head = whole(data[begin:end])
        if head is not None and is_entry(head) and _stands_alone(head, begin == at):
            return begin, end, head, tries
        place = end  # a block of the torn record: nothing inside it is a record
    return len(data), len(data), None, tries


def _stands_alone(head: Head, first: bool) -> bool:
    """Whether an object found behind garbage is a record, not a block inside the torn one."""
    if first or head.parentId is not UNSET:
        return True
    return head.type == "session" or (not head.id and head.type in _WITHOUT_ID)


_PLAIN: Final = json.JSONDecoder(strict=False, parse_int=float)  # only finds where an object ends

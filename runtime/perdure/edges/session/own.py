"""Our own facts as they stand in a file, decoded. What another program put in their place is no fact.

Facts are versioned: a newer version is refused by name, never guessed at.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec
from msgspec import Raw, Struct

from perdure.contracts import Letter
from perdure.edges.session.decode import WireEntry, decode_content
from perdure.edges.session.facts import VERSION, Checkpoint, Facts, Origin, Pending
from perdure.errors import UnreadableFile
from perdure.records import Decision

PREFIX: Final = "perdure."
_T = TypeVar("_T")


class NewerFacts(UnreadableFile):
    """The file was written by a newer perdure: update this one; nothing was changed."""

    def __init__(self, version: int) -> None:
        super().__init__(
            f"written by a newer perdure (facts of version {version}, this one reads up to {VERSION}): "
            "update perdure to open it"
        )


class _Version(Struct, gc=False):
    v: int = VERSION


class _Facts(Struct, gc=False):
    e: int = 0
    inbox: Origin | None = None
    decided: list[Raw] = []


class _Inbox(Struct, gc=False):
    sender: str
    mid: str
    session: str = ""
    arrived: int = 0
    kind: Any = "external_user"
    content: list[Raw] | str | None = None


class _Letter(Struct, gc=False):
    sender: str
    mid: str
    key: str = ""
    arrived: int = 0
    kind: Any = "external_user"
    content: list[Raw] | str | None = None


class _Pending(Struct, gc=False):
    entry: str
    letter: _Letter


class _Waiting(Struct, gc=False):
    pending: list[_Pending] = []


class _Resume(Struct, gc=False):
    entry: str
    epoch: int = 0


class _Segment(Struct, gc=False):
    segment: str


class _Owned(Struct, gc=False):
    checkpoint: Raw = Raw()
    proof: Raw = Raw()


class _Details(Struct, gc=False):
    perdure: Raw = Raw()


def _read(raw: Raw | bytes, shape: type[_T]) -> _T | None:
    """`None` for what hasn't this shape; raises `NewerFacts` for a version we don't know."""
    if not bytes(raw):
        return None
    try:
        if (version := msgspec.json.decode(raw, type=_Version).v) > VERSION:
            raise NewerFacts(version)
        return msgspec.json.decode(raw, type=shape)
    except (msgspec.MsgspecError, RecursionError):
        return None


def facts_of(entry: WireEntry) -> Facts | None:
    """The field `perdure` of an entry."""
    wire = _read(entry.perdure, _Facts)
    if wire is None:
        return None
    return Facts(wire.e, wire.inbox, _decisions(wire.decided))


def _decisions(raws: list[Raw]) -> tuple[Decision, ...]:
    return tuple(d for raw in raws if (d := _read(raw, Decision)) is not None)


def compaction_facts(entry: WireEntry) -> Raw | None:
    """`details.perdure` of a compaction, `None` where somebody else made it."""
    details = _read(entry.details, _Details)
    return details.perdure if details is not None and bytes(details.perdure) else None


def checkpoint_of(entry: WireEntry) -> Checkpoint | None:
    """The checkpoint an entry carries: a `perdure.checkpoint`, or the details of a compaction."""
    if entry.type == "custom" and entry.customType == f"{PREFIX}checkpoint":
        return _checkpoint(entry.data)
    if entry.type != "compaction":
        return None
    ours = compaction_facts(entry)
    owned = None if ours is None else _read(ours, _Owned)
    return None if owned is None else _checkpoint(owned.checkpoint)


def proof_of(entry: WireEntry) -> bytes:
    """The JSON of the proof a compaction carries, empty if it has none."""
    ours = compaction_facts(entry)
    owned = None if ours is None else _read(ours, _Owned)
    return b"" if owned is None else bytes(owned.proof)


# A checkpoint without its letters: content blocks stand there in the format's shape, not in that of records.
_PLAIN: Final = [field for field in msgspec.structs.fields(Checkpoint) if field.name != "pending"]
_Plain: Final = msgspec.defstruct(
    "_Plain", [(field.name, field.type, field.default) for field in _PLAIN], gc=False
)


def _checkpoint(raw: Raw) -> Checkpoint | None:
    plain, waiting = _read(raw, _Plain), _read(raw, _Waiting)
    if plain is None or waiting is None:
        return None
    pending = tuple(Pending(p.entry, _letter(p.letter)) for p in waiting.pending)
    return Checkpoint(**{field.name: getattr(plain, field.name) for field in _PLAIN}, pending=pending)


def _letter(wire: _Letter) -> Letter:
    letter = Letter(wire.key, wire.sender, wire.mid, decode_content(wire.content), wire.arrived)
    if wire.kind in {"inter_session", "internal_system"}:
        return msgspec.structs.replace(letter, kind=wire.kind)
    return letter


def inbox_of(entry: WireEntry, key: str = "") -> tuple[str, Letter] | None:
    """A `perdure.inbox` entry: the session id it is for, and the letter."""
    wire = _read(entry.data, _Inbox)
    if wire is None:
        return None
    letter = _letter(_Letter(wire.sender, wire.mid, key, wire.arrived, wire.kind, wire.content))
    return wire.session, letter


def resume_of(entry: WireEntry) -> tuple[str, int] | None:
    """A `perdure.resume` entry: the interrupted turn's entry, and the epoch that took it up."""
    wire = _read(entry.data, _Resume)
    return None if wire is None else (wire.entry, wire.epoch)


def segment_of(entry: WireEntry) -> str | None:
    """A `perdure.segment` entry: the name of the segment beside the file."""
    wire = _read(entry.data, _Segment)
    return None if wire is None else wire.segment

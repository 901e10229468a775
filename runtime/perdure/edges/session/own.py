"""Our own facts as they stand in a file, decoded. What another program put in their place is no fact.

Facts are versioned: a newer version is refused by name, never guessed at.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta, Raw, Struct

from perdure.context.tokens.estimator import Estimator
from perdure.contracts import Letter
from perdure.edges.schedule import Timer
from perdure.edges.session import tolerant
from perdure.edges.session.decode import WireEntry, decode_content
from perdure.edges.session.facts import (
    VERSION,
    Checkpoint,
    Delivered,
    Facts,
    Mark,
    Origin,
    OutboxState,
    Outgoing,
    Pending,
)
from perdure.edges.session.ids import Epoch
from perdure.edges.session.kin import Fact
from perdure.edges.spend import Amount
from perdure.errors import UnreadableFile
from perdure.records import Decision, PinKind, Pinned

PREFIX: Final = "perdure."
_T = TypeVar("_T")


class NewerFacts(UnreadableFile):
    """The file was written by a newer perdure: update this one; nothing was changed."""

    def __init__(self, version: int) -> None:
        super().__init__(
            f"written by a newer perdure (facts of version {version}, this one reads up to {VERSION}): "
            "update perdure to open it"
        )


class _Facts(Struct, gc=False):
    e: Epoch = 0
    inbox: Origin | None = None
    decided: list[Any] = []
    evidence: list[str] = []
    learned: Any = None
    sent: Any = ""
    stand_in: Any = False
    out: Any = None
    spent: Any = None


class _Letter(Struct, gc=False):
    sender: str
    mid: str
    key: str = ""
    session: str = ""
    arrived: int = 0
    kind: Any = None
    content: Any = None
    evidence: list[str] = []
    deliver: bool | None = None


class _Outbox(Struct, gc=False):
    session: str
    entry: str
    state: OutboxState
    n: Annotated[int, Meta(ge=0, le=1 << 31)] = 0
    why: str = ""
    at: int = 0


class _Pending(Struct, gc=False):
    entry: str
    letter: _Letter


class _Waiting(Struct, gc=False):
    pending: list[_Pending] = []


class _Resume(Struct, gc=False):
    entry: str
    epoch: int = 0


class _Pin(Struct, gc=False):
    text: str = ""
    kind: PinKind = "instruction"
    source: str = ""
    remove: list[str] = []


class _Engine(Struct, gc=False):
    session: str = ""
    chosen: str | None = None
    told: Any = None


class _Timer(Struct, gc=False):
    session: str = ""
    set: Any = None
    cleared: list[str] = []


class _Child(Struct, gc=False):
    session: str
    fact: Fact


class _Segment(Struct, gc=False):
    segment: str = ""
    cut: dict[str, str] | None = None


def _object(raw: Raw) -> dict[str, Any]:
    """An object as it stands in the file (halves of surrogate pairs included), empty if it is none."""
    try:
        value = tolerant.loads(bytes(raw)) if bytes(raw) else {}
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _ours(value: Any) -> dict[str, Any]:
    """Facts of ours; raises `NewerFacts` for a version we don't know."""
    if not isinstance(value, dict):
        return {}
    version = value.get("v", VERSION)
    if isinstance(version, int) and version > VERSION:
        raise NewerFacts(version)
    return value


def _value(raw: Raw) -> dict[str, Any]:
    return _ours(_object(raw))


def _shaped(value: Any, shape: type[_T]) -> _T | None:
    try:
        return msgspec.convert(value, shape)
    except (msgspec.ValidationError, UnicodeEncodeError):  # half of a pair where no text belongs
        return None


# --- entries of others, with facts of ours --------------------------------------------------------


def facts_of(entry: WireEntry) -> Facts | None:
    """The field `perdure` of an entry."""
    wire = _shaped(_value(entry.perdure), _Facts)
    if wire is None:
        return None
    made = (_shaped(each, Decision) for each in wire.decided)
    decisions = tuple(decision for decision in made if decision is not None)
    sent = wire.sent if isinstance(wire.sent, str) else ""
    learned = None if wire.learned is None else _shaped(wire.learned, Estimator)
    learned = learned if learned is not None and learned.sound else None
    out = None if wire.out is None else _shaped(wire.out, Mark)
    spent = None if wire.spent is None else _shaped(wire.spent, Amount)
    aside = wire.stand_in is True
    return Facts(wire.e, wire.inbox, decisions, tuple(wire.evidence), sent, learned, out, aside, spent)


def compaction_facts(entry: WireEntry) -> dict[str, Any]:
    """`details.perdure` of a compaction, empty where somebody else made it."""
    return _ours(_object(entry.details).get("perdure"))


def proof_of(entry: WireEntry) -> Any:
    """The proof a compaction carries, `None` if it has none."""
    return compaction_facts(entry).get("proof")


# --- checkpoints ----------------------------------------------------------------------------------

# Without its letters: content blocks stand there in the format's shape, not in that of records.
_PLAIN: Final = [field for field in msgspec.structs.fields(Checkpoint) if field.name != "pending"]
_Plain: Final = msgspec.defstruct(
    "_Plain", [(field.name, field.type, field.default) for field in _PLAIN], gc=False
)


def checkpoint_of(entry: WireEntry) -> Checkpoint | None:
    """The checkpoint an entry carries: a `perdure.checkpoint`, or the details of a compaction."""
    if entry.type == "compaction":
        found = _ours(compaction_facts(entry).get("checkpoint"))
        return _checkpoint(found) if found else None
    if entry.type == "custom" and entry.customType == f"{PREFIX}checkpoint":
        return _checkpoint(_value(entry.data))
    return None


def _checkpoint(value: Any) -> Checkpoint | None:
    plain, waiting = _shaped(value, _Plain), _shaped(value, _Waiting)
    if plain is None or waiting is None:
        return None
    pending = tuple(Pending(p.entry, _letter(p.letter)) for p in waiting.pending)
    fields = {field.name: getattr(plain, field.name) for field in _PLAIN}
    fields["learned"] = tuple(each for each in fields["learned"] if each.sound)
    return Checkpoint(**fields, pending=pending)


def _letter(wire: _Letter, key: str = "") -> Letter:
    content = wire.content
    if not isinstance(content, str):
        content = [Raw(tolerant.dumps(block)) for block in content] if isinstance(content, list) else None
    evidence = tuple(wire.evidence)
    letter = Letter(
        wire.key or key,
        wire.sender,
        wire.mid,
        decode_content(content),
        wire.arrived,
        evidence=evidence,
        deliver=wire.deliver,
    )
    if wire.kind in ("inter_session", "internal_system"):
        return msgspec.structs.replace(letter, kind=wire.kind)
    return letter


# --- our own entries ------------------------------------------------------------------------------


def inbox_of(entry: WireEntry, key: str = "") -> tuple[str, Letter] | None:
    """A `perdure.inbox` entry: the session id it is for, and the letter."""
    wire = _shaped(_value(entry.data), _Letter)
    return None if wire is None else (wire.session, _letter(wire, key))


def resume_of(entry: WireEntry) -> tuple[str, int] | None:
    """A `perdure.resume` entry: the interrupted turn's entry, and the epoch that took it up."""
    wire = _shaped(_value(entry.data), _Resume)
    return None if wire is None else (wire.entry, wire.epoch)


def outbox_of(entry: WireEntry) -> tuple[str, Outgoing] | None:
    """A `perdure.outbox` entry: session id, and where an answer stands (its channel is in its mark)."""
    wire = _shaped(_value(entry.data), _Outbox)
    if wire is None:
        return None
    return wire.session, Outgoing(wire.entry, "", "", wire.at, wire.n, wire.state, wire.why)


def timers_of(entry: WireEntry) -> tuple[str, Timer | None, tuple[str, ...]]:
    """A `perdure.timer` entry: the session id it is for, the timer it sets, the ids it takes away."""
    wire = _shaped(_value(entry.data), _Timer)
    if wire is None:
        return "", None, ()
    return wire.session, None if wire.set is None else _shaped(wire.set, Timer), tuple(wire.cleared)


def engine_of(entry: WireEntry) -> tuple[str | None, str, Delivered | None]:
    """A `perdure.engine` entry: the engine that was chosen ("": the slot's again; `None`: it doesn't say),
    the session id that the rest is for, and how far an engine was told.
    """
    wire = _shaped(_value(entry.data), _Engine)
    if wire is None:
        return None, "", None
    return wire.chosen, wire.session, None if wire.told is None else _shaped(wire.told, Delivered)


def kin_of(entry: WireEntry) -> tuple[str, Fact] | None:
    """A `perdure.child` entry: the session id it is for, and what it tells."""
    wire = _shaped(_value(entry.data), _Child)
    return None if wire is None else (wire.session, wire.fact)


def pin_of(id: str, entry: WireEntry) -> Pinned | None:
    """What a `perdure.pin` entry pins; `None` where it only takes pins away."""
    wire = _shaped(_value(entry.data), _Pin)
    return Pinned(id, wire.text, wire.kind, wire.source) if wire is not None and wire.text else None


def unpinned_by(entry: WireEntry) -> tuple[str, ...]:
    """Ids of the pins that a `perdure.pin` entry takes away."""
    wire = _shaped(_value(entry.data), _Pin)
    return tuple(wire.remove) if wire is not None else ()


def segment_of(entry: WireEntry) -> str | None:
    """A `perdure.segment` or `perdure.discarded` entry: the name of the segment beside the file."""
    return mark_of(entry)[0] or None


def mark_of(entry: WireEntry) -> tuple[str, dict[str, str] | None]:
    """An entry of a truncation, of a restoring or a discarding: the segment, and parents before it.

    `None`: it does not tell (an earlier version); the segment is empty where there is none.
    """
    wire = _shaped(_value(entry.data), _Segment)
    return ("", {}) if wire is None else (wire.segment, wire.cut)

"""Server-sent events as bytes, and the ids by which a client resumes. Pure.

An id is `EPOCH-SEQ-ENTRY`: the host's ownership (hex), the number of the event in it (hex; 0: read from
a session's file), and the last message entry that the client has been told of (empty: none yet).
"""

from __future__ import annotations

import re
from typing import Any, get_args

import msgspec

from perdure.edges.session.encode import encode_message
from perdure.events import (
    Event,
    Notice,
    Recorded,
    Said,
    Thought,
    ToolEnded,
    ToolStarted,
    TurnFinished,
    TurnStarted,
)
from perdure.records import Assistant, Message, Record, ToolResult, User
from perdure.server.problems import Refused

LARGEST = 256 * 1024  # bytes of an event's data; a larger message is fetched by its entry
_ID = re.compile(r"([0-9a-f]{1,14})-([0-9a-f]{1,14})-([!-~]{0,64})")
_SHORT: dict[type[Any], str] = {
    TurnStarted: "turn.started",
    Said: "text",
    Thought: "thinking",
    ToolStarted: "tool.started",
    ToolEnded: "tool.ended",
    Notice: "notice",
    Recorded: "entry",
    TurnFinished: "turn.finished",
}


class Place(Record):
    """Where a client stands in a stream."""

    epoch: int
    seq: int
    entry: str

    def __str__(self) -> str:
        return f"{self.epoch:x}-{self.seq:x}-{self.entry}"


class Entry(Record):
    """A message is in the session's file. `message` is as the session format (pi, version 3) has it.

    It is null where it is larger than an event may be (`bytes` tells): `GET …/entries?after=` has it.
    """

    key: str
    entry: str
    role: str
    message: msgspec.Raw | None
    bytes: int


class Ready(Record):
    """The stream is live from here: what came before is told. `entry`: the last message known to it."""

    key: str | None
    entry: str | None


class Resync(Record):
    """The events since the client's id are gone; the messages since then follow, each once.

    `after`: the entry that they follow; null where the session stands on another branch now, or in a new
    file: forget what you have, the whole view follows. Unfinished text was transient.
    """

    key: str | None
    after: str | None
    reason: str


class Ended(Record):
    """The stream ends. `lagged`: this client reads too slowly; `closing`: the host stops;
    `reloaded`: who may listen was set anew. Resume by id.

    `failed`: the session's file can't be read, `reason` says why.
    """

    reason: str


def name_of(kind: type[Any]) -> str:
    """The event type: `turn.started` …, in later additions made of the record's name."""
    return _SHORT.get(kind) or re.sub(r"(?<=[a-z])(?=[A-Z])", ".", kind.__name__).lower()


def names() -> dict[str, type[Any]]:
    """Every event type of a stream and the record that is its data."""
    live = {name_of(kind): Entry if kind is Recorded else kind for kind in get_args(Event)}
    return live | {
        "ready": Ready,
        "resync": Resync,
        "lagged": Ended,
        "closing": Ended,
        "reloaded": Ended,
        "failed": Ended,
    }


def place(text: str) -> Place:
    """The place that an id names. Raises `Refused` for what is none."""
    found = _ID.fullmatch(text)
    if found is None:
        raise Refused(400, "invalid", f"{text[:80]!r} is no event id: send back one that the stream gave")
    return Place(int(found[1], 16), int(found[2], 16), found[3])


def body(name: str, data: bytes) -> bytes:
    """All of a frame but its id. JSON has no raw newline, so one `data` line holds it."""
    return b"event: %s\ndata: %s\n\n" % (name.encode(), data)


def numbered(place: Place, body: bytes) -> bytes:
    """A frame that a client can resume from."""
    return b"id: %s\n%s" % (str(place).encode(), body)


def told(event: Event) -> bytes:
    """A host's event as the body of a frame."""
    if isinstance(event, Recorded):
        return entry(event.key, event.entry, event.message)
    return body(name_of(type(event)), encoded(event))


def entry(key: str, id: str, message: Message) -> bytes:
    """A message that is in the file, as the body of a frame."""
    raw = encode_message(message)
    kept = msgspec.Raw(raw) if len(raw) <= LARGEST else None
    return body("entry", encoded(Entry(key, id, _role(message), kept, len(raw))))


def encoded(value: Any) -> bytes:
    """JSON; half a surrogate pair (of a model's delta) becomes a replacement character."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        fields = {name: _whole(getattr(value, name)) for name in value.__struct_fields__}
        return msgspec.json.encode(type(value)(**fields))


def _whole(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, tuple):
        return tuple(map(_whole, value))
    if isinstance(value, msgspec.Struct):
        return type(value)(**{name: _whole(getattr(value, name)) for name in value.__struct_fields__})
    return value


def _role(message: Message) -> str:
    match message:
        case User():
            return "user"
        case Assistant():
            return "assistant"
        case ToolResult():
            return "toolResult"
        case _:
            return type(message).__name__[:1].lower() + type(message).__name__[1:]

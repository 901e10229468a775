"""Encodes the lines we write: one JSON object and a newline each, in the format's own shapes.

Facts of ours stand where they disturb no other program: in an extra field `perdure` of entries that are
written anyway, in `details.perdure` of compactions, else in `custom` entries off the chain (their parent
is the leaf, which does not move). Every line carries the epoch of the ownership it was written under.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Raw

from perdure.contracts import Letter
from perdure.edges.schedule import Timer
from perdure.edges.session.encode import encode_content, encode_message
from perdure.edges.session.facts import NEVER, VERSION, Checkpoint, Delivered, Facts, Mark, Origin, Outgoing
from perdure.edges.session.kin import Fact
from perdure.records import Decision, Message, Pinned

_encode = msgspec.json.Encoder().encode


def iso(timestamp_ms: int) -> str:
    """`2026-11-29T20:52:00.123Z`, as the format writes times."""
    seconds, ms = divmod(timestamp_ms, 1000)
    return f"{_second(seconds)}.{ms:03d}Z"


@lru_cache(maxsize=8)  # most lines of a host share their second with the line before
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()[:19]


# --- header and chain -----------------------------------------------------------------------------


def header_line(session_id: str, timestamp_ms: int, cwd: str, parent_session: str | None = None) -> bytes:
    """The first line of a session file."""
    head = {"type": "session", "version": 3, "id": session_id, "timestamp": iso(timestamp_ms), "cwd": cwd}
    return _line(head if parent_session is None else head | {"parentSession": parent_session})


def message_line(
    id: str, parent: str | None, timestamp_ms: int, message: Message, facts: Facts | None = None
) -> bytes:
    """A message; `facts` ride along in the field `perdure`."""
    entry = _head("message", id, parent, timestamp_ms)
    entry["message"] = Raw(encode_message(message))
    if facts is not None:
        entry["perdure"] = _facts(facts)
    return _line(entry)


def compaction_line(
    id: str,
    parent: str | None,
    timestamp_ms: int,
    summary: str,
    first_kept: str | None,
    tokens_before: int,
    checkpoint: Checkpoint,
    proof_json: bytes,
) -> bytes:
    """A compaction with its checkpoint and proof. `first_kept` `None`: nothing is kept (its own id)."""
    entry = _head("compaction", id, parent, timestamp_ms)
    entry |= {"summary": summary, "firstKeptEntryId": first_kept or id, "tokensBefore": tokens_before}
    ours = {"v": VERSION, "e": checkpoint.epoch, "checkpoint": _checkpoint(checkpoint)}
    entry["details"] = {"perdure": ours | {"proof": Raw(proof_json)}}
    return _line(entry)


def label_line(
    id: str, parent: str | None, timestamp_ms: int, target: str, label: str | None, epoch: int = 0
) -> bytes:
    """Names the entry `target`; `None` takes its name away."""
    named = {"targetId": target} if label is None else {"targetId": target, "label": label}
    return _ours("label", id, parent, timestamp_ms, named, epoch)


def session_info_line(id: str, parent: str | None, timestamp_ms: int, name: str, epoch: int = 0) -> bytes:
    """Names the session."""
    return _ours("session_info", id, parent, timestamp_ms, {"name": name}, epoch)


def model_change_line(
    id: str, parent: str | None, timestamp_ms: int, provider: str, model: str, epoch: int = 0
) -> bytes:
    """The session goes on with another model."""
    return _ours("model_change", id, parent, timestamp_ms, {"provider": provider, "modelId": model}, epoch)


def thinking_line(id: str, parent: str | None, timestamp_ms: int, level: str, epoch: int = 0) -> bytes:
    """The session goes on with another thinking level."""
    return _ours("thinking_level_change", id, parent, timestamp_ms, {"thinkingLevel": level}, epoch)


def branch_summary_line(
    id: str, parent: str | None, timestamp_ms: int, from_id: str, summary: str, epoch: int = 0
) -> bytes:
    """Goes on behind `parent` and tells what happened on the branch that ended in `from_id`."""
    return _ours("branch_summary", id, parent, timestamp_ms, {"fromId": from_id, "summary": summary}, epoch)


def custom_line(
    id: str, parent: str | None, timestamp_ms: int, custom_type: str, data_json: bytes | None = None
) -> bytes:
    """Any `custom` entry; `data_json` is the JSON text of its data."""
    entry = _head("custom", id, parent, timestamp_ms) | {"customType": custom_type}
    return _line(entry if data_json is None else entry | {"data": Raw(data_json)})


# --- off the chain --------------------------------------------------------------------------------


def inbox_line(
    id: str, leaf: str | None, timestamp_ms: int, letter: Letter, session_id: str, epoch: int
) -> bytes:
    """A letter that waits, content first; `session_id` is the header's: a copied file answers nothing."""
    data: dict[str, Any] = {
        "session": session_id,
        "sender": letter.sender,
        "mid": letter.mid,
        "arrived": letter.arrived,
        "kind": letter.kind,
        "content": Raw(encode_content(letter.content)),
    }
    if letter.deliver is not None:
        data["deliver"] = letter.deliver
    if letter.evidence:
        data["evidence"] = letter.evidence
    return _off_chain("inbox", id, leaf, timestamp_ms, epoch, data)


def checkpoint_line(id: str, leaf: str | None, timestamp_ms: int, checkpoint: Checkpoint) -> bytes:
    """What the tail of the file can't tell, for the next waking."""
    return _off_chain("checkpoint", id, leaf, timestamp_ms, checkpoint.epoch, _checkpoint(checkpoint))


def owner_line(
    id: str, leaf: str | None, timestamp_ms: int, epoch: int, token: int, node: str, boot: str
) -> bytes:
    """Who owns the file from here on."""
    return _off_chain(
        "owner", id, leaf, timestamp_ms, epoch, {"epoch": epoch, "token": token, "node": node, "boot": boot}
    )


def pin_line(id: str, leaf: str | None, timestamp_ms: int, pin: Pinned, epoch: int) -> bytes:
    """A user pins a text; the entry's id names the pin."""
    data = {"text": pin.text, "kind": pin.kind} | ({"source": pin.source} if pin.source else {})
    return _off_chain("pin", id, leaf, timestamp_ms, epoch, data)


def unpin_line(id: str, leaf: str | None, timestamp_ms: int, gone: tuple[str, ...], epoch: int) -> bytes:
    """A user takes pins away."""
    return _off_chain("pin", id, leaf, timestamp_ms, epoch, {"remove": gone})


def timer_line(
    id: str,
    leaf: str | None,
    timestamp_ms: int,
    session_id: str,
    epoch: int,
    timer: Timer | None,
    gone: tuple[str, ...] = (),
) -> bytes:
    """A timer is set, or others are taken away. That one came is told by the letter it sent."""
    data = {"session": session_id, "set": msgspec.to_builtins(timer), "cleared": gone}
    return _off_chain("timer", id, leaf, timestamp_ms, epoch, {k: v for k, v in data.items() if v})


def engine_line(
    id: str,
    leaf: str | None,
    timestamp_ms: int,
    session_id: str,
    epoch: int,
    *,
    chosen: str | None = None,
    told: Delivered | None = None,
) -> bytes:
    """Which engine the session chose ("": the slot's), or how far one was told."""
    data = {"session": session_id, "chosen": chosen, "told": msgspec.to_builtins(told)}
    return _off_chain(
        "engine", id, leaf, timestamp_ms, epoch, {k: v for k, v in data.items() if v is not None}
    )


def child_line(
    id: str, leaf: str | None, timestamp_ms: int, session_id: str, epoch: int, fact: Fact
) -> bytes:
    """A subagent begins, has ended, or its parent has the result (`kin`)."""
    data = {"session": session_id, "fact": _told(fact)}
    return _off_chain("child", id, leaf, timestamp_ms, epoch, data)


def resume_line(
    id: str, leaf: str | None, timestamp_ms: int, entry: str, epoch: int, *, never: bool = False
) -> bytes:
    """The interrupted turn behind `entry` is taken up under this epoch (once per ownership), or `never`."""
    under = NEVER if never else epoch
    return _off_chain("resume", id, leaf, timestamp_ms, epoch, {"entry": entry, "epoch": under})


def outbox_line(
    id: str, leaf: str | None, timestamp_ms: int, outgoing: Outgoing, session_id: str, epoch: int
) -> bytes:
    """Where the delivery of an answer stands: written before each attempt, and at its end."""
    told: dict[str, Any] = {"session": session_id, "entry": outgoing.entry, "state": outgoing.state}
    told["n"] = outgoing.tries
    told |= {"at": outgoing.at} if outgoing.state == "waiting" else {}
    data = told | ({"why": outgoing.why} if outgoing.why else {})
    return _off_chain("outbox", id, leaf, timestamp_ms, epoch, data)


def branch_line(
    id: str, target: str | None, timestamp_ms: int, epoch: int, abandoned: str | None = None
) -> bytes:
    """Moves the leaf to `target`. `abandoned` is the leaf of a branch that a rewrite left behind for
    good: truncation takes that branch along.
    """
    data = {} if abandoned is None else {"abandoned": abandoned}
    return _off_chain("branch", id, target, timestamp_ms, epoch, data)


def segment_line(
    id: str,
    parent: str | None,
    timestamp_ms: int,
    epoch: int,
    name: str,
    digest: str,
    entries: int,
    cut: Mapping[str, str],
) -> bytes:
    """`entries` entries stand in the segment `name` beside the file, whose SHA-256 is `digest`.

    `cut`: entries that have another parent since, and the one they had at first.
    """
    data = {"segment": name, "sha256": digest, "entries": entries, "cut": dict(cut)}
    return _off_chain("segment", id, parent, timestamp_ms, epoch, data)


def restored_line(
    id: str, parent: str | None, timestamp_ms: int, epoch: int, entries: int, cut: Mapping[str, str]
) -> bytes:
    """`entries` entries came back from segments; `cut` as in `segment_line`."""
    return _off_chain("restored", id, parent, timestamp_ms, epoch, {"entries": entries, "cut": dict(cut)})


def discarded_line(
    id: str, leaf: str | None, timestamp_ms: int, epoch: int, name: str, entries: int
) -> bytes:
    """The segment `name` with its `entries` entries is deleted for good, by somebody who asked for it."""
    return _off_chain("discarded", id, leaf, timestamp_ms, epoch, {"segment": name, "entries": entries})


# --- parts ----------------------------------------------------------------------------------------


def _head(kind: str, id: str, parent: str | None, timestamp_ms: int) -> dict[str, Any]:
    return {"type": kind, "id": id, "parentId": parent, "timestamp": iso(timestamp_ms)}


def _ours(
    kind: str, id: str, parent: str | None, timestamp_ms: int, fields: dict[str, Any], epoch: int
) -> bytes:
    entry = _head(kind, id, parent, timestamp_ms) | fields
    return _line(entry if not epoch else entry | {"perdure": {"v": VERSION, "e": epoch}})


def _off_chain(
    kind: str, id: str, leaf: str | None, timestamp_ms: int, epoch: int, data: dict[str, Any]
) -> bytes:
    entry = _head("custom", id, leaf, timestamp_ms) | {"customType": f"perdure.{kind}"}
    entry["data"] = {"v": VERSION, "e": epoch, **data}
    return _line(entry)


def _facts(facts: Facts) -> dict[str, Any]:
    field: dict[str, Any] = {"v": VERSION, "e": facts.epoch}
    if facts.origin is not None:
        field["inbox"] = _origin(facts.origin)
    if facts.decisions:
        field["decided"] = [_decision(d) for d in facts.decisions]
    if facts.evidence:
        field["evidence"] = facts.evidence
    if facts.learned is not None:
        field["learned"] = facts.learned
    if facts.sent:
        field["sent"] = facts.sent
    if facts.out is not None:
        field["out"] = _stated(facts.out)
    if facts.stand_in:
        field["stand_in"] = True
    if facts.spent is not None:
        field["spent"] = facts.spent
    return field


def _origin(origin: Origin) -> dict[str, Any]:
    told = {"sender": origin.sender, "mid": origin.mid, "arrived": origin.arrived}
    return told | {"owes": origin.owes} if origin.owes else told


def _told(fields: Any) -> Any:
    """What a record says beyond its defaults, those in it included."""
    if isinstance(fields, tuple):
        return [_told(each) for each in fields]
    if not isinstance(fields, msgspec.Struct):
        return fields
    defaults = {field.name: field.default for field in msgspec.structs.fields(fields)}
    told = {name: getattr(fields, name) for name in fields.__struct_fields__}
    return {name: _told(value) for name, value in told.items() if value != defaults[name]}


def _stated(fields: Mark | Outgoing) -> dict[str, Any]:
    """What a record says beyond its defaults."""
    told = {name: getattr(fields, name) for name in fields.__struct_fields__}
    return {name: value for name, value in told.items() if value}


def _decision(decision: Decision) -> dict[str, Any]:
    full = {"key": decision.key, "form": decision.form, "head": decision.head, "tail": decision.tail}
    full["value"] = decision.value
    return {name: value for name, value in full.items() if value}


def _checkpoint(checkpoint: Checkpoint) -> dict[str, Any]:
    data = msgspec.to_builtins(msgspec.structs.replace(checkpoint, pending=(), relatives=None))
    assert isinstance(data, dict)
    del data["relatives"]
    if checkpoint.relatives is not None:
        data["relatives"] = _told(checkpoint.relatives)
    data["outgoing"] = [_stated(each) for each in checkpoint.outgoing]
    data["pending"] = [{"entry": p.entry, "letter": _letter(p.letter)} for p in checkpoint.pending]
    return data


def _letter(letter: Letter) -> dict[str, Any]:
    fields = {name: getattr(letter, name) for name in letter.__struct_fields__}
    return fields | {"content": Raw(encode_content(letter.content))}


def _line(entry: Mapping[str, Any]) -> bytes:
    try:
        return _encode(entry) + b"\n"
    except UnicodeEncodeError:  # a lone surrogate; JavaScript writes it as an escape, so do we
        return _encode(_escaped(entry)) + b"\n"


def _escaped(value: Any) -> Any:
    match value:
        case str():
            return Raw(json.dumps(value).encode())
        case list() | tuple():
            return [_escaped(part) for part in value]
        case Mapping():
            return {name: _escaped(part) for name, part in value.items()}
        case _:
            return value

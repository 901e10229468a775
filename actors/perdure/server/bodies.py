"""What requests and answers hold, as records: the schema of the API and its parsers at once."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from perdure.actors.approvals import Remember
from perdure.edges.session.facts import Outgoing
from perdure.events import ApprovalAsked
from perdure.hosting.reloading import Reloaded
from perdure.hosting.scheduling import CatchUp
from perdure.records import Record

Name = Annotated[str, Meta(max_length=200)]
Ref = Annotated[str, Meta(min_length=1, max_length=256)]


class Strict(Record, forbid_unknown_fields=True):
    """Of what a client sends: a field that nobody knows is a mistake."""


class Attachment(Strict):
    """A file: its bytes in base64 (`data`), or its text. `mime` of a picture makes it one."""

    name: Name = ""
    mime: Name = ""
    data: str | None = None
    text: str | None = None


class NewMessage(Strict):
    """What somebody says to a session. `sender` tells one tenant's senders apart."""

    text: str = ""
    attachments: Annotated[tuple[Attachment, ...], Meta(max_length=32)] = ()
    sender: Name = "user"


class Accepted(Record):
    """The message is in the session's file, as `entry`. `repeated`: this id was taken before."""

    key: str
    entry: str
    mid: str
    repeated: bool


class Answered(Record):
    """How the turn ended, as `perdure chat -m --json` says it; `entry` and `mid` of the message."""

    key: str
    reply: str
    stop: str
    steps: int
    tokens: dict[str, int]
    entries: tuple[str, ...]
    errors: tuple[str, ...]
    overflow: dict[str, Any] | None
    entry: str
    mid: str
    repeated: bool


class Listed(Record):
    """A session. `updated`: ISO 8601. `awake`: in memory at this moment. Of a subagent `parent` and `state`:
    how it ended, `open` where it has not, `unknown` where it runs under no grant; null of any other.
    """

    key: str
    bytes: int
    updated: str
    awake: bool
    parent: str | None = None
    state: str | None = None


class Page(Record):
    """Sessions by key. `next`: the `after` of the page that follows; null on the last."""

    sessions: tuple[Listed, ...]
    next: str | None


class Stored(Record):
    """A message of a session, as the session format (pi, version 3) has it."""

    entry: str
    message: Any


class Entries(Record):
    """Messages in their order. `next`: the `after` of the page that follows; null on the last."""

    key: str
    entries: tuple[Stored, ...]
    next: str | None


class Done(Record):
    """What became of a change. `reason`: why it was not done. `text`: for a person.

    `proof`: what it did, as the command of the same name says it with `--json`.
    """

    key: str
    done: bool
    reason: str = ""
    text: str = ""
    leaf: str | None = None
    proof: dict[str, Any] = msgspec.field(default_factory=dict)


class Forked(Record):
    """The session that a fork made."""

    key: str
    made: str
    leaf: str
    entries: int


class Told(Record):
    """The answer of a command, for a person."""

    key: str
    text: str


class Halting(Strict):
    """What is to stop. `tree`: all subagents below the session as well."""

    tree: bool = False


class Halted(Record):
    """Whether anything was stopped; `below`: subagents that have ended by it."""

    key: str
    stopped: bool
    below: tuple[str, ...] = ()


class Stopped(Record):
    """Whether there was a turn, or a compaction, to stop."""

    key: str
    stopped: bool


class Focus(Strict):
    """What a summary should look at above all."""

    focus: Annotated[str, Meta(max_length=4_000)] = ""


class Truncation(Strict):
    """`discard`: move nothing, but delete for good what earlier truncations moved out."""

    discard: bool = False


class ToEntry(Strict):
    """An entry: its id, the beginning of it, or a label."""

    entry: Ref


class Labelled(Strict):
    """A label for an entry; an empty one takes it away."""

    entry: Ref
    text: Name


class Named(Strict):
    """A session's name."""

    name: Annotated[str, Meta(min_length=1, max_length=200)]


class Fork(Strict):
    """A new session's key, and up to which entry (default: all)."""

    key: Annotated[str, Meta(min_length=1, max_length=512)]
    entry: Ref | None = None


class ModelRef(Strict):
    """A model as `provider/id`."""

    model: Annotated[str, Meta(min_length=1, max_length=200)]


class Line(Strict):
    """A slash command, such as `/status`."""

    line: Annotated[str, Meta(min_length=2, max_length=20_000, pattern="^/")]


class Verdict(Strict):
    """An answer to a tool call that waits for a person. `note` is told to the model."""

    id: Annotated[str, Meta(min_length=1, max_length=200)]
    allow: bool
    remember: Remember = "once"
    note: Annotated[str, Meta(max_length=4_000)] = ""


class Waiting(Record):
    """Tool calls that wait for a person, the oldest first."""

    key: str
    approvals: tuple[ApprovalAsked, ...]


class Deleted(Record):
    """A session and its subagents are gone for good."""

    key: str
    deleted: tuple[str, ...]


class Wanted(Strict):
    """What is sent to a session later: one of `every` ("4h"), `cron` and `at` (ISO 8601) says when."""

    message: Annotated[str, Meta(min_length=1, max_length=20_000)]
    every: Name = ""
    cron: Name = ""
    at: Name = ""
    timezone: Name = ""
    model: Name = ""
    isolated: bool = False
    catch_up: CatchUp = "once"
    id: Annotated[str, Meta(max_length=128)] = ""


class Plans(Record):
    """What is scheduled, the next first. `next`: wall ms."""

    key: str
    schedules: tuple[Any, ...]


class Out(Record):
    """Answers on their way out, and those that went nowhere, the oldest first."""

    key: str
    outbox: tuple[Outgoing, ...]


class Wards(Record):
    """Messages that were parked, and sessions that can't be opened. Never a message's text."""

    parked: tuple[Any, ...]
    quarantined: tuple[Any, ...]


class Moved(Record):
    """Whether there was such a thing."""

    done: bool


class Nothing(Strict):
    """An empty body."""


class Health(Record):
    """`problems`: why it is not ready."""

    ok: bool
    problems: tuple[str, ...] = ()


_KEY = "agent:main:cli:dm:local"
EXAMPLES: dict[type[Record], Record] = {
    NewMessage: NewMessage("What changed?", (Attachment("notes.txt", "text/plain", text="a, b"),), "ada"),
    Accepted: Accepted(_KEY, "019b8c1f3a2211a1", "m-1", False),
    Answered: Answered(
        _KEY, "Two lines.", "stop", 1, {"input": 3, "cache_read": 1_429, "cache_write": 20, "output": 4},
        ("019b8c1f3b0011a2",), (), None, "019b8c1f3a2211a1", "m-1", False,
    ),
    Page: Page((Listed(_KEY, 1_136, "2026-01-05T08:00:00.000Z", True),), None),
    Entries: Entries(_KEY, (Stored("019b8c1f3a2211a1", {"role": "user", "content": "hi"}),), None),
    Done: Done(_KEY, True, leaf="019b8c1f3b0011a2"),
    Forked: Forked(_KEY, "agent:main:cli:dm:copy", "019b8c1f3b0011a2", 4),
    Told: Told(_KEY, "The model is now anthropic/claude-sonnet-4-5."),
    Stopped: Stopped(_KEY, True),
    Halting: Halting(True),
    Halted: Halted(_KEY, True, ("agent:main:subagent:5f0c1a2b",)),
    Focus: Focus("the open questions"),
    Truncation: Truncation(),
    ToEntry: ToEntry("019b8c1f"),
    Labelled: Labelled("019b8c1f", "before the move"),
    Named: Named("the move"),
    Fork: Fork("agent:main:cli:dm:copy"),
    ModelRef: ModelRef("anthropic/claude-sonnet-4-5"),
    Line: Line("/status"),
    Verdict: Verdict("call-1", True, "once", "go ahead"),
    Waiting: Waiting(_KEY, ()),
    Deleted: Deleted(_KEY, (_KEY,)),
    Wanted: Wanted("Read the news.", cron="0 8 * * *", timezone="Europe/Berlin"),
    Plans: Plans(_KEY, ()),
    Out: Out(_KEY, ()),
    Wards: Wards((), ()),
    Moved: Moved(True),
    Reloaded: Reloaded(("tenants",), (("server.port", "it is read at the start"),)),
    Nothing: Nothing(),
    Health: Health(False, ("draining",)),
}  # fmt: skip
"""One of each body, for the description of the API."""

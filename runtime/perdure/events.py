"""What a host tells its callers: how a turn ended, and what happens meanwhile."""

from __future__ import annotations

from typing import Literal, TypeAlias

from perdure.records import Message, Record, Usage


class Overflow(Record):
    """Why a turn ended as `overflow`: the request was of `tokens`, the line is `limit`.

    `cause`: `floor` (what can't be given up is too large: say less, or use a larger model), `summariser`
    (nothing could be compacted just now: try again later), `trigger` (nothing compacts by itself here:
    command it), `attempts` (compactions in a row did not help). `owners` name who takes how many of the
    tokens; they sum to `tokens` exactly.
    """

    cause: Literal["floor", "summariser", "trigger", "attempts"]
    tokens: int
    limit: int
    owners: tuple[tuple[str, int], ...] = ()


class Reply(Record):
    """How a turn ended. `stop`: stop, length, aborted, error, overflow (then `overflow` says why).

    `kind` of an error: a `ModelErrorKind` (`spend_cap`: a day's budget is used up), `steps`, `storage`,
    `host`; empty where it is told from the record.
    """

    key: str
    text: str
    stop: str
    steps: int
    usage: Usage
    entries: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    overflow: Overflow | None = None
    kind: str = ""


class TurnStarted(Record):
    """Event: a turn began."""

    key: str
    turn: int


class Said(Record):
    """Event: more text of the answer."""

    key: str
    text: str


class Thought(Record):
    """Event: more of the model's reasoning."""

    key: str
    text: str


class ToolStarted(Record):
    """Event: a tool runs."""

    key: str
    call_id: str
    name: str


class ToolEnded(Record):
    """Event: a tool has answered."""

    key: str
    call_id: str
    name: str
    is_error: bool


class ApprovalAsked(Record):
    """Event: a call waits for a person, `seconds` at most. `subject`: what an answer for the session covers.

    `arguments` are JSON; both are redacted and cut. Answered by `Host.answer(id, …)`, `/approve`, `/deny`.
    """

    key: str
    id: str
    tool: str
    call_id: str
    subject: str
    arguments: str
    seconds: float


class ApprovalAnswered(Record):
    """Event: nobody is asked any more. `outcome`: allowed, denied, expired, cancelled."""

    key: str
    id: str
    tool: str
    call_id: str
    outcome: str


class Notice(Record):
    """Event: something a user should know of (`kind`: compaction, truncation, retry, repair …)."""

    key: str
    kind: str
    text: str


class Recorded(Record):
    """Event: a message is in the session's file, as the entry `entry`."""

    key: str
    entry: str
    message: Message


class SubagentStarted(Record):
    """Event: a session (`key`) has begun a child; `mode` of its context, `depth` below the root."""

    key: str
    child: str
    run: str
    label: str
    mode: str
    depth: int


class SubagentEnded(Record):
    """Event: a child's result is in the parent's file. `state`: completed, failed, timeout, budget, killed,
    lost, swept. News only: what the parent acts on is the letter.
    """

    key: str
    child: str
    run: str
    state: str
    tokens: int
    seconds: float


class TurnFinished(Record):
    """Event: the agent rests."""

    key: str
    reply: Reply


Event: TypeAlias = (
    TurnStarted
    | Said
    | Thought
    | ToolStarted
    | ToolEnded
    | ApprovalAsked
    | ApprovalAnswered
    | Notice
    | Recorded
    | SubagentStarted
    | SubagentEnded
    | TurnFinished
)

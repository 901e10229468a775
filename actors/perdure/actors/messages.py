"""Every letter between the actors, one frozen record each, grouped by who receives it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, dataclass_transform

from msgspec import Struct

from perdure.actors.coordinator import FRESH, Coordinator, Reason
from perdure.actors.outgoing import Ended
from perdure.context.compaction.fold import Done
from perdure.context.environment import Environment
from perdure.context.tokens.estimator import Estimator, Measure
from perdure.contracts import Letter, Receipt
from perdure.edges.schedule import Timer
from perdure.edges.session.facts import Delivered, Outgoing
from perdure.edges.session.files import Held
from perdure.edges.session.rewrite import Prepared
from perdure.events import Overflow, Reply
from perdure.kernel.outcome import Outcome
from perdure.kernel.waiter import Waiter
from perdure.records import Assistant, Decision, Item, Items, Message, Record, Usage


@dataclass_transform(frozen_default=True)
class Mail(Struct, frozen=True):
    """Base of mailbox messages. They hold waiters, so the collector sees them; they are short-lived."""


# --- to the session, from outside -----------------------------------------------------------------


class Deliver(Mail):
    """A letter. `ack` gets its `Receipt` once it is in the file; `reply`, if any, gets the `Reply`."""

    letter: Letter
    ack: Waiter[Receipt]
    reply: Waiter[Reply] | None = None


class Command(Mail):
    """`/compact`, `/status`, `/model` …; `done` gets the answer as text."""

    name: str
    argument: str
    done: Waiter[str]


class Changing(Mail):
    """Change the session's file with `make(held, now_ms)`, which may block; `done` gets what it returns."""

    make: Callable[[Held, int], Any]
    done: Waiter[Any]


class Note(Mail):
    """A message that asks for no turn; `done` gets the id of its entry."""

    message: Message
    done: Waiter[str]


class Abort(Mail):
    """Stop the running turn; `done` gets whether there was one."""

    done: Waiter[bool] | None = None


class Sleep(Mail):
    """Go to sleep if idle; `done` gets whether it did."""

    done: Waiter[bool] | None = None


class Close(Mail):
    """Leave the file whole and release it, after the running turn or (`now`) instead of it."""

    done: Waiter[None]
    now: bool = False


class OutboxMail(Mail):
    """Base of what a session is told about answers that go out."""


class Due(OutboxMail):
    """The channel `to` has room for this session's next answer: to be begun, or declined."""

    to: str


class Settled(OutboxMail):
    """Attempt `n` to deliver the answer `entry` by `to` is over."""

    to: str
    entry: str
    n: int
    end: Ended


class OutboxAsk(OutboxMail):
    """`done` gets the answers on their way out; for `retry` and `drop` those that it moved.

    `entry`: of one answer alone; "": of all.
    """

    done: Waiter[tuple[Outgoing, ...]]
    what: Literal["list", "retry", "drop"] = "list"
    entry: str = ""


# --- to the session, of time ----------------------------------------------------------------------


class Timely(Mail):
    """Base of what `alarms` handles."""


class Ring(Timely):
    """Act on what is due; `done` gets when the next timer comes (wall ms).

    `since`: from when on the host could act (wall ms): an instant is as late as it lies before that.
    """

    since: int
    done: Waiter[int | None]


class Timetable(Timely):
    """Set a timer, or take one away (its id), or neither; `done` gets all of the session's."""

    done: Waiter[tuple[Timer, ...]]
    timer: Timer | None = None
    model: str = ""  # that the session is to go on with
    gone: str = ""


class Beat(Timely):
    """A heartbeat is due; `done` gets whether it begins."""

    due: int
    done: Waiter[bool]


class Probed(Timely):
    """A heartbeat is over: what the model said, or `why` it could not."""

    due: int
    said: Assistant | None = None
    usage: Usage = Usage()
    steps: int = 0
    why: str = ""


# --- to the session, from its turn ----------------------------------------------------------------


class NextStep(Mail):
    """The turn is between batches: `view` gets a `Snapshot`; waiting letters enter the transcript."""

    turn: int
    view: Waiter[Snapshot]


class Append(Mail):
    """Append a message of the turn; `done` gets its `Item`. `decisions` are its model call's."""

    turn: int
    message: Message
    done: Waiter[Item]
    decisions: tuple[Decision, ...] = ()
    request: Measure | None = None  # a model accepted a request of this size, and this is its answer
    fixed_tokens: int = 0  # of that request's system prompt and tools, by the plain weights
    evidence: tuple[str, ...] = ()  # hashes of what it keeps elsewhere
    sent: str = ""  # fingerprint of the request that it answers


class TurnEnded(Mail):
    """The turn's job is over; `outcome` is the kernel's (returned, failed, cancelled, lost)."""

    turn: int
    outcome: object


# --- to the session, from the workers -------------------------------------------------------------


class Wake(Mail):
    """Nothing but a reason to wake up: a crash may have left something to take up."""


class Woken(Mail):
    """The file is open (or `error` says why not)."""

    held: Held | None
    error: BaseException | None = None


class Idle(Mail):
    """The session has rested for as long as the provider's cache lives."""


class KeepAlive(Mail):
    """The life of the session's cached prefix is nearly over."""


class Kept(Mail):
    """A refresh of the cached prefix has ended: what it used and when it was sent, or why it was not."""

    usage: Usage | None
    asked: int
    why: str = ""


class AfterTurnDone(Mail):
    """Engine hooks of a turn have run. `told`: how far the engine was told, if it took all of it."""

    turn: int
    told: Delivered | None = None


class Rewrite(Mail):
    """The engine's `maintain` changes entries with `make(held, now_ms)`; `done` gets what that returns."""

    make: Callable[[Held, int], Any]
    done: Waiter[Any]


class Flushed(Mail):
    """Memory was flushed up to the entry `upto` (empty: nothing was new), or (not `well`) could not be."""

    well: bool
    upto: str = ""


class Compacted(Mail):
    """The result of compaction `run`, made for `generation` of the view; proven again at commit.

    `done` is `None` where an engine that owns compaction has made its own store smaller.
    """

    run: int
    generation: int
    done: Done | None


class CompactionFailed(Mail):
    """Compaction `run` found no summary: the view can't shrink (`hopeless`, `nothing`), its engine sees no
    need (`declined`), it failed now (`unreachable`, `engine`, `crashed`), or it was stopped (`aborted`).
    """

    run: int
    kind: Literal["hopeless", "nothing", "declined", "unreachable", "engine", "crashed", "aborted", "storage"]
    why: str


class Rejoined(Mail):
    """A job that had the session's file to itself is over; `then` names it, `outcome` is the kernel's."""

    then: Callable[[Outcome], None]
    outcome: Outcome


class Truncated(Mail):
    """The truncation worker has a rewritten file ready, or says why not."""

    prepared: Prepared | None
    why: str = ""


# --- what the session hands out -------------------------------------------------------------------


class Snapshot(Mail):
    """An immutable look at the view for one step, or for a worker: nobody asks the session back."""

    key: str
    session_id: str
    file: str
    generation: int
    leaf: str
    items: Items
    decisions: Mapping[str, Decision]
    environment: Environment
    unseen: frozenset[str]
    estimator: Estimator = Estimator()
    pinned: Mapping[str, str] = MappingProxyType({})  # texts by entry that no summary may lose
    running: bool = False
    cache_age: float | None = None  # seconds since a model last read this view; None: never
    refreshed: str = ""  # why the environment was last resolved anew
    delivered: Mapping[str, str] = MappingProxyType({})  # how far engines without a cursor were told


# --- to the workers -------------------------------------------------------------------------------


class Ingest(Mail):
    """The engine is to be told what the snapshot shows and it has not heard yet."""

    snapshot: Snapshot


class AfterTurn(Mail):
    """A turn has ended as `stop` says ("": none has), or a compaction was committed: the engine's hooks."""

    snapshot: Snapshot
    turn: int
    stop: str = ""
    compacted: bool = False


class Flush(Mail):
    """Let memory note what stands behind the entry `after` in the snapshot.

    `reason`: of the compaction that would cover it; `None`: none is under way, all of the view is noted.
    """

    snapshot: Snapshot
    after: str
    reason: Reason | None = None
    slack: float = 0.0  # seconds that it may wait


class Compact(Mail):
    """Make a summary of the snapshot's older part."""

    run: int
    snapshot: Snapshot
    reason: Reason
    instructions: str = ""
    slack: float = 0.0  # seconds that it may wait


class Truncate(Mail):
    """Move what the latest compaction covers into a segment; the session commits the rewritten file."""

    key: str
    held: Held


class Known(Record):
    """What is kept of a session that sleeps: the last turn's number, and how its compactions went."""

    turn: int = 0
    coordinator: Coordinator = FRESH
    kept: tuple[int, int] = (0, 0)  # refreshes of its cached prefix in this rest, and when the last was


# --- how a turn ends ------------------------------------------------------------------------------


class Rested(Mail):
    """The agent rests: its last words, and how it stopped."""

    text: str
    stop: Literal["stop", "length", "error", "overflow", "aborted"]
    error: str | None = None
    overflow: Overflow | None = None
    kind: str = ""  # of an error
    later: float = 0.0  # seconds after which a provider wants to be asked again


class Overflowed(Mail):
    """The view must shrink before the turn can go on; `said_by` is the side that said so.

    `owners` of the tokens, which they sum to. `real` is the size that the provider told of a request that
    measures `request`, `fixed_tokens` of system prompt and tools apart; 0 where it told none.
    """

    tokens: int
    limit: int
    said_by: Literal["guard", "provider"]
    why: str
    owners: tuple[tuple[str, int], ...] = ()
    request: Measure | None = None
    fixed_tokens: int = 0
    real: int = 0


class FellBack(Mail):
    """The model failed for good, and another can go on with the turn."""

    why: str


TurnOutcome: TypeAlias = Rested | Overflowed | FellBack

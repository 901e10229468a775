"""Our own facts in a session file, and what waking a session yields.

Facts ride in an extra field `perdure` of entries we write anyway, in `details.perdure` of compactions,
else in off-chain `custom` entries; all are versioned (`v`), and an older reader refuses a newer one.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from msgspec.structs import replace

from perdure.context.tokens.estimator import Estimator
from perdure.contracts import Letter
from perdure.edges.schedule import Timer
from perdure.edges.session.ids import Epoch
from perdure.edges.session.kin import ALONE, Relatives
from perdure.edges.spend import Amount
from perdure.records import Decision, Items, Pinned, Record

VERSION = 1
NEVER = -1  # in place of an epoch in `resumed`: nobody waits for an answer to that entry
TIMERS = "perdure.timer"  # the sender of letters that timers send; their mid is `<timer>@<due>`
RECENT_IDS = 1024  # redelivered message ids answered from the file itself; older ones from the index


class Origin(Record):
    """Which letter a `message` entry is: the acknowledgement of `(sender, mid)`.

    `owes`: its answer goes out by the session's channel, as this event ("": it does not).
    """

    sender: str
    mid: str
    arrived: int = 0
    owes: str = ""


class Mark(Record):
    """Of an answer that goes out: by which channel, as which event, since when (wall ms).

    `session` is the header's id (a fork sends nothing again). `to` empty: nothing is owed any more.
    """

    to: str = ""
    event: str = ""
    at: int = 0
    session: str = ""


OutboxState: TypeAlias = Literal["waiting", "begun", "sent", "failed", "unknown", "expired", "dropped"]
OVER: Final = frozenset({"sent", "dropped"})  # nothing more is to be known of it


class Outgoing(Record):
    """The answer `entry` on its way out. `tries` were begun; in state `begun` the last has no end on record.

    `failed`, `unknown` and `expired` ones wait for an operator, who retries or drops them.
    """

    entry: str
    to: str
    event: str
    at: int = 0
    tries: int = 0
    state: OutboxState = "waiting"
    why: str = ""

    @property
    def under_way(self) -> bool:
        """Whether something is still to be done about it without being asked."""
        return self.state in ("waiting", "begun")


class Facts(Record):
    """The `perdure` field of one message entry: `e` epoch, `inbox` origin, `decided` decisions, `sent`
    the fingerprint of the request that an answer is to (`context.prefix`).

    `evidence`: hashes of outputs that this entry keeps elsewhere. Only here does a session own a hash: a
    text or an argument that names one may come from anywhere. `learned`: what this answer's usage taught
    about its model's tokens. `out`: the answer goes out. `stand_in`: its model is not the session's choice.
    `spent`: what a subagent's calls used by now.
    """

    epoch: int = 0
    origin: Origin | None = None
    decisions: tuple[Decision, ...] = ()
    evidence: tuple[str, ...] = ()
    sent: str = ""
    learned: Estimator | None = None
    out: Mark | None = None
    stand_in: bool = False
    spent: Amount | None = None


class Settings(Record):
    """What the session runs with, as the latest entries say; `None` means the host's default."""

    provider: str | None = None
    model: str | None = None
    thinking: str = "off"
    engine: str | None = None


class Pending(Record):
    """A letter that is acknowledged and waits: the id of its `perdure.inbox` entry, and the letter."""

    entry: str
    letter: Letter


class Seen(Record):
    """A letter that became the `message` entry `entry` (or still waits in that inbox entry)."""

    sender: str
    mid: str
    entry: str


class Delivered(Record):
    """How far a context engine that keeps no cursor of its own has been told: up to `entry`."""

    engine: str
    entry: str


class Gap(Record):
    """A hole in the chain: `child`'s parent `missing` is nowhere; `bridged_to` stands in for it."""

    child: str
    missing: str
    bridged_to: str | None


class Checkpoint(Record):
    """What the tail of the file can't tell. Written with every compaction and before long sleeps.

    `ranges` are byte ranges `(start, end)` that hold the live path: hints, verified by id on arrival.
    `kept` is the first kept entry of the latest compaction; `None` where nothing is kept (believed only
    if the first range begins with that compaction's line).
    `prev` is the previous compaction's id; of a checkpoint that is no compaction's, the latest one's.
    `compactions` counts the one that carries it. `covered_bytes` lie in the file but are covered.
    `session` is the header's id: a copied file has no part in `pending`, `recent`, `outgoing`,
    `timers`, `delivered`, `relatives`.
    `owes`: as what the running turn's answer goes out ("": not at all).
    """

    v: int = VERSION
    epoch: Epoch = 0
    leaf: str | None = None
    settings: Settings = Settings()
    name: str | None = None
    pending: tuple[Pending, ...] = ()
    recent: tuple[Seen, ...] = ()
    decisions: tuple[Decision, ...] = ()
    learned: tuple[Estimator, ...] = ()
    compactions: int = 0
    prev: str | None = None
    kept: str | None = None
    ranges: tuple[tuple[int, int], ...] = ()
    gaps: tuple[Gap, ...] = ()
    covered_bytes: int = 0
    pins: tuple[Pinned, ...] = ()
    session: str = ""
    outgoing: tuple[Outgoing, ...] = ()
    owes: str = ""
    timers: tuple[Timer, ...] = ()
    delivered: tuple[Delivered, ...] = ()
    relatives: Relatives | None = None


class PathEntry(Record):
    """One entry of the live path: its head, and where its line stands (`start`, `end` without newline)."""

    type: str
    id: str
    parent: str | None
    start: int
    end: int


class Opened(Record):
    """What waking yields. `entries` run from the first kept one to the leaf, configuration included.

    `items` are the decoded view: a leading `Summary` (its entry is the compaction's id) if there is
    one, then the messages. `resumed` lists entries for which an interrupted turn was already resumed,
    as `(entry, epoch)`. `unread`: the view is far beyond the window and its older part was not read.
    A hole is visible in `items`: a `Custom` of kind `perdure.gap` with no entry stands where it is.
    `sent`: the latest answer that carries its request's fingerprint, and that ("" where there is none).
    `unsearched`: so many bytes before what was read were not searched yet for settings, name and
    letters (a file without a checkpoint of ours): `tail.search_older` completes it.
    """

    path: str
    session_id: str
    cwd: str
    version: int
    size: int
    inode: int
    leaf: str | None
    entries: tuple[PathEntry, ...]
    items: Items
    compaction: str | None
    settings: Settings
    name: str | None
    epoch: int
    pending: tuple[Pending, ...]
    recent: tuple[Seen, ...]
    decisions: tuple[Decision, ...]
    learned: tuple[Estimator, ...]
    compactions: int
    covered_bytes: int
    gaps: tuple[Gap, ...] = ()
    pins: tuple[Pinned, ...] = ()
    resumed: tuple[tuple[str, int], ...] = ()
    since_checkpoint: int = 0
    unread: bool = False
    torn: bool = False
    parent_session: str | None = None
    unsearched: int = 0
    sent: tuple[str, str] = ("", "")
    outgoing: tuple[Outgoing, ...] = ()
    owes: str = ""
    timers: tuple[Timer, ...] = ()
    delivered: tuple[Delivered, ...] = ()
    relatives: Relatives = ALONE

    @property
    def searched(self) -> bool:
        """Whether all facts of the file are known."""
        return not self.unsearched


def bare(opened: Opened) -> Opened:
    """What it says of the file alone: a session that has taken the view over keeps no second hold on it."""
    return replace(opened, entries=(), items=(), pending=(), recent=(), decisions=())

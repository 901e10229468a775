"""The seams: what the layers above ask of the layers below, as protocols and frozen results.

Storage and placement seams carry no assumption of one process (letters are plain records, a receipt
means "in the owner's session file"); their single-process forms stand in `edges`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, Protocol, TypeAlias, runtime_checkable

from perdure.records import Assistant, Block, Image, Items, Message, ModelInfo, Record, ToolSpec

if TYPE_CHECKING:  # the pure core imports this module, and no path
    from pathlib import Path

# --- letters and placement ------------------------------------------------------------------------


LetterKind: TypeAlias = Literal["external_user", "inter_session", "internal_system"]


class Letter(Record):
    """A message on its way to a session. `(sender, mid)` makes redelivery free.

    `evidence`: hashes of blobs that the message's entry keeps. `deliver`: whether the answer goes out by
    the session's channel; `None`: where nobody can wait for it, so not a user's own, whose sender can.
    """

    key: str
    sender: str
    mid: str
    content: tuple[Block, ...]
    arrived: int = 0
    kind: LetterKind = "external_user"
    evidence: tuple[str, ...] = ()
    deliver: bool | None = None


class Receipt(Record):
    """The letter is in its owner's session file; `entry` is where. `repeated`: it was there already."""

    key: str
    sender: str
    mid: str
    entry: str
    repeated: bool = False


class Grant(Protocol):
    """One ownership of one shard (a state folder)."""

    @property
    def shard(self) -> int: ...
    @property
    def token(self) -> int:
        """Rises with every ownership; the epoch of lines written under it."""
        ...

    @property
    def clean(self) -> bool:
        """Whether the previous owner released properly."""
        ...

    def valid(self) -> bool:
        """A clock read; never true again once false."""
        ...


class Placement(Protocol):
    """Who owns what."""

    def shard_of(self, key: str) -> int: ...
    def grant(self, shard: int) -> Grant | None: ...
    async def release(self, grant: Grant, *, clean: bool) -> None: ...


class Post(Protocol):
    """Every letter between sessions, tenants and hosts."""

    async def send(self, letter: Letter, deadline: float) -> Receipt: ...


# --- outbound channels ------------------------------------------------------------------------------

Outbound: TypeAlias = Literal["reply", "scheduled", "failed"]


class Delivery(Record):
    """An answer on its way out. `id` is the same for every attempt: a receiver can de-duplicate by it.

    `event`: a `reply` to somebody, a `scheduled` result that only the system asked for, or a turn that
    `failed` (then `error` says why). `at`: wall ms when the answer was written; `attempt` counts from 1.
    """

    id: str
    key: str
    channel: str
    event: Outbound
    text: str
    entry: str
    at: int
    attempt: int = 1
    stop: str = "stop"
    error: str = ""


class Delivered(Record):
    """The receiver has it; `ref` is its own name for it, if it told one."""

    ref: str = ""


@runtime_checkable
class OutboundChannel(Protocol):
    """A way out. Raises `DeliveryFailed`, and nothing else that is not a bug.

    `idempotent`: the receiver does the same `id` once, so an attempt whose end is unknown is repeated.
    """

    @property
    def name(self) -> str: ...
    @property
    def idempotent(self) -> bool: ...
    async def send(self, delivery: Delivery) -> Delivered: ...


# --- session files --------------------------------------------------------------------------------


class Ack(Record):
    """Proof that lines are in the file this owner still holds. `offset` is where the first begins."""

    offset: int
    size: int


class SessionFile(Protocol):
    """The only code that writes a session file or says "acknowledged"."""

    @property
    def path(self) -> Path: ...
    @property
    def epoch(self) -> int: ...
    @property
    def size(self) -> int: ...
    def append(self, lines: Sequence[bytes]) -> Ack:
        """Write whole lines, look again who owns the file, then acknowledge.

        Raises `Fenced` (another owner), `StorageFailed` (cut back, nothing written). Synchronous.
        """
        ...

    def replace(self, build: Callable[[BinaryIO], None]) -> Ack:
        """Rewrite through a temp file, fsync, rename: a new inode. Truncation, repair, take-over."""
        ...

    def close(self, *, handover: bool) -> None: ...


class Blobs(Protocol):
    """Evidence, images and segments: immutable bytes by SHA-256 (hex)."""

    async def put(self, data: bytes) -> str: ...
    async def get(self, digest: str) -> bytes: ...


# --- models ---------------------------------------------------------------------------------------


class Request(Record):
    """One model call, ready for the wire. `body` is the provider's whole JSON body, encoded once."""

    body: bytes
    model: ModelInfo
    tokens: int = 0
    session: str = ""


class TextDelta(Record):
    """More text of the answer."""

    text: str


class ThinkingDelta(Record):
    """More of the model's reasoning."""

    text: str


class CallStarted(Record):
    """The model began to ask for a tool."""

    id: str
    name: str


class Answer(Record):
    """The whole answer, last event of a stream.

    `errors` names calls whose arguments could not be parsed: `(call id, what was wrong)`.
    """

    message: Assistant
    errors: tuple[tuple[str, str], ...] = ()


ModelEvent: TypeAlias = TextDelta | ThinkingDelta | CallStarted | Answer


class Model(Protocol):
    """Streams one answer. Raises `ModelError`, and nothing else that is not a bug."""

    @property
    def info(self) -> ModelInfo: ...
    def stream(self, request: Request) -> AsyncIterator[ModelEvent]: ...


# --- tools ----------------------------------------------------------------------------------------


class ToolOutput(Record):
    """What a tool returns.

    `content` is what the model sees; `details` is JSON for programs, never sent; `full` is the whole
    output where `content` is only its structured summary: it is kept as evidence.
    """

    content: tuple[Block, ...]
    is_error: bool = False
    details: bytes | None = None
    full: bytes | None = None


@runtime_checkable
class Recall(Protocol):
    """Reads back what left the view: covered entries, evidence by hash, segments."""

    async def recall(self, ref: str, start: int, length: int) -> str: ...
    async def images(self, ref: str) -> tuple[Image, ...]: ...
    async def search(self, text: str, limit: int) -> str: ...


class ToolContext(Protocol):
    """What a tool may use: its workspace, the session's own past, and the one I/O policy."""

    @property
    def session(self) -> str: ...
    @property
    def call_id(self) -> str: ...
    @property
    def workspace(self) -> Path: ...
    @property
    def recall(self) -> Recall: ...
    @property
    def virtual(self) -> bool:
        """Time is virtual: no process may be run and no thread awaited."""
        ...

    async def run_blocking(self, work: Callable[[], Any]) -> Any:
        """Run blocking work where the I/O policy wants it (a thread; inline under a virtual clock)."""
        ...


class Tool(Protocol):
    """One tool. Errors a model should read are returned with `is_error`, not raised."""

    @property
    def spec(self) -> ToolSpec: ...
    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput: ...


# --- context engines ------------------------------------------------------------------------------


class EngineInfo(Record):
    """Who an engine is. `owns_compaction` hands compaction over to it wholly; `passive` engines store
    nothing and have no hooks, so that no worker is troubled for them.
    """

    id: str
    name: str
    version: str = "1"
    owns_compaction: bool = False
    passive: bool = False


class Assembled(Record):
    """An engine's answer to `assemble`; `addition` goes just below the cache boundary."""

    messages: Items
    estimated_tokens: int = 0
    addition: str = ""


class EngineCompaction(Record):
    """An engine's answer to `compact`."""

    ok: bool
    compacted: bool
    reason: str = ""
    summary: str = ""
    first_kept: str = ""


class EngineContext(Record):
    """What every engine call is told: which session, its file, and the budget in tokens."""

    session_id: str
    session_key: str
    session_file: str
    token_budget: int


@runtime_checkable
class ContextEngine(Protocol):
    """Required methods. Optional ones, looked up by name: `bootstrap`, `ingest_batch`, `after_turn`,
    `maintain`, `prepare_subagent_spawn`, `on_subagent_ended`, `dispose`.
    """

    @property
    def info(self) -> EngineInfo: ...
    async def ingest(self, context: EngineContext, message: Message) -> bool: ...
    async def assemble(self, context: EngineContext, messages: Items) -> Assembled: ...
    async def compact(
        self, context: EngineContext, delegate: Callable[[], Any], *, force: bool, instructions: str
    ) -> EngineCompaction: ...


# --- compaction: what starts it, what is noted before it ------------------------------------------

CompactionReason: TypeAlias = Literal["overflow", "threshold", "manual", "idle", "size", "model_switch"]


class Pressure(Record):
    """What a compaction trigger decides on. Tokens are those of the unguarded request.

    `moment`: before a step of a turn, after a turn (`rest`), when the session has rested for as long as
    a cache lives (`idle`), when a request did not fit (`overflow`), when a smaller window was chosen.
    """

    moment: Literal["step", "rest", "idle", "overflow", "model_switch"]
    tokens: int
    window: int
    threshold: int
    idle_line: int
    entries: int
    view_bytes: int
    size_entries: int
    size_bytes: int


@runtime_checkable
class CompactionTrigger(Protocol):
    """Says when a session is compacted. Whether one may start then, the coordinator decides alone.

    `wants` is asked by the session itself: it computes from these numbers and waits for nothing.
    `None` on an overflow leaves the overflow to the user; what a person commands isn't asked about.
    """

    def wants(self, pressure: Pressure) -> CompactionReason | None: ...


MemoryFlush: TypeAlias = Callable[["EngineContext", Items], Awaitable[str]]
"""Called with messages that a compaction is about to take out of the view, in order, a part at a time.

What it returns is appended to the day's note of the workspace, and nothing else is changed.
"""

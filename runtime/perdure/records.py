"""What a session is made of: content blocks, messages, items of a view, usage.

All records are frozen, acyclic and untracked by the garbage collector (`gc=False`): a host holds
hundreds of thousands of them, and tracked ones cost 150-280 ms pauses. Fields are therefore only
str, int, bytes, bool, None, and tuples or records of such. JSON that we only carry stays encoded.
The shapes are those of the pi/OpenClaw session format, version 3.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, dataclass_transform

from msgspec import Struct

Stop: TypeAlias = Literal["stop", "length", "toolUse", "error", "aborted"]


@dataclass_transform(frozen_default=True)
class Record(Struct, frozen=True, gc=False):
    """Base of all records: immutable, compared by value, invisible to the collector."""


# --- content blocks -------------------------------------------------------------------------------


class Text(Record):
    """A piece of text. `signature` is a provider's own mark on it, if any."""

    text: str
    signature: str | None = None


class Thinking(Record):
    """A reasoning block; `signature` proves to its provider that it is unchanged.

    `redacted` blocks carry opaque data in `signature` and no readable text.
    """

    thinking: str
    signature: str | None = None
    redacted: bool = False


class Kept(Record):
    """Where the bytes of an image are, when not in its entry: the blob `digest` (SHA-256, hex).

    What a request needs to know of them beforehand: pixels (0: not told) and `size` in bytes.
    """

    digest: str
    width: int = 0
    height: int = 0
    size: int = 0


class Image(Record):
    """An image as base64 text, as the format stores it; `data` is empty until `kept` bytes are read."""

    data: str
    mime: str
    kept: Kept | None = None


class ToolCall(Record):
    """A call the model asked for. `arguments` is the JSON text of an object (`b"{}"` if none)."""

    id: str
    name: str
    arguments: bytes = b"{}"
    signature: str | None = None


class Opaque(Record):
    """A block of a type we do not know, kept as JSON; it is never sent to a model."""

    kind: str
    raw: bytes


Block: TypeAlias = Text | Thinking | Image | ToolCall | Opaque


# --- usage ----------------------------------------------------------------------------------------


class Usage(Record):
    """Tokens of one model call. `input` excludes what was read from or written to the cache."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cost_usd: float = 0.0

    @property
    def prompt(self) -> int:
        """All tokens of the prompt, however they were billed."""
        return self.input + self.cache_read + self.cache_write

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input + other.input,
            self.output + other.output,
            self.cache_read + other.cache_read,
            self.cache_write + other.cache_write,
            self.cost_usd + other.cost_usd,
        )


# --- messages -------------------------------------------------------------------------------------


class Provenance(Record):
    """Where a user message came from, when not simply from the user (`kind` as in the format)."""

    kind: str
    source_session: str | None = None
    source_channel: str | None = None
    source_tool: str | None = None


class User(Record):
    """What somebody said to the agent. A plain string in the file is one `Text` here."""

    content: tuple[Block, ...]
    timestamp: int = 0
    provenance: Provenance | None = None


class Assistant(Record):
    """What the model answered, and how that call ended."""

    content: tuple[Block, ...]
    stop: Stop = "stop"
    provider: str = ""
    api: str = ""
    model: str = ""
    usage: Usage | None = None
    error: str | None = None
    timestamp: int = 0


class ToolResult(Record):
    """The outcome of one call. `details` is JSON that must never reach a model."""

    call_id: str
    tool: str
    content: tuple[Block, ...]
    is_error: bool = False
    details: bytes | None = None
    timestamp: int = 0


class Summary(Record):
    """Stands for everything a compaction covered (role `compactionSummary`)."""

    summary: str
    tokens_before: int = 0
    timestamp: int = 0


class BranchSummary(Record):
    """Stands for a branch that was left behind."""

    summary: str
    from_id: str = ""
    timestamp: int = 0


class Bash(Record):
    """A command the user ran beside the agent (role `bashExecution`)."""

    command: str
    output: str
    exit_code: int | None = None
    cancelled: bool = False
    truncated: bool = False
    full_output_path: str | None = None
    excluded: bool = False
    timestamp: int = 0


class Custom(Record):
    """A message an extension put in; the model sees it as the user's."""

    kind: str
    content: tuple[Block, ...]
    display: bool = True
    timestamp: int = 0


Message: TypeAlias = User | Assistant | ToolResult | Summary | BranchSummary | Bash | Custom


class Item(Record):
    """One message of a view and the entry it stands for (`""` for what the pipeline made up)."""

    entry: str
    message: Message


Items: TypeAlias = tuple[Item, ...]


# --- decisions and the ledger ---------------------------------------------------------------------

Form: TypeAlias = Literal[
    "shortened", "trimmed", "placeholder", "pruned", "synthesised", "limit", "renamed"
]  # fmt: skip
Fate: TypeAlias = Literal["in", "shortened", "placeholder", "pruned", "covered", "left_out", "synthesised"]


class Decision(Record):
    """What was done to one entry when it was first sent; kept, so that it is never decided twice.

    `key` is an entry id; `call:<assistant entry id>:<n>` for the result made up for the n-th call of
    that entry; or `limit` for the first entry the history limit lets through (then in `value`).
    `head` and `tail` are the characters kept of a shortened text.
    """

    key: str
    form: Form
    head: int = 0
    tail: int = 0
    value: str = ""


class LedgerLine(Record):
    """What became of one entry in one request, and which rule of ours decided it."""

    entry: str
    decision: Fate
    rule: str
    tokens: int = 0
    zone: Literal["stable", "dynamic", "tail"] = "stable"


PinKind: TypeAlias = Literal["instruction", "task", "correction", "request"]
"""What users mark, and `request`: what a running turn was asked and its view has covered."""


class Pinned(Record):
    """One pin. `id` is the entry that recorded it, `source` the message the text was taken from, if any."""

    id: str
    text: str
    kind: PinKind = "instruction"
    source: str = ""


# --- models and tools as data ---------------------------------------------------------------------


class ModelInfo(Record):
    """A model as the runtime needs to know it; sizes in tokens, prices in USD per million tokens."""

    provider: str
    id: str
    api: str = "anthropic-messages"
    window: int = 200_000
    max_output: int = 32_000
    caching: bool = True
    cache_minimum: int = 1024
    thinking: Literal["none", "enabled", "adaptive"] = "none"
    images: bool = True
    price_input: float = 3.0
    price_output: float = 15.0

    @property
    def ref(self) -> str:
        """`provider/id`, as configuration and commands name it."""
        return f"{self.provider}/{self.id}"


class ToolSpec(Record):
    """A tool as the model sees it. `schema` is the JSON text of its input schema (an object)."""

    name: str
    description: str
    schema: bytes
    summary: str = ""

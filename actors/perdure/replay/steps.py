"""The records of a scenario: a header, then steps in file order (the format: scenarios/README.md).

Rule of the grammar: a user, command or heartbeat step opens a turn; `model` and `tool` steps below it are
what the model answers and tools return in that turn, in order. `at` is seconds since the start.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Raw

from perdure.records import Record, Stop

VERSION = 1
DEFAULT_SESSION = "agent:main:cli:dm:local"
MODEL_LATENCY = 2.0  # seconds a scripted model takes, where the step doesn't say
TOOL_LATENCY = 0.5

When: TypeAlias = Literal["rest", "due", "during", "after"]
Fault: TypeAlias = Literal[
    "rate_limit", "overloaded", "overloaded_midway", "server", "overflow", "cut", "stall",
    "malformed_arguments", "empty", "refusal", "auth", "billing",
]  # fmt: skip
Kind: TypeAlias = Literal["log", "json", "code", "prose", "cjk", "base64"]
Count: TypeAlias = int | str


class _Form(Record, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What all records of the file share: unknown keys are refused, defaults are not written."""


class Generate(_Form):
    """A text made from these numbers instead of written out; `head` and `tail` are inside `chars`."""

    kind: Kind
    chars: int
    seed: int = 0
    head: str = ""
    tail: str = ""


class Call(_Form):
    """A tool call. `arguments` is an object, or a string that is sent as it is (to be malformed)."""

    name: str
    arguments: Raw = Raw(b"{}")
    id: str = ""


class _Part(_Form, rename="camel", tag_field="type"):
    """A block in the session format's own shape, so that a recording is carried as is."""


class TextPart(_Part, kw_only=True, tag="text"):
    """A text block."""

    text: str
    text_signature: str | None = None


class ImagePart(_Part, kw_only=True, tag="image"):
    """An image, base64."""

    data: str
    mime_type: str


class ThinkingPart(_Part, kw_only=True, tag="thinking"):
    """A reasoning block."""

    thinking: str
    thinking_signature: str | None = None
    redacted: bool = False


class CallPart(_Part, kw_only=True, tag="toolCall"):
    """A tool call."""

    id: str
    name: str
    arguments: Raw = Raw(b"{}")
    thought_signature: str | None = None


Part: TypeAlias = TextPart | ImagePart | ThinkingPart | CallPart
Parts: TypeAlias = tuple[Part, ...]


class Header(_Form):
    """The first line. `start` is epoch ms; `tools` "default" or names; `model` is `provider/id`.

    Tools that the script calls are always offered, also where they are not of the default set.
    """

    name: str
    scenario: int = VERSION
    description: str = ""
    window: int = 200_000
    model: str = "scripted/scripted"
    thinking: str = "off"
    engine: str = "legacy"
    seed: int = 0
    start: int = 0
    cwd: str = ""
    runtime: str = ""
    tools: Literal["default"] | tuple[str, ...] = "default"


class _Step(_Form, tag_field="do"):
    note: str = ""


class _Timed(_Step):
    at: float | None = None
    when: When | None = None


class UserStep(_Timed, tag="user", kw_only=True):
    """Somebody speaks. A repeated `id` of one sender is the same message delivered again."""

    session: str = DEFAULT_SESSION
    text: str | None = None
    generate: Generate | None = None
    content: Parts | None = None
    sender: str = "user"
    id: str = ""
    kind: Literal["external_user", "inter_session", "internal_system"] = "external_user"


class HeartbeatStep(_Timed, tag="heartbeat", kw_only=True):
    """The session's timer fires; `text` replaces the usual heartbeat prompt."""

    session: str = DEFAULT_SESSION
    text: str | None = None


class CommandStep(_Timed, tag="command", kw_only=True):
    """A slash command, as typed in a chat."""

    text: str
    session: str = DEFAULT_SESSION


class AbortStep(_Timed, tag="abort", kw_only=True):
    """The running turn is aborted; without a time, in the middle of the model or tool step above."""

    session: str = DEFAULT_SESSION


class ModelChangeStep(_Timed, tag="model_change", kw_only=True):
    """The session goes on with another model, perhaps of another window."""

    model: str
    window: int | None = None
    session: str = DEFAULT_SESSION


class ThinkingStep(_Timed, tag="thinking", kw_only=True):
    """The session's thinking level changes."""

    level: str
    session: str = DEFAULT_SESSION


class BashStep(_Timed, tag="bash", kw_only=True):
    """The user runs a command beside the agent; its output is `text` or generated."""

    command: str
    text: str | None = None
    generate: Generate | None = None
    exit_code: int | None = 0
    cancelled: bool = False
    excluded: bool = False
    session: str = DEFAULT_SESSION


class FileStep(_Timed, tag="file", kw_only=True):
    """A file of the workspace is written (a bootstrap file, a note, something to read)."""

    path: str
    text: str | None = None
    generate: Generate | None = None


class CrashStep(_Timed, tag="crash", kw_only=True):
    """The process is killed and started again after `down` seconds."""

    down: float = 0.0


class RestartStep(_Timed, tag="restart", kw_only=True):
    """The host is closed properly and started again after `down` seconds."""

    down: float = 0.0


class WaitStep(_Timed, tag="wait", kw_only=True):
    """Nothing but time passes, until `at`."""


class ModelStep(_Step, tag="model", kw_only=True):
    """What the model answers next in this turn.

    `fault` fails this request and may be retried (the retry takes the next model step); `stop` "error" or
    "aborted" with `error` is a recorded outcome, the turn's last. `content` is exact blocks instead.
    """

    session: str = DEFAULT_SESSION
    text: str | None = None
    generate: Generate | None = None
    thinking: str | None = None
    calls: tuple[Call, ...] = ()
    content: Parts | None = None
    stop: Stop | None = None
    error: str | None = None
    fault: Fault | None = None
    retry_after: float | None = None
    latency: float = MODEL_LATENCY


class ToolStep(_Step, tag="tool", kw_only=True):
    """What a tool returns: for the call `id`, else for the next call of `name`, else for the next call."""

    session: str = DEFAULT_SESSION
    name: str = ""
    id: str = ""
    text: str | None = None
    generate: Generate | None = None
    content: Parts | None = None
    error: bool = False
    latency: float = TOOL_LATENCY


class ExpectStep(_Timed, tag="expect", kw_only=True):
    """What must hold here. Counts: 3, ">=3", "<=3" or "2..5"; without a session they add up over all.

    Texts: `reply` is in the last reply, `visible` in the last request, `findable` there or by recall.
    """

    session: str | None = None
    reply: str | None = None
    stop: str | None = None
    visible: str | None = None
    hidden: str | None = None
    findable: str | None = None
    turns: Count | None = None
    steps: Count | None = None
    requests: Count | None = None
    refused: Count | None = None
    compactions: Count | None = None
    truncations: Count | None = None
    overflows: Count | None = None
    errors: Count | None = None
    entries: Count | None = None
    tool_runs: Count | None = None
    largest: Count | None = None
    lost: Count | None = None
    unused: Count | None = None
    unscripted: Count | None = None


Opening: TypeAlias = UserStep | HeartbeatStep | CommandStep
Timed: TypeAlias = (
    Opening | AbortStep | ModelChangeStep | ThinkingStep | BashStep | FileStep | CrashStep | RestartStep
    | WaitStep | ExpectStep
)  # fmt: skip
Step: TypeAlias = Timed | ModelStep | ToolStep


class Scenario(Record):
    """A header and its steps, checked."""

    header: Header
    steps: tuple[Step, ...] = ()

    @property
    def sessions(self) -> tuple[str, ...]:
        """The keys it speaks of, in order of first appearance."""
        keys = (getattr(step, "session", None) for step in self.steps)
        return tuple(dict.fromkeys(key for key in keys if key))


def moment(step: Timed) -> When:
    """When a step fires: "due" at its time, "rest" once its session rests (and not before its time),
    "during" or "after" the model or tool step above it.
    """
    if step.when is not None:
        return step.when
    if step.at is not None:
        return "due"
    return "during" if isinstance(step, AbortStep) else "rest"

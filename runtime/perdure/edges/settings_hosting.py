"""What can be configured of hosting: the process, its tenants, the server. Part of `Settings`."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta

from perdure.records import Record

Count: TypeAlias = Annotated[int, Meta(ge=0)]
Positive: TypeAlias = Annotated[int, Meta(ge=1)]
Seconds: TypeAlias = Annotated[float, Meta(gt=0, le=86_400)]
Money: TypeAlias = Annotated[float, Meta(ge=0, le=1_000_000)]
Weight: TypeAlias = Annotated[float, Meta(ge=0.01, le=100)]


class HostSettings(Record):
    """`[host]`: limits of one process. `awake`: sessions kept in memory; `workers`: compactions at once.

    A session that breaks more than `session_crashes` times a minute is parked; a message that breaks it
    `message_tries` times is parked alone.

    `durability`: what an acknowledgement survives, a killed process (fsync follows within a second) or a
    power cut (synced before it, through a journal in segments of `journal_mb`). `memory_mb`: resident memory
    of the process, which sessions may own but for what it takes by itself. 0: 60 % of what the cgroup allows,
    or of what the machine has available at the start.
    """

    awake: Positive = 1_024
    memory_mb: Count = 0
    workers: Positive = 4
    mailbox: Positive = 64
    session_crashes: Positive = 5
    message_tries: Positive = 2
    tool_timeout_seconds: Seconds = 600.0
    force_network_fs: bool = False
    durability: Literal["process", "power"] = "process"
    journal_mb: Annotated[int, Meta(ge=1, le=4_096)] = 64


class OutboundSettings(Record):
    """`[outbound.<name>]`: a way out for answers that no caller awaits.

    It serves `sessions` (globs of keys), else keys that name it as their channel
    (`agent:<agent>:<name>:…`), else all of `agents`. `url`: where a webhook is posted, signed with the
    secret in the environment variable `secret_env`; an address that is not public is refused unless
    `allow_private`. `deduplicates` false: the receiver can't tell a repeated id. `workers`: attempts at
    once. What is older than `max_age_hours` is not sent any more.
    """

    name: str
    type: Literal["webhook"] = "webhook"
    url: str = ""
    secret_env: str = ""
    sessions: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    events: tuple[Literal["reply", "scheduled", "failed"], ...] = ("reply", "scheduled", "failed")
    allow_private: bool = False
    deduplicates: bool = True
    timeout_seconds: Annotated[float, Meta(gt=0, le=300)] = 20.0
    workers: Positive = 4
    max_age_hours: Annotated[float, Meta(gt=0, le=168)] = 72.0


class TenantSettings(Record):
    """`[tenants.<name>]`: a token of the HTTP API, and the agents whose sessions it may use.

    `agents` are names as in `agent:<name>:…`. The token is in the environment variable `token_env`, or
    only its SHA-256 (hex) is known. `operator`: may use every session and what concerns the host. An agent
    that no tenant names is its own tenant, without a token. `weight`: its share of what all wait for.
    Zero takes what `[limits]` says for every tenant.
    """

    name: str
    agents: tuple[str, ...] = ()
    token_env: str = ""
    token_sha256: str = ""
    operator: bool = False
    weight: Weight = 1.0
    usd_per_day: Money = 0.0
    tokens_per_day: Count = 0
    messages_per_minute: Count = 0


class LimitSettings(Record):
    """`[limits]`: what one tenant, sender or session may use; zero is no limit.

    A day begins at midnight of `zone`. Tokens are those of prompts and answers, cached or not. A minute's
    messages may come at once. `tools_at_once`: calls of one tool that a tenant may have running.
    """

    tenant_usd_per_day: Money = 0.0
    tenant_tokens_per_day: Count = 0
    session_usd_per_day: Money = 0.0
    session_tokens_per_day: Count = 0
    zone: str = "UTC"
    tenant_messages_per_minute: Count = 0
    sender_messages_per_minute: Count = 0
    session_messages_per_minute: Count = 0
    tools_at_once: Positive = 32


class SubagentSettings(Record):
    """`[subagents]`: whether agents may begin child sessions (`sessions_spawn` …), and what those may use.

    `max_depth` of a child below its root; `max_children` that one session has open, `max_total` all of the
    host. A child ends after `timeout_seconds`, whatever it does; `tokens` and `usd` are its grant where the
    call asks for none (0: no limit of its own); a call may ask for less time and more or less of the others,
    never for more than its parent has left. `context_tokens`: of a projected context. `archive_minutes`: a
    child that ended is deleted so long after its end (0: never).
    """

    enabled: bool = False
    max_depth: Annotated[int, Meta(ge=1, le=64)] = 1
    max_children: Positive = 5
    max_total: Positive = 64
    timeout_seconds: Seconds = 3_600.0
    tokens: Count = 0
    usd: Money = 0.0
    context_tokens: Positive = 4_000
    archive_minutes: Annotated[float, Meta(ge=0, le=5_256_000)] = 0.0


class RetentionSettings(Record):
    """`[retention]`: what a state folder keeps; zero keeps everything, and so is every default.

    `max_sessions` per agent, the oldest go; `max_age_days` since a session's last change; `max_total_mb` of
    all sessions with their segments. `segment_*`: what truncation moved out. `evidence_mb`: evidence that no
    session refers to goes. What goes is archived first; `archive_*` ends archives, `log_days` rotated logs.
    `every_hours`: how often a running host looks.
    """

    max_sessions: Count = 0
    max_age_days: Count = 0
    max_total_mb: Count = 0
    segment_days: Count = 0
    segment_mb: Count = 0
    evidence_mb: Count = 0
    archive_days: Count = 0
    archive_mb: Count = 0
    log_days: Count = 0
    every_hours: Annotated[int, Meta(ge=1, le=8_760)] = 24

    @property
    def anything(self) -> bool:
        """Whether any rule is set."""
        return any(getattr(self, name) for name in self.__struct_fields__ if name != "every_hours")


class ServerSettings(Record):
    """`[server]`: the HTTP API of `perdure serve`, and its limits.

    `public_hosts`: names in the `Host` header that are answered beside the address itself (of a proxy in
    front). `origins`: browser origins that may call (`https://app.example.org`); none by default.
    `streams`: event streams of one tenant at once; `stream_kib`: what may wait for one slow reader.
    `stall_seconds`: how long a peer may take nothing of an answer, or send nothing of a request.
    `drain_seconds`: what running turns get to end in when the host is told to stop.
    """

    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65_535)] = 8787
    public_hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    max_body_mb: Annotated[int, Meta(ge=1, le=1_024)] = 16
    max_requests: Positive = 8_192
    streams: Positive = 4_096
    stream_kib: Annotated[int, Meta(ge=16)] = 1_024
    heartbeat_seconds: Seconds = 15.0
    stall_seconds: Seconds = 30.0
    drain_seconds: Annotated[float, Meta(ge=0, le=3_600)] = 30.0


class MemorySettings(Record):
    """`[memory]`: what the host does with the memory that fills `[plugins.slots] memory`.

    `flush`: a silent turn notes what a compaction will take away (unset: where there is a memory). `recall`:
    `auto` shows what the memory finds for each user message, at most `recall_chars` characters of it, found
    within `recall_ms` milliseconds; each change of it costs the cached conversation behind it.
    """

    flush: bool | None = None
    recall: Literal["off", "auto"] = "off"
    recall_chars: Annotated[int, Meta(ge=100, le=100_000)] = 2_000
    recall_ms: Annotated[int, Meta(ge=1, le=60_000)] = 500


class TracingSettings(Record):
    """`[tracing]`: OpenTelemetry. `endpoint`: where spans are posted (`http://127.0.0.1:4318/v1/traces`).

    `session_keys`: tell them as they are, and not only a hash.
    """

    enabled: bool = True
    endpoint: str = ""
    session_keys: bool = False

"""What can be configured of hosting: the process, its tenants, the server. Part of `Settings`."""

from __future__ import annotations

from typing import Annotated, TypeAlias

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
    """

    awake: Positive = 1_024
    workers: Positive = 4
    mailbox: Positive = 64
    session_crashes: Positive = 5
    message_tries: Positive = 2
    tool_timeout_seconds: Seconds = 600.0
    force_network_fs: bool = False


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

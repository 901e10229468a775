"""What can be configured of hosting: the process, its tenants, the server. Part of `Settings`."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta

from perdure.records import Record

Count: TypeAlias = Annotated[int, Meta(ge=0)]
Positive: TypeAlias = Annotated[int, Meta(ge=1)]
Seconds: TypeAlias = Annotated[float, Meta(gt=0, le=86_400)]


class HostSettings(Record):
    """`[host]`: limits of one process. `awake`: sessions kept in memory; `workers`: compactions at once."""

    awake: Positive = 1_024
    workers: Positive = 4
    mailbox: Positive = 64
    tool_timeout_seconds: Seconds = 600.0
    force_network_fs: bool = False


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
    that no tenant names is its own tenant, without a token.
    """

    name: str
    agents: tuple[str, ...] = ()
    token_env: str = ""
    token_sha256: str = ""
    operator: bool = False

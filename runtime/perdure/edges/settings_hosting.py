"""What can be configured of hosting: the process, its tenants, the server. Part of `Settings`."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta

from perdure.records import Record

Count: TypeAlias = Annotated[int, Meta(ge=0)]
Positive: TypeAlias = Annotated[int, Meta(ge=1)]
Seconds: TypeAlias = Annotated[float, Meta(gt=0, le=86_400)]


class HostSettings(Record):
    """`[host]`: limits of one process. `awake`: sessions kept in memory; `workers`: compactions at once.

    `durability`: what an acknowledgement survives, a killed process (fsync follows within a second) or a
    power cut (synced before it, through a journal in segments of `journal_mb`).
    """

    durability: Literal["process", "power"] = "process"
    journal_mb: Annotated[int, Meta(ge=1, le=4_096)] = 64
    awake: Positive = 1_024
    workers: Positive = 4
    mailbox: Positive = 64
    tool_timeout_seconds: Seconds = 600.0
    force_network_fs: bool = False


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

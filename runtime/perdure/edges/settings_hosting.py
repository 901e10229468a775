"""What can be configured of hosting: the process, its tenants, the server. Part of `Settings`."""

from __future__ import annotations

from typing import Annotated, TypeAlias

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


class TracingSettings(Record):
    """`[tracing]`: OpenTelemetry. `endpoint`: where spans are posted (`http://127.0.0.1:4318/v1/traces`).

    `session_keys`: tell them as they are, and not only a hash.
    """

    enabled: bool = True
    endpoint: str = ""
    session_keys: bool = False

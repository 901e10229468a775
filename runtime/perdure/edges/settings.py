"""What can be configured: frozen records that are at once the schema, the defaults and the result.

A table of named things (`[channels.telegram]`) is a tuple of records with a `name`; a table of free
text (`env`) is a tuple of pairs. OpenClaw's camelCase is accepted for every key.
Zero means "the built-in rule" where a number is derived from the model's window.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

from perdure.edges.settings_hosting import (
    Count,
    HostSettings,
    LimitSettings,
    MemorySettings,
    OutboundSettings,
    Positive,
    RetentionSettings,
    Seconds,
    ServerSettings,
    SubagentSettings,
    TenantSettings,
    TracingSettings,
)
from perdure.edges.settings_timers import (
    AgentHeartbeat,
    HeartbeatSettings,
    ScheduleSettings,
    TimerSettings,
)
from perdure.records import Record

Share: TypeAlias = Annotated[float, Meta(gt=0, le=1)]
Price: TypeAlias = Annotated[float, Meta(ge=0, le=100_000)]
Pairs: TypeAlias = tuple[tuple[str, str], ...]
Thinking: TypeAlias = Literal["off", "minimal", "low", "medium", "high"]


class ListedModel(Record):
    """`[models.providers.<provider>.models."<id>"]`: what is known of one model; zero: as its provider's."""

    name: str
    window: Count = 0
    max_output: Count = 0
    images: bool | None = None
    thinking: bool | None = None
    price_input: Price | None = None
    price_output: Price | None = None


class ProviderSettings(Record):
    """`[models.providers.<name>]`: a server of models and where it listens; known ones may be changed.

    `key_env` names the environment variable that holds the key (unset: `<NAME>_API_KEY`, if it is there).
    `window`, `max_output` (tokens), `images`, `thinking` and prices (USD per million tokens) hold for its
    models unless a model says otherwise. `concurrency` zero: as `[models]` says.
    """

    name: str
    base_url: str = ""
    api: Literal["", "openai-completions", "openai-responses", "anthropic-messages"] = ""
    key_env: str = ""
    window: Count = 0
    max_output: Count = 0
    images: bool | None = None
    thinking: bool | None = None
    price_input: Price | None = None
    price_output: Price | None = None
    concurrency: Count = 0
    models: tuple[ListedModel, ...] = ()


class ModelSettings(Record):
    """`[models]`: which model answers and how calls are retried. `window` overrides the model's own.

    `concurrency`: calls that one provider is asked for at once; `waiting`: turns of one tenant that may wait
    for it, each at most `queue_seconds`. `fallback`: who answers, in this order, where the model fails for
    good; it is left alone for `cooldown_seconds` then.
    """

    default: str = ""
    fallback: tuple[str, ...] = ()
    cooldown_seconds: Seconds = 300.0
    window: Annotated[int, Meta(ge=0, le=100_000_000)] = 0
    max_tokens: Count = 0
    thinking: Thinking = "off"
    cache: Literal["none", "short", "long"] = "short"
    retries: Annotated[int, Meta(ge=0, le=20)] = 4
    timeout_seconds: Seconds = 600.0
    idle_timeout_seconds: Seconds = 60.0
    concurrency: Positive = 256
    waiting: Positive = 1_024
    queue_seconds: Seconds = 900.0
    providers: tuple[ProviderSettings, ...] = ()


class CompactionSettings(Record):
    """`[compaction]`: when the history is summarised, and by which rules."""

    trigger: Literal["auto", "manual"] = "auto"
    model: str = ""
    threshold_tokens: Count = 0
    keep_tokens: Count = 0
    identifier_policy: Literal["strict", "off", "custom"] = "strict"
    identifier_instructions: str = ""
    instructions: str = ""
    idle: bool = True
    max_entries: Positive = 5_000
    max_mb: Positive = 8
    truncate: bool = True
    truncate_mb: Positive = 2
    timeout_seconds: Seconds = 900.0


class GuardSettings(Record):
    """`[guard]`: the guard's three lines as shares of the window; evidence in KiB of text."""

    total: Share = 0.75
    overflow: Share = 0.9
    single: Share = 0.5
    evidence_kib: Positive = 256


class ImageSettings(Record):
    """`[images]`: the longer side, in pixels, that a picture is scaled to before it is stored."""

    max_side: Annotated[int, Meta(ge=64, le=8_000)] = 1_568


class PruningSettings(Record):
    """`[pruning]`: trimming of old tool results when the cache is cold.

    `allow_tools` and `deny_tools` are globs of tool names: with any allowed only those are pruned, deny wins.
    """

    mode: Literal["auto", "on", "off"] = "auto"
    ttl_seconds: Seconds = 300.0
    keep_last_assistants: Count = 3
    soft_trim_ratio: Share = 0.3
    hard_clear_ratio: Share = 0.5
    hard_clear: bool = True
    min_chars: Count = 50_000
    soft_chars: Positive = 4_000
    head_chars: Count = 1_500
    tail_chars: Count = 1_500
    allow_tools: tuple[str, ...] = ()
    deny_tools: tuple[str, ...] = ()


class CacheSettings(Record):
    """`[cache]`: the provider's prompt cache (`models.cache` says how long it lives).

    `watch`: name what breaks it. `keep_alive = "auto"`: a resting session's prefix is refreshed, at most
    `max_refreshes` times in one rest, while its rhythm makes that cheaper than writing it again.
    """

    watch: bool = True
    keep_alive: Literal["off", "auto"] = "off"
    max_refreshes: Positive = 11


class DirectSettings(Record):
    """`[channels.<name>.dms.<peer>]`: one direct message's own limit, in user turns."""

    name: str
    history_limit: Count | None = None


class ChannelSettings(Record):
    """`[channels.<name>]`: how many user turns of history a model sees; unset is unlimited."""

    name: str
    history_limit: Count | None = None
    dm_history_limit: Count | None = None
    dms: tuple[DirectSettings, ...] = ()


class ExecSettings(Record):
    """`[tools.exec]`: off unless allowed. `ask` needs somebody to ask; `-m` asks nobody, so refuses.

    `allow` patterns name a command or its beginning (`git`, `git status`, `make *`); with any, nothing
    else runs and no shell is used. `deny` wins over `allow`. `pass_env` names variables kept although
    their name or value looks like a secret. Zero switches a limit off.
    """

    mode: Literal["off", "ask", "on"] = "off"
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    timeout_seconds: Seconds = 120.0
    max_timeout_seconds: Seconds = 1_800.0
    cpu_seconds: Count = 1_800
    memory_mb: Count = 0
    file_mb: Count = 1_024
    open_files: Count = 1_024
    output_mb: Annotated[int, Meta(ge=1, le=256)] = 16
    pass_env: tuple[str, ...] = ()


class ToolSettings(Record):
    """`[tools]`: which tools are offered (`allow` empty: all), and where they work.

    `approve`: globs of tools that run only after a person allowed it, asked for `approval_seconds` at most.
    """

    workspace: str = ""
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    approve: tuple[str, ...] = ()
    approval_seconds: Seconds = 600.0
    exec: ExecSettings = ExecSettings()


class McpSettings(Record):
    """`[mcp.<name>]`: one server, started as `command` (stdio) or reached at `url` (streamable HTTP)."""

    name: str
    command: str = ""
    args: tuple[str, ...] = ()
    env: Pairs = ()
    cwd: str = ""
    url: str = ""
    headers: Pairs = ()
    enabled: bool = True
    connect_seconds: Seconds = 30.0
    timeout_seconds: Seconds = 120.0
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


class SlotSettings(Record):
    """`[plugins.slots]`: which plugin fills a slot (`contextEngine` is accepted too).

    `memory` empty: `memory-core`; none where the program brings its own tools and names no memory.
    `compaction_trigger` empty: what `[compaction] trigger` says.
    """

    context_engine: str = "legacy"
    memory: str = ""
    compaction_trigger: str = ""


class PluginOptions(Record):
    """`[plugins.config.NAME]`: a plugin's own keys, as a JSON object; only the plugin knows them."""

    name: str
    values: bytes = b"{}"


class PluginSettings(Record):
    """`[plugins]`: `strict` refuses a missing or broken engine instead of falling back to legacy.

    `shadow`: an engine that assembles beside the chosen one, on `shadow_share` of the requests, and whose
    answers are compared and never sent ("": none). `deadline_seconds`: of each call of a plugin.
    """

    slots: SlotSettings = SlotSettings()
    strict: bool = False
    shadow: str = ""
    shadow_share: Share = 1.0
    deadline_seconds: Seconds = 30.0
    config: tuple[PluginOptions, ...] = ()

    def options(self, name: str) -> dict[str, Any]:
        """What the configuration says to the plugin `name`."""
        found = next((each.values for each in self.config if each.name == name), b"{}")
        table: dict[str, Any] = msgspec.json.decode(found)
        return table


class PromptSettings(Record):
    """`[prompt]`: the system prompt. `override` replaces all of it; caps are in characters."""

    override: str = ""
    documentation: str = ""
    bootstrap_max_chars: Positive = 20_000
    bootstrap_total_max_chars: Positive = 150_000
    knowledge_share: Annotated[float, Meta(ge=0, le=0.1)] = 0.08
    skills: bool = True


class AgentSettings(Record):
    """`[agents.<name>]`: what one agent has of its own; empty takes the general setting."""

    name: str
    workspace: str = ""
    model: str = ""
    fallback: tuple[str, ...] | None = None
    thinking: Thinking | None = None
    identity: str = ""
    heartbeat: AgentHeartbeat = AgentHeartbeat()


class LogSettings(Record):
    """`[log]`: `<state>/runtime.log`, rotated at `max_mb`, with `keep` old files."""

    level: Literal["debug", "info", "warning", "error", "off"] = "info"
    max_mb: Positive = 16
    keep: Annotated[int, Meta(ge=0, le=100)] = 3


class Settings(Record):
    """The whole configuration."""

    host: HostSettings = HostSettings()
    tenants: tuple[TenantSettings, ...] = ()
    retention: RetentionSettings = RetentionSettings()
    outbound: tuple[OutboundSettings, ...] = ()
    limits: LimitSettings = LimitSettings()
    subagents: SubagentSettings = SubagentSettings()
    server: ServerSettings = ServerSettings()
    tracing: TracingSettings = TracingSettings()
    models: ModelSettings = ModelSettings()
    compaction: CompactionSettings = CompactionSettings()
    guard: GuardSettings = GuardSettings()
    images: ImageSettings = ImageSettings()
    pruning: PruningSettings = PruningSettings()
    cache: CacheSettings = CacheSettings()
    channels: tuple[ChannelSettings, ...] = ()
    tools: ToolSettings = ToolSettings()
    mcp: tuple[McpSettings, ...] = ()
    plugins: PluginSettings = PluginSettings()
    memory: MemorySettings = MemorySettings()
    heartbeat: HeartbeatSettings = HeartbeatSettings()
    timers: TimerSettings = TimerSettings()
    schedules: tuple[ScheduleSettings, ...] = ()
    prompt: PromptSettings = PromptSettings()
    agents: tuple[AgentSettings, ...] = ()
    log: LogSettings = LogSettings()

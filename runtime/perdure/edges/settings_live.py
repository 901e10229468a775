"""Which settings a running host takes over when its configuration is read again, and which wait for a start.

One row for each leaf, or for a whole table: the longest that fits decides. A reason is a restart; "" is live.
What shapes a prompt is live for a session from its next new prompt on (waking, a cold cache, `/model`).
"""

from __future__ import annotations

from typing import TypeVar

from msgspec.structs import replace

from perdure.edges.settings import Settings
from perdure.records import Record

LIVE = ""
TOOLS = "the tools and their schemas are made at the start: they stand in every cached prefix"
ROOM = "queues and workers are made at the start"
PLUGINS = "plugins are chosen at the start"
CLIENTS = "models and their clients are made at the start"
CHANNELS = "ways out are made at the start"
FIXED = "it is read at the start"

RULES: dict[str, str] = {
    "host.awake": LIVE, "host.tool_timeout_seconds": LIVE,
    "host.workers": ROOM, "host.mailbox": ROOM, "host.force_network_fs": FIXED,
    "host.memory_mb": FIXED, "host.session_crashes": FIXED, "host.message_tries": FIXED,
    "host.durability": FIXED, "host.journal_mb": FIXED,
    "tenants": LIVE, "limits": FIXED, "retention": FIXED, "server": FIXED, "tracing": FIXED,
    "outbound": CHANNELS,
    "models.concurrency": ROOM, "models.waiting": ROOM, "models.queue_seconds": ROOM,
    "models.window": LIVE, "models.max_tokens": LIVE, "models.retries": LIVE,
    "models.idle_timeout_seconds": LIVE, "models.fallback": LIVE, "models.cooldown_seconds": LIVE,
    "models.default": CLIENTS, "models.thinking": CLIENTS, "models.cache": CLIENTS,
    "models.timeout_seconds": CLIENTS, "models.providers": CLIENTS,
    "compaction": LIVE, "compaction.trigger": PLUGINS, "compaction.truncate": FIXED,
    "compaction.truncate_mb": FIXED, "compaction.idle": FIXED,
    "guard": LIVE, "guard.evidence_kib": FIXED,
    "images": FIXED,
    "pruning": LIVE,
    "cache": FIXED,
    "channels": LIVE,
    "tools.approve": LIVE, "tools.approval_seconds": LIVE,
    "tools.allow": TOOLS, "tools.deny": TOOLS, "tools.exec": TOOLS, "tools.workspace": FIXED,
    "mcp": TOOLS, "subagents": TOOLS,
    "plugins.slots": PLUGINS, "plugins.strict": PLUGINS, "plugins.config": PLUGINS,
    "plugins.shadow": PLUGINS, "plugins.shadow_share": PLUGINS, "plugins.deadline_seconds": LIVE,
    "memory": PLUGINS,
    "heartbeat": LIVE, "timers": LIVE, "schedules": LIVE,
    "prompt": LIVE,
    "agents": LIVE,
    "log": LIVE,
}  # fmt: skip

R = TypeVar("R", bound=Record)


def rule(key: str) -> str | None:
    """Why a setting waits for a restart, `LIVE` where it doesn't, None where the table doesn't know it."""
    while key:
        if key in RULES:
            return RULES[key]
        key = key.rpartition(".")[0]
    return None


def merged(old: Settings, new: Settings) -> tuple[Settings, tuple[str, ...], tuple[tuple[str, str], ...]]:
    """What is in force after a reload, the keys that changed, and those refused with their reasons."""
    applied: list[str] = []
    refused: list[tuple[str, str]] = []
    return _merged(old, new, "", applied, refused), tuple(applied), tuple(refused)


def _merged(old: R, new: R, at: str, applied: list[str], refused: list[tuple[str, str]]) -> R:
    changes = {}
    for name in old.__struct_fields__:
        key, before, after = f"{at}{name}", getattr(old, name), getattr(new, name)
        if before == after:
            continue
        if isinstance(before, Record):
            changes[name] = _merged(before, after, f"{key}.", applied, refused)
        elif reason := rule(key):
            refused.append((key, reason))
        else:
            applied.append(key)
            changes[name] = after
    return replace(old, **changes) if changes else old

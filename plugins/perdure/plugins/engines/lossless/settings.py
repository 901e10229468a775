"""What can be set for the engine: `[plugins.config.lossless]`. Shares are of the budget a call is given."""

from __future__ import annotations

from perdure.errors import ConfigError
from perdure.plugins import options
from perdure.records import Record

PLUGIN = "lossless"
_SHARES = ("fresh_share", "soft_share", "target_share")
_COUNTS = (
    "fresh_count", "leaf_tokens", "leaf_messages", "leaf_target", "condensed_sources", "condensed_target",
    "routine_depth", "rounds", "sweep_seconds", "slow_seconds", "payload_chars", "expand_tokens",
    "grant_tokens", "grant_depth", "grant_seconds",
)  # fmt: skip


class Settings(Record):
    """Defaults with their reasons.

    `fresh_count`, `fresh_share`: the newest messages that stay as they are, at most so many, and so much.
    `leaf_tokens`, `leaf_messages`: what one leaf covers at most, and at least while nothing presses.
    `leaf_target`, `condensed_target`: tokens of a summary. `condensed_sources`: summaries of one depth that
    are condensed, at least. `routine_depth`: deeper ones are made under pressure only (0: never but then).
    `soft_share`: above it a turn's end makes one leaf; `target_share`: what a compaction aims at.
    `rounds`, `sweep_seconds`: bounds of one compaction. `slow_seconds`: where a summary took longer, none is
    made at a turn's end. `payload_chars`: longer texts are kept apart. `expand_tokens`: of one answer of
    the tools. `grant_…`: what a subagent may read of its parent.
    """

    fresh_count: int = 48
    fresh_share: float = 0.3
    leaf_tokens: int = 20_000
    leaf_messages: int = 8
    leaf_target: int = 2_400
    condensed_sources: int = 4
    condensed_target: int = 2_000
    routine_depth: int = 1
    soft_share: float = 0.6
    target_share: float = 0.5
    rounds: int = 24
    sweep_seconds: int = 120
    slow_seconds: int = 15
    background: bool = True
    payload_chars: int = 64_000
    expand_tokens: int = 4_000
    grant_tokens: int = 16_000
    grant_depth: int = 3
    grant_seconds: int = 3_600


def configured(table: object) -> Settings:
    """The settings of a table. Raises `ConfigError`: which key, and what is accepted."""
    found = options.read(Settings, table if isinstance(table, dict) else {}, PLUGIN)
    for name in _SHARES:
        if not 0 < getattr(found, name) < 1:
            raise ConfigError(f"plugins.config.{PLUGIN}.{name}: a share, more than 0 and less than 1")
    for name in _COUNTS:
        if getattr(found, name) < (0 if name == "routine_depth" else 1):
            raise ConfigError(f"plugins.config.{PLUGIN}.{name}: a positive whole number")
    if found.target_share > found.soft_share:
        raise ConfigError(f"plugins.config.{PLUGIN}.target_share: not above soft_share")
    if found.condensed_sources < 2:
        raise ConfigError(f"plugins.config.{PLUGIN}.condensed_sources: two at least")
    return found

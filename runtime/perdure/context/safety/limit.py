"""How many turns of a channel's history are sent: a limit that moves in jumps.

The first entry let through is the decision `limit`. It stays until the history is longer than the
limit by a margin, because every move costs the cached prefix. A leading summary is never dropped.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from perdure.context.changed import NOTHING_DECIDED, Changed, Decisions
from perdure.records import Decision, Items, LedgerLine, Summary, User

RULE = "limit: older than the turns this channel keeps"
KEY = "limit"

_TOPIC = re.compile(r"^(.*)(?::thread:|:topic:)\d+$", re.IGNORECASE)
_ALIASES = {"z.ai": "zai", "z-ai": "zai", "aws-bedrock": "amazon-bedrock", "bedrock": "amazon-bedrock"}
_DIRECT = ("dm", "direct")
_SHARED = ("channel", "group")


def limit(items: Items, turns: int | None, decided: Decisions = NOTHING_DECIDED) -> Changed:
    """The last `turns` user turns with what follows them; all of it for None, 0 and less."""
    if not turns or turns <= 0:
        return Changed(items)
    users = [n for n, item in enumerate(items) if type(item.message) is User]
    start = _decided_start(items, decided)
    allowed = turns if start is None else turns + margin(turns)
    if sum(1 for n in users if n >= (start or 0)) <= allowed:
        return _cut(items, start or 0, ())
    start = users[-turns]
    return _cut(items, start, (Decision(KEY, "limit", value=items[start].entry),))


def margin(turns: int) -> int:
    """How many turns above the limit are let grow before the start moves."""
    return max(1, turns // 4)


def history_limit(key: str, channels: Mapping[str, Any]) -> int | None:
    """The limit for a session key `agent:<agent>:<channel>:<kind>:<peer>`; None where none is set.

    `channels` maps a channel's name to `historyLimit`, `dmHistoryLimit` and `dms.<peer>.historyLimit`.
    """
    parts = [part for part in key.split(":") if part]
    if len(parts) >= 3 and parts[0] == "agent":
        parts = parts[2:]
    if len(parts) < 2:
        return None
    settings, kind = _channel(parts[0], channels), parts[1].lower()
    if kind in _DIRECT:
        return _whole(_direct(settings, ":".join(parts[2:])))
    return _whole(settings.get("historyLimit")) if kind in _SHARED else None


def _direct(settings: Mapping[str, Any], peer: str) -> object:
    topic = _TOPIC.match(peer)
    own = settings.get("dms")
    mine = own.get(topic.group(1) if topic else peer) if isinstance(own, Mapping) else None
    if isinstance(mine, Mapping) and "historyLimit" in mine:
        return mine["historyLimit"]
    return settings.get("dmHistoryLimit")


def _whole(found: object) -> int | None:
    return found if type(found) is int else None


def _channel(name: str, channels: Mapping[str, Any]) -> Mapping[str, Any]:
    wanted = _normal(name)
    if isinstance(channels, Mapping):
        for key, settings in channels.items():
            if _normal(key) == wanted and isinstance(settings, Mapping):
                return settings
    return {}


def _normal(name: str) -> str:
    lowered = name.strip().lower()
    return _ALIASES.get(lowered, lowered)


def _decided_start(items: Items, decided: Decisions) -> int | None:
    before = decided.get(KEY)
    if before is None or not before.value:
        return None
    return next((n for n, item in enumerate(items) if item.entry == before.value), None)


def _cut(items: Items, start: int, decisions: tuple[Decision, ...]) -> Changed:
    if start == 0:
        return Changed(items, decisions=decisions)
    head = 0
    while head < start and type(items[head].message) is Summary:
        head += 1
    lines = tuple(LedgerLine(item.entry, "left_out", RULE) for item in items[head:start])
    return Changed(items[:head] + items[start:], lines, decisions)

"""How a turn ended, in the JSON contract that commands and the HTTP API share."""

from __future__ import annotations

from typing import Any

from perdure.events import Overflow, Reply


def reply_line(reply: Reply) -> dict[str, Any]:
    """The JSON contract of `chat -m`."""
    usage = reply.usage
    return {
        "key": reply.key,
        "reply": reply.text,
        "stop": reply.stop,
        "steps": reply.steps,
        "tokens": {
            "input": usage.input,
            "cache_read": usage.cache_read,
            "cache_write": usage.cache_write,
            "output": usage.output,
        },
        "entries": list(reply.entries),
        "errors": list(reply.errors),
        "overflow": _overflow(reply.overflow),
    }


def _overflow(told: Overflow | None) -> dict[str, Any] | None:
    """Why the context was too large, and who takes how much of it."""
    if told is None:
        return None
    return {
        "cause": told.cause,
        "tokens": told.tokens,
        "limit": told.limit,
        "owners": dict(told.owners),
    }

"""What a request says beside its messages."""

from __future__ import annotations

from perdure.context.cache import Retention
from perdure.context.policy import TranscriptPolicy
from perdure.records import ModelInfo, Record, ToolSpec


class Ask(Record):
    """`system` may hold the cache boundary marker; `session` is "" where there is none.

    `thinking_level`: off, minimal, low, medium, high, xhigh; `retention`: life of what is cached.
    """

    system: str
    tools: tuple[ToolSpec, ...]
    model: ModelInfo
    policy: TranscriptPolicy
    max_tokens: int
    thinking_level: str = "off"
    retention: Retention = "short"
    session: str = ""

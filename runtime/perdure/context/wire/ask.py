"""What a request says beside its messages."""

from __future__ import annotations

from perdure.context.cache.contract import Retention
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


SHARED = frozenset(
    {"openai-completions"}
)  # prompt and answer must fit the window together, or neither is made
SLACK, SLACK_SHARE = 64, 16  # tokens, and the part of a prompt, by which its estimate may be too small


def answer_room(model: ModelInfo, window: int, prompt: int) -> int:
    """Tokens of `window` left for an answer to a prompt of about `prompt` tokens; it may be negative.

    Where a server refuses a prompt and an answer that don't fit together, the estimate's error is left out.
    """
    left = window - prompt
    return left - SLACK - prompt // SLACK_SHARE if model.api in SHARED else left

"""What a session's requests are made under: resolved once, used by the turn and by every worker."""

from __future__ import annotations

from perdure.context.cache.contract import Retention
from perdure.context.numbers import Limits
from perdure.context.policy import TranscriptPolicy, policy_for
from perdure.context.prompt.system import tools_in_order
from perdure.context.results.prune import PruneSettings
from perdure.context.tokens.estimator import Estimator
from perdure.records import ModelInfo, Pinned, Record, ToolSpec


class Environment(Record):
    """`system` holds the cache boundary marker; `history_limit` counts user turns, `None`: all.

    `fixed_tokens` is what the system prompt and the tool schemas take of every request, `tool_tokens` the
    schemas' part. `engine` is the id of the context engine that assembles.
    """

    session: str
    model: ModelInfo
    policy: TranscriptPolicy
    limits: Limits
    system: str
    tools: tuple[ToolSpec, ...] = ()
    fixed_tokens: int = 0
    tool_tokens: int = 0
    thinking: str = "off"
    retention: Retention = "short"
    history_limit: int | None = None
    heartbeat: str = ""
    output_cap: int = 32_000
    identity_tokens: int = 0
    knowledge_tokens: int = 0
    pruning: PruneSettings | None = None
    pins: tuple[Pinned, ...] = ()
    engine: str = "legacy"


def resolve(
    session: str,
    model: ModelInfo,
    system: str,
    tools: tuple[ToolSpec, ...],
    lines: Limits,
    *,
    thinking: str = "off",
    retention: Retention = "short",
    history_limit: int | None = None,
    knowledge: str = "",
    heartbeat: str = "",
    output_cap: int = 32_000,
    pruning: PruneSettings | None = None,
    engine: str = "legacy",
) -> Environment:
    """Everything that follows from a model, a prompt and tools, computed once.

    Tools go out in one order, whatever the order of registration or of a server's reconnection: they
    stand first in the provider's cache, so that a moved one would cost everything behind it.
    """
    estimator, tools = Estimator(), tools_in_order(tools)
    schemas = sum(estimator.text(f"{t.name}{t.description}{t.schema.decode()}") for t in tools)
    prompt = estimator.text(system)
    known = estimator.text(knowledge) if knowledge else 0
    return Environment(
        session=session,
        model=model,
        policy=policy_for(model),
        limits=lines,
        system=system,
        tools=tools,
        fixed_tokens=prompt + schemas,
        tool_tokens=schemas,
        thinking=thinking,
        retention=retention,
        history_limit=history_limit,
        heartbeat=heartbeat,
        output_cap=min(model.max_output, output_cap),
        identity_tokens=prompt + schemas - known,
        knowledge_tokens=known,
        pruning=pruning,
        engine=engine,
    )

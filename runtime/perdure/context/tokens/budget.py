"""Who takes how much of a window: identity, knowledge, history, tool results, and who gives way first.

Identity is never sacrificed; each of the others has one step of the pipeline that cuts it.
"""

from __future__ import annotations

from perdure.context.compaction.size import limited
from perdure.context.environment import Environment
from perdure.context.numbers import HISTORY_SHARE, IDENTITY_SHARE, KNOWLEDGE_SHARE
from perdure.context.tokens.estimator import Estimator, Measure, measure
from perdure.records import Items, Record, ToolResult


class Budget(Record):
    """Tokens of one request by source. `limit` is the line it may not pass (0.9 of the window)."""

    identity: int
    knowledge: int
    history: int
    tools: int
    total: int
    limit: int


class Source(Record):
    """One source of context: its lowest and highest share of the window, and what cuts it."""

    name: str
    least: float
    most: float
    cut_by: str


INJECTION_ORDER = (
    Source("identity", *IDENTITY_SHARE, "nothing: never sacrificed"),
    Source("knowledge", *KNOWLEDGE_SHARE, "rank: the least relevant pieces are left out"),
    Source("history", *HISTORY_SHARE, "compaction: early turns first"),
    Source("tools", *HISTORY_SHARE, "guard (warm cache, newest first), pruning (cold cache, oldest first)"),
)
"""Identity before knowledge before history before tools; the last two share what is left."""

SOURCES = tuple(source.name for source in INJECTION_ORDER)

SACRIFICE_ORDER = ("tools", "history", "knowledge")
"""Old tool results give way first, then early turns, then workspace knowledge; identity never."""


def measure_budget(
    items: Items, env: Environment, estimator: Estimator, fixed_tokens: int, *, guarded: bool = True
) -> Budget:
    """The budget of a request with these items; `fixed_tokens` is the system prompt with tool schemas.

    `guarded` false: of a view that the guard has not seen, as triggers look at it.

    The total is `Prepared.tokens`: the same estimator on the size of the whole view. The four sources
    add up to it: history and tool results share what the fixed part leaves, by their own sizes.
    """
    results, others = Measure(), Measure()
    for item in items:
        size = measure(item.message)
        size = size if guarded else limited(item, size, env.limits)
        if isinstance(item.message, ToolResult):
            results += size
        else:
            others += size
    total = estimator.whole(results + others, fixed_tokens)
    view, heavy = total - fixed_tokens, estimator.chars(results)
    tools = view * heavy // max(1, heavy + estimator.chars(others))
    knowledge = min(env.knowledge_tokens, fixed_tokens)
    return Budget(
        identity=fixed_tokens - knowledge,
        knowledge=knowledge,
        history=view - tools,
        tools=tools,
        total=total,
        limit=min(env.limits.overflow, env.limits.window),
    )

"""The journey of one message, from stored entries to the bytes a provider gets. Read this file first.

    open → strip → sanitise → validate → heartbeats → limit → repair      history(), not pluggable
         → engine.assemble                                                 the plugin's turn
         → system prompt → prune → guard → seal → render                   request()

Pure: frozen records in, frozen records out. What was decided when an entry was first sent comes in as
`decided` and leaves as new decisions, so that nothing is ever decided twice. Prune and guard are hooks
of the turn actor (`TransformContext`); guard is always the last of them, seal the last word of all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from perdure.context.boundary import insert_after_boundary
from perdure.context.budget import Budget, measure_budget
from perdure.context.changed import Changed, Decisions
from perdure.context.environment import Environment
from perdure.context.guard import guard
from perdure.context.heartbeat import drop_silent_heartbeats
from perdure.context.ledger import ledger
from perdure.context.limit import limit
from perdure.context.prune import prune
from perdure.context.repair import repair
from perdure.context.sanitize import sanitize
from perdure.context.seal import seal
from perdure.context.strip import strip
from perdure.context.tokens import Estimator, Gauge, Measure, measure
from perdure.context.validate import validate
from perdure.context.wire import render
from perdure.contracts import Assembled
from perdure.records import Decision, Items, LedgerLine, Record


class HookContext(Record):
    """What a `transform_context` hook may look at."""

    environment: Environment
    decided: Decisions
    unseen: frozenset[str]
    estimator: Estimator
    fixed_tokens: int
    cache_age: float | None = None


TransformContext: TypeAlias = Callable[[Items, HookContext], Changed]


class Prepared(Record):
    """One request: the provider's whole body, its size by our estimator, and the account of it."""

    body: bytes
    tokens: int
    forecast: int
    max_tokens: int
    items: Items
    ledger: tuple[LedgerLine, ...]
    decisions: tuple[Decision, ...]
    budget: Budget


def history(items: Items, env: Environment, decided: Decisions) -> Changed:
    """The safety steps, in their fixed order; what they did is in the outcome."""
    return (
        strip(items)
        .then(lambda now: sanitize(now, env.policy, env.model, thinking=env.thinking, decided=decided))
        .then(lambda now: validate(now, env.policy))
        .then(lambda now: drop_silent_heartbeats(now, env.heartbeat))
        .then(lambda now: limit(now, env.history_limit, decided))
        .then(lambda now: repair(now, decided=decided))
    )


def request(
    stage: Changed,
    assembled: Assembled,
    env: Environment,
    *,
    decided: Decisions,
    unseen: frozenset[str],
    hooks: tuple[TransformContext, ...],
    estimator: Estimator | None = None,
    cache_age: float | None = None,
) -> Prepared:
    """From an engine's answer to the wire. Raises `ContextOverflow` where the view must shrink first."""
    estimator = estimator or Estimator()
    addition = estimator.text(assembled.addition) if assembled.addition else 0
    context = HookContext(env, decided, unseen, estimator, env.fixed_tokens + addition, cache_age)
    done = Changed(assembled.messages, stage.lines, stage.decisions, stage.thinking)
    for hook in hooks:
        done = done.then(bound(hook, context))
    thinking = env.thinking if done.thinking else "off"
    done = done.then(lambda now: seal(now, env.policy, env.model, thinking=thinking, decided=decided))
    return _sealed(done, assembled, context)


def pruning(items: Items, context: HookContext) -> Changed:
    """Old results are trimmed and cleared while the cache is cold anyway."""
    return prune(
        items,
        context.environment.pruning,
        window=context.environment.limits.window,
        cache_age=context.cache_age,
        decided=context.decided,
        unseen=context.unseen,
    )


def guarding(items: Items, context: HookContext) -> Changed:
    """The last hook: results are brought under the lines of the window."""
    return guard(
        items,
        fixed_tokens=context.fixed_tokens,
        limits=context.environment.limits,
        estimator=context.estimator,
        decided=context.decided,
        unseen=context.unseen,
        gauge=Gauge(),
    )


HOOKS: tuple[TransformContext, ...] = (pruning, guarding)


def bound(hook: TransformContext, context: HookContext) -> Callable[[Items], Changed]:
    """The hook as a step."""
    return lambda items: hook(items, context)


def _sealed(done: Changed, assembled: Assembled, context: HookContext) -> Prepared:
    env, estimator = context.environment, context.estimator
    size = sum((measure(item.message) for item in done.items), Measure())
    tokens = context.fixed_tokens + estimator.tokens(size)
    room = max(1, min(env.output_cap, env.limits.window - context.fixed_tokens - estimator.upper(size)))
    body = render(
        done.items,
        system=insert_after_boundary(env.system, assembled.addition),
        tools=env.tools,
        model=env.model,
        policy=env.policy,
        max_tokens=room,
        thinking_level=env.thinking if done.thinking else "off",
        retention=env.retention,
    )
    return Prepared(
        body=body,
        tokens=tokens,
        forecast=context.fixed_tokens + estimator.forecast(size),
        max_tokens=room,
        items=done.items,
        ledger=ledger(done.items, done.lines, estimator, context.unseen),
        decisions=tuple(d for d in done.decisions if context.decided.get(d.key) != d),
        budget=measure_budget(done.items, env, estimator, context.fixed_tokens),
    )

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

from perdure.context.cache.blame import Stage
from perdure.context.changed import Changed, Decisions
from perdure.context.environment import Environment
from perdure.context.prompt.boundary import insert_after_boundary
from perdure.context.results.guard import guard
from perdure.context.results.prune import prune
from perdure.context.safety.heartbeat import drop_silent_heartbeats
from perdure.context.safety.limit import limit
from perdure.context.safety.repair import repair
from perdure.context.safety.sanitize import Before, sanitize
from perdure.context.safety.seal import ends, seal
from perdure.context.safety.strip import strip
from perdure.context.safety.validate import validate
from perdure.context.settled import Settled
from perdure.context.tokens.estimator import Estimator, Gauge, Measure
from perdure.context.wire import Memo, answer_room, render
from perdure.contracts import Assembled
from perdure.records import Decision, Items, LedgerLine, Record


class Scratch:
    """What one session keeps between its requests, so that a step costs the tail that changed."""

    __slots__ = ("gauge", "memo", "safe", "sealed")

    def __init__(self) -> None:
        self.gauge, self.memo, self.safe, self.sealed = Gauge(), Memo(), Settled(), Settled()


class HookContext(Record, gc=True):
    """What a `transform_context` hook may look at."""

    environment: Environment
    decided: Decisions
    unseen: frozenset[str]
    estimator: Estimator
    fixed_tokens: int
    cache_age: float | None = None
    gauge: Gauge = Gauge()


TransformContext: TypeAlias = Callable[[Items, HookContext], Changed]


class Prepared(Record):
    """One request: the provider's whole body, its size, and what was done to make it.

    `tokens` is the size that the lines were held against, `forecast` the likeliest one. `size` (the
    messages) and `fixed_tokens` are what its real usage will be compared with.
    `stages` name each step from the engine on, with what it made.
    """

    body: bytes
    tokens: int
    forecast: int
    size: Measure
    fixed_tokens: int
    items: Items
    lines: tuple[LedgerLine, ...]
    decisions: tuple[Decision, ...]
    stages: tuple[Stage, ...] = ()
    thinking: str = "off"


def history(
    items: Items,
    env: Environment,
    decided: Decisions,
    *,
    unseen: frozenset[str] = frozenset(),
    scratch: Scratch | None = None,
) -> Changed:
    """The safety steps, in their fixed order; what they did is in the outcome."""

    def steps(now: Items, before: Before | None) -> Changed:
        return (
            strip(now)
            .then(lambda now: _sanitised(now, env, decided, unseen, before))
            .then(lambda now: validate(now, env.policy))
            .then(lambda now: drop_silent_heartbeats(now, env.heartbeat))
        )

    key = (env.policy, env.model, env.thinking, env.heartbeat)
    safe = (scratch or Scratch()).safe.run(items, steps, key=key, policy=env.policy, decided=decided)
    cut = safe.then(lambda now: limit(now, env.history_limit, decided))
    if cut.items is safe.items:  # sanitising has paired everything already; only a cut can tear a pair
        return cut
    return cut.then(lambda now: repair(now, decided=decided, unseen=unseen))


def _sanitised(
    items: Items, env: Environment, decided: Decisions, unseen: frozenset[str], before: Before | None
) -> Changed:
    return sanitize(
        items, env.policy, env.model, thinking=env.thinking, decided=decided, unseen=unseen, before=before
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
    scratch: Scratch | None = None,
) -> Prepared:
    """From an engine's answer to the wire. Raises `ContextOverflow` where the view must shrink first."""
    estimator, scratch = estimator or Estimator(), scratch or Scratch()
    scratch.gauge.charge(env.model.api)
    addition = estimator.text(assembled.addition) if assembled.addition else 0
    context = HookContext(
        env, decided, unseen, estimator, env.fixed_tokens + addition, cache_age, scratch.gauge
    )
    done = Changed(assembled.messages, stage.lines, stage.decisions, stage.thinking)
    stages: list[Stage] = [("engine", done.items)]
    for hook in hooks:
        done = done.then(bound(hook, context))
        stages.append(
            (_STEPS.get(hook) or f"hook {getattr(hook, '__qualname__', type(hook).__name__)}", done.items)
        )
    if done.items is stage.items and env.history_limit is None:  # nobody touched what is sealed already
        done = done.then(ends)
        return _sealed(done, assembled, context, scratch.memo, (*stages, ("seal", done.items)))
    thinking = env.thinking if done.thinking else "off"
    done = done.then(
        lambda now: seal(
            now,
            env.policy,
            env.model,
            thinking=thinking,
            decided=decided,
            unseen=unseen,
            settled=scratch.sealed,
        )
    )
    return _sealed(done, assembled, context, scratch.memo, (*stages, ("seal", done.items)))


def pruning(items: Items, context: HookContext) -> Changed:
    """Old results are trimmed and cleared while the cache is cold anyway."""
    return prune(
        items,
        context.environment.pruning,
        window=context.environment.limits.window,
        cache_age=context.cache_age,
        decided=context.decided,
        unseen=context.unseen,
        gauge=context.gauge,
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
        gauge=context.gauge,
        tool_tokens=context.environment.tool_tokens,
    )


HOOKS: tuple[TransformContext, ...] = (pruning, guarding)
_STEPS: dict[TransformContext, str] = {pruning: "prune", guarding: "guard"}


def bound(hook: TransformContext, context: HookContext) -> Callable[[Items], Changed]:
    """The hook as a step."""
    return lambda items: hook(items, context)


def _sealed(
    done: Changed, assembled: Assembled, context: HookContext, memo: Memo, stages: tuple[Stage, ...]
) -> Prepared:
    env, estimator, fixed = context.environment, context.estimator, context.fixed_tokens
    size = context.gauge.total("seal", done.items)
    tokens = estimator.whole(size, fixed)
    careful = tokens if estimator.samples else estimator.upper(size, fixed)
    if assembled.estimated_tokens > 0:  # the larger count leaves the room
        careful = max(careful, env.fixed_tokens + assembled.estimated_tokens)
    thinking = env.thinking if done.thinking else "off"
    room = answer_room(env.model, env.limits.window, careful)
    body = render(
        done.items,
        system=insert_after_boundary(env.system, assembled.addition),
        tools=env.tools,
        model=env.model,
        policy=env.policy,
        max_tokens=max(1, min(env.output_cap, room)),
        thinking_level=thinking,
        retention=env.retention,
        session=env.session,
        memo=memo,
    )
    return Prepared(
        body=body,
        tokens=tokens,
        forecast=estimator.forecast(size, fixed),
        size=size,
        fixed_tokens=fixed,
        items=done.items,
        lines=done.lines,
        decisions=tuple(d for d in done.decisions if context.decided.get(d.key) != d),
        stages=stages,
        thinking=thinking,
    )

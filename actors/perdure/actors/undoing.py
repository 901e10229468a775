"""Undoing the latest compaction of a session whose file is in our hands, if the result can be sent."""

from __future__ import annotations

from collections.abc import Mapping

from perdure.actors.fitting import Fit, fit
from perdure.context.environment import Environment
from perdure.context.tokens.estimator import Estimator
from perdure.edges.session import branching
from perdure.edges.session.branching import Branched
from perdure.edges.session.files import Held
from perdure.records import Decision, Items


def undo(held: Held, now_ms: int, env: Environment, estimator: Estimator) -> tuple[Branched, Fit]:
    """Branch before the compaction, or say with numbers why the view would not fit. Blocking."""
    measured = Fit(0)

    def fits(items: Items, decisions: Mapping[str, Decision]) -> str:
        nonlocal measured
        measured = fit(items, decisions, env, estimator)
        if measured.problem:
            return f"the view without the compaction doesn't fit: {measured.problem}"
        return ""

    return branching.undo(held, fits, now_ms), measured


def told(done: Branched, measured: Fit, env: Environment) -> str:
    """What became of it, for a person."""
    if not done.done:
        return f"Nothing was undone: {done.reason}."
    since = f"; {len(done.copied):,} later entries came along" if done.copied else ""
    text = (
        f"Undone: the compaction {done.compaction}{since}. The next request is about {measured.tokens:,} of "
        f"{env.limits.window:,} tokens"
    )
    if measured.tokens > env.limits.threshold:
        return f"{text}: over the line of {env.limits.threshold:,}, so the next turn compacts again."
    return f"{text}."


def undone(held: Held, now_ms: int, env: Environment, estimator: Estimator) -> str:
    """`undo`, as the answer of `/undo`."""
    return told(*undo(held, now_ms, env, estimator), env)

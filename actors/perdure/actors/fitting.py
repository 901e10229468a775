"""Whether a view can be sent as it is: the request it would make, measured by the pipeline itself."""

from __future__ import annotations

from perdure.context import pipeline
from perdure.context.changed import Decisions
from perdure.context.environment import Environment
from perdure.context.tokens.estimator import Estimator
from perdure.contracts import Assembled
from perdure.errors import ContextOverflow
from perdure.records import Item, Items, Record, Text, User


class Fit(Record):
    """`tokens` of the request; `problem` is empty where it fits, else says it with its numbers."""

    tokens: int
    problem: str = ""


def fit(items: Items, decided: Decisions, env: Environment, estimator: Estimator) -> Fit:
    """The request of the next message on this view, guard included."""
    asked = Item("", User((Text("(the next message)"),)))
    stage = pipeline.history((*items, asked), env, decided)
    try:
        prepared = pipeline.request(
            stage,
            Assembled(stage.items),
            env,
            decided=decided,
            unseen=frozenset(),
            hooks=pipeline.HOOKS,
            estimator=estimator,
        )
    except ContextOverflow as overflow:
        return Fit(overflow.tokens, str(overflow))
    if prepared.tokens > env.limits.window:
        return Fit(prepared.tokens, str(ContextOverflow(prepared.tokens, env.limits.window)))
    return Fit(prepared.tokens)

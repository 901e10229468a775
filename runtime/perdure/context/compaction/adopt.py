"""An engine's own summary as a compaction of ours: with what must survive beside it, and the same proof."""

from __future__ import annotations

from perdure.context.compaction.fold import Done, Fold
from perdure.context.compaction.plan import Plan
from perdure.context.compaction.proof import Draft, How, Refusal, compose, prove, spans
from perdure.context.numbers import Limits
from perdure.context.tokens.estimator import Estimator


def adopted(plan: Plan, summary: str, *, limits: Limits, estimator: Estimator) -> Done | Refusal:
    """The proven summary, or why it may not be committed: pins, identifiers and facts as for our own."""
    fold = Fold(plan, limits=limits, estimator=estimator)
    fates: list[How] = ["summarised"] * len(plan.covered)
    draft = Draft(summary, "engine", spans(plan.covered, fates))
    whole = compose(summary, plan.pins, fold.found, fold.facts)
    proof = prove(plan, draft, whole, found=fold.found, limits=limits, estimator=estimator, facts=fold.facts)
    if isinstance(proof, Refusal):
        return proof
    return Done(whole, proof, "engine", plan, draft, fold.found, fold.facts)

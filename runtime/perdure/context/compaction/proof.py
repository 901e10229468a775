"""The proof without which no compaction is committed, and the check that gives or refuses it.

Sizes are measured on one view by one estimator; pins and identifiers are compared byte for byte; every
covered entry is accounted for. What doesn't shrink isn't done.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Literal, TypeAlias

from perdure.context.compaction.facts import Facts, blocks
from perdure.context.compaction.facts import lost as lost_facts
from perdure.context.compaction.identifiers import Found, listing, missing
from perdure.context.compaction.judge import is_skeleton
from perdure.context.compaction.plan import Pin, Plan
from perdure.context.compaction.size import view_tokens
from perdure.context.numbers import Limits
from perdure.context.tokens.estimator import Estimator
from perdure.records import Item, Items, Record, Summary

Rung: TypeAlias = Literal["staged", "partial", "subsets", "digest", "engine"]
How: TypeAlias = Literal["summarised", "digested", "noted"]
Reason: TypeAlias = Literal[
    "empty",
    "skeleton",
    "not smaller",
    "pin missing",
    "identifier missing",
    "fact missing",
    "entry not covered",
]

NO_FACTS = Facts()

PINNED_HEADING = "## Pinned, word for word"


class Span(Record):
    """Consecutive covered entries, first to last, and what became of all of them."""

    first: str
    last: str
    count: int
    how: How


class Draft(Record):
    """A summary that may be proven: the model's or digest's own text, and what was done to each entry."""

    body: str
    rung: Rung
    spans: tuple[Span, ...]


class Proof(Record):
    """What was checked. Tokens are those of the unguarded view, before and after.

    `carried` identifiers stand beside the summary because its text had lost them; `left` ones didn't
    fit their share and are found by `recall`. `facts`: so many requests, to-dos and counts stand beside it.
    """

    first: str
    last: str
    first_kept: str
    entries: int
    tokens_before: int
    tokens_after: int
    rung: Rung
    spans: tuple[Span, ...]
    pins: tuple[str, ...] = ()
    identifiers: int = 0
    carried: tuple[str, ...] = ()
    left: int = 0
    facts: int = 0


class Refusal(Record):
    """Why a summary may not be committed: the next rung is tried."""

    reason: Reason
    detail: str = ""


def spans(items: Items, fates: Iterable[How]) -> tuple[Span, ...]:
    """The account of covered entries as runs, so that a proof stays small."""
    pairs = zip(items, fates, strict=True)
    runs = [(how, [item.entry for item, _ in run]) for how, run in groupby(pairs, key=lambda pair: pair[1])]
    return tuple(Span(entries[0], entries[-1], len(entries), how) for how, entries in runs)


def compose(body: str, pins: tuple[Pin, ...], found: Found, facts: Facts = NO_FACTS) -> str:
    """The whole summary: the text, then pins byte for byte, then the facts and identifiers the text lost."""
    parts = [body.strip()]
    if lost := [pin for pin in pins if pin.text not in body]:
        parts.append(f"{PINNED_HEADING}\n" + "\n\n".join(pin.text for pin in lost))
    parts += blocks(lost_facts(body, facts))
    parts += filter(None, [listing("\n".join(parts), found)])
    return "\n\n".join(parts)


def prove(
    plan: Plan,
    draft: Draft,
    summary: str,
    *,
    found: Found,
    limits: Limits,
    estimator: Estimator,
    grown: Items = (),
    facts: Facts = NO_FACTS,
) -> Proof | Refusal:
    """Check a composed summary. `grown`: what the view gained since the plan was made."""
    if refusal := _content(plan, draft, summary, found, facts):
        return refusal
    after: Items = (Item("", Summary(summary)), *plan.kept, *grown)
    before_tokens = view_tokens((*plan.before, *grown), limits, estimator)
    after_tokens = view_tokens(after, limits, estimator)
    if after_tokens >= before_tokens:
        return Refusal("not smaller", f"{before_tokens:,} tokens before, {after_tokens:,} after")
    return Proof(
        first=plan.covered[0].entry,
        last=plan.covered[-1].entry,
        first_kept=plan.first_kept,
        entries=len(plan.covered),
        tokens_before=before_tokens,
        tokens_after=after_tokens,
        rung=draft.rung,
        spans=draft.spans,
        pins=tuple(pin.entry for pin in plan.pins),
        identifiers=len(found.carried),
        carried=missing(draft.body, found.carried),
        left=found.left,
        facts=lost_facts(draft.body, facts).count,
    )


def _content(plan: Plan, draft: Draft, summary: str, found: Found, facts: Facts) -> Refusal | None:
    if not draft.body.strip():
        return Refusal("empty")
    if is_skeleton(draft.body):
        return Refusal("skeleton")
    if lost := next((pin for pin in plan.pins if pin.text not in summary), None):
        return Refusal("pin missing", lost.entry)
    if names := missing(summary, found.carried):
        return Refusal("identifier missing", ", ".join(names[:3]))
    if gone := lost_facts(summary, facts).count:
        return Refusal("fact missing", f"{gone} of {facts.count}")
    counted = sum(span.count for span in draft.spans)
    if counted != len(plan.covered) or not plan.covered:
        return Refusal("entry not covered", f"{counted} of {len(plan.covered)}")
    if draft.spans[0].first != plan.covered[0].entry or draft.spans[-1].last != plan.covered[-1].entry:
        return Refusal("entry not covered", "the range is another one")
    return None

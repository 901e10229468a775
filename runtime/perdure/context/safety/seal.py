"""The last word before the wire: whatever an engine or a hook returned, no provider refuses it.

Strips, sanitises and pairs once more, then sees to the two ends: a request begins with the user and
ends with the user.
"""

from __future__ import annotations

from collections.abc import Container

from perdure.context.changed import NOTHING_DECIDED, Changed, Decisions
from perdure.context.policy import TranscriptPolicy
from perdure.context.safety.sanitize import Before, sanitize
from perdure.context.safety.strip import strip
from perdure.context.safety.thinking import asked
from perdure.context.safety.validate import stand_in
from perdure.context.settled import Settled
from perdure.records import Assistant, Items, LedgerLine, ModelInfo

BEGINS = "(Earlier messages are not part of this request.)"
CONTINUES = "(Continue.)"
FIRST = "seal: a request begins with the user"
LAST = "seal: a request ends with the user"


def seal(
    items: Items,
    policy: TranscriptPolicy,
    model: ModelInfo,
    *,
    thinking: bool | str = True,
    decided: Decisions = NOTHING_DECIDED,
    covered: Container[str] | None = None,
    unseen: Container[str] | None = None,
    settled: Settled | None = None,
) -> Changed:
    """Items that `wire.render` can take as they are.

    Where `.thinking` of the outcome is false, render with `thinking_level="off"`. Sealing again
    changes nothing. `settled`: what an earlier seal of this session left, to go on from.
    """

    def steps(now: Items, on: bool | str, before: Before | None) -> Changed:
        return strip(now).then(
            lambda bare: sanitize(
                bare,
                policy,
                model,
                thinking=on,
                decided=decided,
                covered=covered,
                unseen=unseen,
                before=before,
            )
        )

    key = (policy, model, asked(model, thinking), covered)
    done = (settled or Settled()).run(
        items, lambda now, before: steps(now, thinking, before), key=key, policy=policy, decided=decided
    )
    if not done.thinking:
        done = done.then(lambda now: steps(now, False, None))
    return done.then(ends)


def ends(items: Items) -> Changed:
    """The items with a user's line at both ends; made-up ones carry no entry."""
    lines: list[LedgerLine] = []
    if not items or type(items[0].message) is Assistant:
        items = (stand_in(BEGINS), *items)
        lines.append(LedgerLine("", "synthesised", FIRST))
    if type(items[-1].message) is Assistant:
        items = (*items, stand_in(CONTINUES))
        lines.append(LedgerLine("", "synthesised", LAST))
    return Changed(items, tuple(lines))

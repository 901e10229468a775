"""What every step of the pipeline returns: the items, what it did to which entry, what it decided.

A step never changes an item in place: what it didn't touch is the very same object again, so that
later steps and the wire can recognise it by identity.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

from perdure.records import Decision, Items, LedgerLine, Record

Decisions: TypeAlias = Mapping[str, Decision]
NOTHING_DECIDED: Decisions = MappingProxyType({})


class Changed(Record):
    """The outcome of one step or of several.

    `lines` name every entry that isn't sent as it is stored, with the rule. `decisions` are the new
    ones only: keep them beside the entries and pass them in again. `thinking` is false when the
    request must be made with extended thinking turned off.
    """

    items: Items
    lines: tuple[LedgerLine, ...] = ()
    decisions: tuple[Decision, ...] = ()
    thinking: bool = True

    def then(self, step: Callable[[Items], Changed]) -> Changed:
        """Run `step` on the items and add what it did to what was done before."""
        after = step(self.items)
        return Changed(
            after.items,
            self.lines + after.lines,
            self.decisions + after.decisions,
            self.thinking and after.thinking,
        )


def as_decisions(decisions: tuple[Decision, ...]) -> Decisions:
    """Decisions by key; of two for one key the earlier holds, because it was sent first."""
    found: dict[str, Decision] = {}
    for decision in decisions:
        found.setdefault(decision.key, decision)
    return found


def common(a: Items, b: Items) -> int:
    """How many items two views have in common from the start; fast where they are the same objects.

    Halves are compared in one call each, so that a change costs no loop over what is the same.
    """
    low, high = 0, min(len(a), len(b))
    if a[:high] == b[:high]:
        return high
    while high - low > 1:  # the first difference stands in [low, high)
        middle = (low + high) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle
    return low


def subject(decision: Decision) -> str:
    """The entry a decision is about, whatever form its key has (see `Decision`; `id:<entry>:<n>`, too)."""
    if decision.key == "limit":
        return decision.value
    kind, colon, rest = decision.key.partition(":")
    return rest.rpartition(":")[0] if colon and kind in ("call", "id") else decision.key

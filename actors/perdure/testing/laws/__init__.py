"""The laws that every context engine must keep, as data: id, sentence, where the rule comes from, a check.

They forbid no design: an engine may drop, reorder, retrieve, own compaction, be passive, or plain `def`.
"""

from __future__ import annotations

from perdure.testing.laws import (
    assemble,
    bootstrap,
    budget,
    cancellation,
    compaction,
    concurrency,
    dispose,
    hostile,
    ingest,
    isolation,
    maintain,
    order,
    pairs,
    prefix,
    redelivery,
    shape,
    subagents,
    timing,
)
from perdure.testing.laws.law import Broken, Law

GROUPS = (
    shape, ingest, redelivery, order, assemble, pairs, budget, prefix, isolation, compaction, bootstrap,
    maintain, subagents, dispose, hostile, concurrency, timing, cancellation,
)  # fmt: skip
LAWS: tuple[Law, ...] = tuple(law for group in GROUPS for law in group.law.laws)

__all__ = ["LAWS", "Broken", "Law"]

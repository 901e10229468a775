"""The adapter of each file of vectors."""

from __future__ import annotations

from collections.abc import Mapping

from conformance import (
    cache,
    compaction_calls,
    compaction_sizes,
    guard,
    limit_history,
    prune,
    repair_pairing,
    sanitize,
    session_context,
    truncate_tool_result,
    truncation,
    validate_turns,
)
from conformance.rules import Function

ADAPTERS: Mapping[str, Mapping[str, Function]] = {
    "cache": cache.FUNCTIONS,
    "compaction_math": compaction_sizes.FUNCTIONS | compaction_calls.FUNCTIONS,
    "guard_2026_4_5": guard.RELEASED_FUNCTIONS,
    "guard_newestfirst_derived": guard.NEWEST_FIRST_FUNCTIONS,
    "limit_history": limit_history.FUNCTIONS,
    "prune": prune.FUNCTIONS,
    "repair_pairing": repair_pairing.FUNCTIONS,
    "sanitize": sanitize.FUNCTIONS,
    "session_context": session_context.FUNCTIONS,
    "truncate_tool_result": truncate_tool_result.FUNCTIONS,
    "truncation": truncation.FUNCTIONS,
    "validate_turns": validate_turns.FUNCTIONS,
}

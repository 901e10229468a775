"""Small pure questions to a view."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.actors.messages import Snapshot
from perdure.context.tokens import Estimator
from perdure.records import Assistant, Item, ToolResult, User


def at_rest(last: Item) -> bool:
    """Whether a view that ends in `last` waits for nobody but the user."""
    message = last.message
    if isinstance(message, Assistant):
        return message.stop != "toolUse"
    return not isinstance(message, User | ToolResult)


def unseen(items: Sequence[Item]) -> frozenset[str]:
    """Entries of tool results that no accepted model call has shown yet: those behind the last answer."""
    fresh: list[str] = []
    for item in reversed(items):
        message = item.message
        if isinstance(message, Assistant) and message.stop not in ("error", "aborted"):
            break
        if isinstance(message, ToolResult):
            fresh.append(item.entry)
    return frozenset(fresh)


def estimator_of(view: Snapshot) -> Estimator:
    """The session's estimator, as far as it has learned."""
    return Estimator(view.calibration, 0.08, 1) if view.calibration else Estimator()

"""Where a view may be cut: never between a call and its result.

Works on any view, repaired or not. The newest batch stays whole while it waits for an answer; a call
that was never answered and that the conversation went past holds nothing.
"""

from __future__ import annotations

from perdure.records import Assistant, Items, Message, ToolCall, ToolResult


def calls_of(message: Message) -> tuple[str, ...]:
    """Ids of the calls of an assistant message; those of a failed or aborted one never ran."""
    if not isinstance(message, Assistant) or message.stop in ("error", "aborted"):
        return ()
    return tuple(block.id for block in message.content if isinstance(block, ToolCall))


def boundaries(items: Items) -> list[bool]:
    """For each position 0 … n: whether the view may be cut before it (n: after the last item)."""
    free = [True] * (len(items) + 1)
    called: dict[str, int] = {}
    for at, item in enumerate(items):
        message = item.message
        if isinstance(message, ToolResult):
            free[at] = False
            start = called.get(message.call_id)
            if start is not None:
                _hold(free, start + 1, at)
            continue
        for call in calls_of(message):
            called[call] = at
    _hold_open_batch(items, free)
    return free


def _hold(free: list[bool], first: int, last: int) -> None:
    for at in range(first, last + 1):
        free[at] = False


def _hold_open_batch(items: Items, free: list[bool]) -> None:
    """Calls of the newest assistant message that wait for results: no cut behind it."""
    newest = next(
        (at for at in range(len(items) - 1, -1, -1) if isinstance(items[at].message, Assistant)), None
    )
    if newest is None:
        return
    answered = {m.call_id for item in items[newest:] if isinstance(m := item.message, ToolResult)}
    if any(call not in answered for call in calls_of(items[newest].message)):
        for at in range(newest + 1, len(items) + 1):
            free[at] = False

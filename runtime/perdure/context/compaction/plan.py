"""What a compaction covers and what it keeps, decided on the view by the one estimator.

The kept tail begins at a batch boundary. What no call has shown yet is never covered. The running
turn's user message is kept, or, where the turn outgrew the tail, pinned: carried byte for byte.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias

from perdure.context.compaction.batches import boundaries, calls_of
from perdure.context.numbers import Limits
from perdure.context.tokens.estimator import Estimator
from perdure.records import Assistant, Custom, Item, Items, Record, Summary, Text, User

Why: TypeAlias = Literal["empty", "only a summary", "fits the kept tail", "nothing but the newest turn"]
Weigh: TypeAlias = Callable[[Item], int]
_NO_PINS: Mapping[str, str] = {}


class Pin(Record):
    """A text that must stand in the summary byte for byte, and the entry it comes from."""

    entry: str
    text: str


class Plan(Record):
    """One compaction. `before` is the whole view; `covered` + `kept` are it without the old summary."""

    before: Items
    covered: Items
    kept: Items
    first_kept: str
    previous: str = ""
    pins: tuple[Pin, ...] = ()
    split_turn: bool = False


class Nothing(Record):
    """There is nothing to compact, and why: a verdict for this view."""

    reason: Why


def plan(
    items: Items,
    *,
    limits: Limits,
    estimator: Estimator,
    unseen: frozenset[str] = frozenset(),
    keep: int | None = None,
    running: bool = False,
    force: bool = False,
    pinned: Mapping[str, str] = _NO_PINS,
) -> Plan | Nothing:
    """Choose the cut.

    `keep`: tokens of the tail, the rule's if `None`. `running`: a turn is under way. `force`: a person
    asked or a request overflows, so that a view within the tail is cut before its last turn. `pinned`:
    texts by entry id, among them what an earlier compaction pinned for a turn that still runs.
    """
    old, view = _previous(items)
    if not view:
        return Nothing("only a summary" if old is not None else "empty")
    free = _allowed(view, unseen)
    at = cut(view, limits.kept_tail if keep is None else keep, estimator.item, free)
    if at == 0 and force:
        at = _last_turn(view, free)
    if at == 0:
        alone = not any(free[1 : len(view)])
        return Nothing("nothing but the newest turn" if alone else "fits the kept tail")
    planned = _planned(items, old, at, running, pinned)
    if running and all(any(item.entry == pin.entry for pin in planned.pins) for item in planned.covered):
        return Nothing("nothing but the newest turn")  # pins only: a summary of them can't be smaller
    return planned


def planned_at(
    items: Items,
    at: int,
    *,
    running: bool,
    pinned: Mapping[str, str] = _NO_PINS,
    unseen: frozenset[str] = frozenset(),
) -> Plan | Nothing:
    """The plan of a cut before `items[at]` that somebody else chose, if a cut may be there."""
    old, view = _previous(items)
    at -= old is not None
    if not 0 < at < len(view) or not _allowed(view, unseen)[at]:
        return Nothing("nothing but the newest turn")
    return _planned(items, old, at, running, pinned)


def _previous(items: Items) -> tuple[Summary | None, Items]:
    if items and isinstance(items[0].message, Summary):
        return items[0].message, items[1:]
    return None, items


def _planned(items: Items, old: Summary | None, at: int, running: bool, pinned: Mapping[str, str]) -> Plan:
    view = items if old is None else items[1:]
    covered, kept = view[:at], view[at:]
    staying = {item.entry for item in kept}
    pins = [Pin(entry, text) for entry, text in pinned.items() if entry not in staying]
    request = _open_request(covered, kept)
    if running:
        asked = _asked(covered, kept)
        pins += [Pin(item.entry, said(item)) for item in asked if item.entry not in pinned]
    return Plan(
        before=items,
        covered=covered,
        kept=kept,
        first_kept=next((item.entry for item in kept if item.entry), ""),
        previous=old.summary if old is not None else "",
        pins=tuple(pin for pin in pins if pin.text),
        split_turn=request is not None,
    )


def said(item: Item) -> str:
    """All text of a user's message."""
    message = item.message
    if not isinstance(message, (User, Custom)):
        return ""
    return "\n".join(block.text for block in message.content if isinstance(block, Text))


def _open_request(covered: Items, kept: Items) -> Item | None:
    """The user message of a turn that the cut goes through."""
    if any(isinstance(item.message, User) for item in kept[:1]):
        return None
    return next((item for item in reversed(covered) if isinstance(item.message, User)), None)


def _asked(covered: Items, kept: Items) -> list[Item]:
    """All that users said in the running turn and that is covered: its request, and what steered it.

    The turn goes back to the last answer that ended one; what stands there without any work behind it is
    an earlier message, which nobody works on.
    """
    found: list[Item] = []
    worked = False
    for at, item in reversed(list(enumerate(covered + kept))):
        message = item.message
        if isinstance(message, Assistant):
            if message.stop != "toolUse" and not calls_of(message):
                break
            worked = True
        elif worked and at < len(covered) and isinstance(message, User):
            found.insert(0, item)
    return found


def _allowed(view: Items, unseen: frozenset[str]) -> list[bool]:
    """Boundaries that leave everything unseen in the tail."""
    free = boundaries(view)
    fresh = next((at for at, item in enumerate(view) if item.entry in unseen), None)
    if fresh is not None:
        for at in range(fresh + 1, len(free)):
            free[at] = False
    return free


def cut(view: Items, keep: int, weigh: Weigh, free: list[bool]) -> int:
    """Where the kept tail begins; 0: nothing can be covered.

    Walks back until the tail holds `keep` tokens, then to the next boundary. What crosses the line is
    kept unless it is larger than the tail itself (or nothing would be left to cover): then it is
    covered, for a tail that is all one huge message saves nothing.
    """
    size = before = 0
    for at in range(len(view) - 1, -1, -1):
        before, size = size, size + weigh(view[at])
        if size < keep:
            continue
        chosen = _next(free, at, len(view))
        if size > 2 * keep or chosen in (0, None):
            behind = _next(free, at + 1, len(view))
            chosen = behind if behind is not None and before else chosen
        if chosen is None:  # the tail is one batch: cut before it, it stays whole
            chosen = _last(free, at)
        return chosen
    return 0


def _next(free: list[bool], first: int, end: int) -> int | None:
    return next((at for at in range(first, end) if free[at]), None)


def _last(free: list[bool], last: int) -> int:
    return next((at for at in range(last, 0, -1) if free[at]), 0)


def _last_turn(view: Items, free: list[bool]) -> int:
    """The last user message that can begin the tail, else the last boundary at all."""
    users = [at for at in range(1, len(view)) if free[at] and isinstance(view[at].message, User)]
    return users[-1] if users else _last(free, len(view) - 1)

"""Where the recent tail of a view begins: it grows until it is full, then it is cut in one jump. Pure.

Found as if the session were watched from its beginning, so that it depends on the view alone: between two
jumps every request begins with the bytes of the one before it, in every process.
"""

from __future__ import annotations

from perdure.plugins.engines import views
from perdure.records import Item, Items, Record, Summary, User


class Asked(Record):
    """A question that is searched for, and which entries stood beside it when it was asked."""

    item: Item
    beside: frozenset[str]


class Tail(Record):
    """`head`: summaries, which stay first. `asked`: questions in `items` that came when something was cut."""

    head: Items
    items: Items
    asked: tuple[Asked, ...]


def tail(view: Items, high: int, low: int, found: int) -> Tail:
    """The tail, cut to `low` tokens at each moment at which it has more than `high`.

    It is cut before a user's message; a turn that is too large alone, between its batches, and its question
    stays. `found`: the room that is held free before each question that is searched for.
    """
    covered = next((n for n, item in enumerate(view) if not isinstance(item.message, Summary)), len(view))
    head, rest = view[:covered], view[covered:]
    pieces: list[views.Atom] = []
    sizes: list[int] = []
    asked: dict[int, int] = {}  # place of a question → where the tail began then
    first = size = 0
    for piece in views.atoms(rest, high // 2):
        pieces.append(piece)
        sizes.append(piece.tokens)
        size += piece.tokens
        is_question = isinstance(rest[piece.start].message, User)
        if size > high or (is_question and size + found > high):
            first, size = _cut(rest, pieces, sizes, first, low)
        if is_question and (head or pieces[first].start > 0):
            asked[piece.start] = pieces[first].start
            sizes[-1] += found
            size += found
    start = pieces[first].start if pieces else 0
    items = _with_question(rest, start)
    inside = {item.entry for item in items}
    told = ((rest[at], begin, at) for at, begin in asked.items() if rest[at].entry in inside)
    return Tail(head, items, tuple(Asked(item, entries(rest[begin:at])) for item, begin, at in told))


def _cut(items: Items, pieces: list[views.Atom], sizes: list[int], first: int, low: int) -> tuple[int, int]:
    """The first piece that stays, and how much that leaves: of the newest turn what has room, at least the
    newest piece; of earlier ones whole turns.
    """
    at = best = len(pieces) - 1
    size = left = sizes[-1]
    while at > first and size + sizes[at - 1] <= low:
        at -= 1
        size += sizes[at]
        if pieces[at].turn == pieces[-1].turn or isinstance(items[pieces[at].start].message, User):
            best, left = at, size
    return best, left


def _with_question(items: Items, start: int) -> Items:
    """The tail; where it begins inside a turn, behind that turn's question."""
    found = items[start:]
    if not start or not found or isinstance(found[0].message, User):
        return found
    asked = next((item for item in reversed(items[:start]) if isinstance(item.message, User)), None)
    return found if asked is None else (asked, *found)


def entries(items: Items) -> frozenset[str]:
    """Ids of the entries that items stand for."""
    return frozenset(item.entry for item in items if item.entry)

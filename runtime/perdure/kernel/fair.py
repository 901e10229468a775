"""Who is served next, fairly. Pure: no clock, no waiting.

Start-time fair queueing in two levels (Goyal, Vin, Cheng 1996): classes (tenants) share by weight, and the
flows (sessions) of a class share it evenly. A class's tag is the work it has been given over its weight; the
smallest tag is served, and a class that comes back from rest starts at the present, so that nobody saves up.
Within a class what is due earlier goes first: a due date never moves, so nothing starves behind what is more
urgent. Two bands: `front` is served before `back`, which gets one turn in `EVERY` while both wait.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from heapq import heappop, heappush
from typing import Generic, Literal, TypeVar

T = TypeVar("T")
Band = Literal["front", "back"]
EVERY = 8  # of that many grants in a row at least one is for the band behind, where somebody waits in it


class Ticket(Generic[T]):
    """One place in the queue. `left`: given up or served; the heap passes over it."""

    __slots__ = ("band", "item", "kind", "left", "weight")

    def __init__(self, item: T, kind: str, band: Band, weight: float) -> None:
        self.item, self.kind, self.band, self.weight = item, kind, band, weight
        self.left = False


class _Class(Generic[T]):
    """The tickets of one class in one band: a heap by (due, the flow's tag, order of arrival)."""

    __slots__ = ("count", "flows", "heap", "tag", "virtual")

    def __init__(self, tag: float) -> None:
        self.tag = tag
        self.count = 0
        self.virtual = 0.0
        self.heap: list[tuple[float, float, int, Ticket[T]]] = []
        self.flows: dict[Hashable, float] = {}


class _Band(Generic[T]):
    """The classes that have somebody waiting, and the tags of those that may come back before the present."""

    def __init__(self) -> None:
        self.classes: dict[str, _Class[T]] = {}
        self.virtual = 0.0
        self.count = 0
        self.tags: dict[str, float] = {}
        self._heap: list[tuple[float, int, str]] = []  # an entry is stale where the class has another tag
        self._order = 0

    def join(self, kind: str) -> _Class[T]:
        found = self.classes.get(kind)
        if found is None:
            found = self.classes[kind] = _Class(max(self.virtual, self.tags.pop(kind, 0.0)))
            self.moved(kind, found)
        return found

    def moved(self, kind: str, to: _Class[T]) -> None:
        """Its tag has changed: enter it anew."""
        self._order += 1
        heappush(self._heap, (to.tag, self._order, kind))
        if len(self._heap) > 4 * len(self.classes) + 64:
            self._heap = sorted(entry for entry in self._heap if self._holds(entry))

    def first(self) -> str:
        """The class with the smallest tag; of equals the one that came to it first."""
        while not self._holds(self._heap[0]):
            heappop(self._heap)
        return self._heap[0][2]

    def _holds(self, entry: tuple[float, int, str]) -> bool:
        found = self.classes.get(entry[2])
        return found is not None and found.tag == entry[0]

    def leave(self, kind: str) -> None:
        """Nobody of that class waits: only a tag ahead of the present is worth remembering."""
        gone = self.classes.pop(kind)
        self.tags[kind] = gone.tag
        if len(self.tags) > 2 * len(self.classes) + 64:
            self.tags = {name: tag for name, tag in self.tags.items() if tag > self.virtual}


class FairQueue(Generic[T]):
    """`push`, `pop`, `remove`; at most `bound` wait for one class, `total` in all, both bands together."""

    def __init__(self, bound: int, total: int = 65_536) -> None:
        self.bound, self.total = bound, total
        self.refused = 0
        self._bands: dict[Band, _Band[T]] = {"front": _Band(), "back": _Band()}
        self._waiting: dict[str, int] = {}
        self._order = 0
        self._in_a_row = 0  # grants of the front band while somebody waited behind

    def __len__(self) -> int:
        return sum(band.count for band in self._bands.values())

    def waiting(self, kind: str) -> int:
        """How many of a class wait."""
        return self._waiting.get(kind, 0)

    def full(self, kind: str) -> bool:
        """Whether one more of this class would be refused."""
        return self.waiting(kind) >= self.bound or len(self) >= self.total

    def classes(self) -> Iterator[tuple[str, int]]:
        """Who waits, and how many of each."""
        yield from self._waiting.items()

    def push(
        self,
        item: T,
        kind: str,
        flow: Hashable,
        *,
        weight: float = 1.0,
        due: float = 0.0,
        band: Band = "front",
    ) -> Ticket[T] | None:
        """A place behind those of the same class and flow. None: the class has `bound` waiting already."""
        if self.full(kind):
            self.refused += 1
            return None
        ticket = Ticket(item, kind, band, weight)
        where = self._bands[band]
        joined = where.join(kind)
        tag = max(joined.virtual, joined.flows.get(flow, 0.0))
        joined.flows[flow] = tag + 1.0
        if len(joined.flows) > 2 * joined.count + 64:
            joined.flows = {name: tag for name, tag in joined.flows.items() if tag > joined.virtual}
        self._order += 1
        heappush(joined.heap, (due, tag, self._order, ticket))
        joined.count += 1
        where.count += 1
        self._waiting[kind] = self.waiting(kind) + 1
        return ticket

    def pop(self, *, back: bool = True) -> Ticket[T] | None:
        """Whose turn it is. `back` False: only the band in front."""
        band = self._band(back)
        if band is None:
            return None
        where = self._bands[band]
        kind = where.first()
        served = where.classes[kind]
        while True:
            _, tag, _, ticket = heappop(served.heap)
            if not ticket.left:
                break
        served.virtual = max(served.virtual, tag)
        where.virtual = max(where.virtual, served.tag)
        served.tag += 1.0 / ticket.weight
        where.moved(kind, served)
        self._take_out(ticket)
        return ticket

    def remove(self, ticket: Ticket[T]) -> bool:
        """Its owner gave up. False: it was served, or had left before."""
        if ticket.left:
            return False
        self._take_out(ticket)
        return True

    def charge(self, ticket: Ticket[T], more: float) -> None:
        """What was served cost `more` (or less) than the one unit that it was counted as."""
        where = self._bands[ticket.band]
        served, change = where.classes.get(ticket.kind), more / ticket.weight
        if served is not None:
            served.tag += change
            where.moved(ticket.kind, served)
        elif ticket.kind in where.tags:
            where.tags[ticket.kind] += change

    def _band(self, back: bool) -> Band | None:
        front, behind = self._bands["front"].count, self._bands["back"].count if back else 0
        if not front and not behind:
            return None
        if front and not (behind and self._in_a_row >= EVERY - 1):
            self._in_a_row = self._in_a_row + 1 if behind else 0
            return "front"
        self._in_a_row = 0
        return "back"

    def _take_out(self, ticket: Ticket[T]) -> None:
        ticket.left = True
        where = self._bands[ticket.band]
        where.count -= 1
        left = self._waiting[ticket.kind] - 1
        if left:
            self._waiting[ticket.kind] = left
        else:
            del self._waiting[ticket.kind]
        own = where.classes[ticket.kind]
        own.count -= 1
        if not own.count:
            where.leave(ticket.kind)
        elif len(own.heap) > 2 * own.count + 64:  # those who gave up must not pile up
            own.heap = sorted(entry for entry in own.heap if not entry[3].left)

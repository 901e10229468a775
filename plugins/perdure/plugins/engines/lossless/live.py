"""What is kept in memory of a session in use, so that a step costs its tail: bounded, remade at will."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence

from perdure.plugins.engines.lossless.pieces import Node, Raw, View, item_of
from perdure.plugins.engines.lossless.store import Ingested, Loaded
from perdure.records import Item, Items

SESSIONS, PIECES = 256, 100_000  # kept at most, over all sessions


class Live:
    """The view of one session, as it is stored in `version`.

    `head`: what stands before the last summary and that itself; `tail`: messages behind it, by entry. `edge`:
    entries just below the last summary, where a walk from the end may stop. `held`: messages of the head as
    the host gave them, for `model`. `weights`: tokens by entry, and how many were known when last weighed.
    `told`: entries that the host leaves out though they are on the path. `begins`: the message from which on
    nothing is covered, where the edge can't tell. `total`: tokens of the latest request; `given`: messages
    that the host had for it.
    """

    __slots__ = (
        "_names", "begins", "edge", "given", "head", "held", "model", "no", "notes", "summaries", "tail",
        "told", "total", "version", "weighed", "weights",
    )  # fmt: skip

    def __init__(self, loaded: Loaded, edge: Sequence[str], notes: dict[str, Item]) -> None:
        self.no, self.version = loaded.no, loaded.version
        last = max((at for at, piece in enumerate(loaded.view) if isinstance(piece, Node)), default=-1)
        self.head: View = loaded.view[: last + 1]
        self.tail: dict[str, Raw] = {p.entry: p for p in loaded.view[last + 1 :] if isinstance(p, Raw)}
        self.summaries = {p.key: item_of(p) for p in self.head if isinstance(p, Node)}
        self._names = {id(item.message): key for key, item in self.summaries.items()}
        self.edge, self.notes = set(edge), notes
        self.held: dict[str, Items] | None = None
        self.model = ""
        self.weights: dict[str, int] = {}
        self.weighed = 0
        self.told: set[str] = set()
        self.begins, self.total, self.given = "", 0, 0

    def weigh(self, items: Items, estimate: Callable[[Items], int]) -> int:
        """Tokens of a request. Each message is weighed once, and all again when there are twice as many:
        the session's estimator learns.
        """
        if len(self.weights) >= 2 * max(8, self.weighed):
            self.weights, self.weighed = {}, len(self.weights)
        self.total = sum(self._weight(item, estimate) for item in items)
        return self.total

    def _weight(self, item: Item, estimate: Callable[[Items], int]) -> int:
        key = item.entry or self._names.get(id(item.message), "")
        size = self.weights.get(key) if key else None
        if size is None:
            size = estimate((item,))
            if key:
                self.weights[key] = size
        return size

    @property
    def size(self) -> int:
        """Pieces held."""
        return len(self.head) + len(self.tail)

    def grow(self, done: Ingested) -> bool:
        """Take what was delivered; False where this is of another version."""
        if done.before != self.version:
            return False
        self.version = done.version
        self.tail.update((raw.entry, raw) for raw in done.added)
        return True


class Cache:
    """Sessions by id, the least lately used forgotten first."""

    def __init__(self) -> None:
        self._live: OrderedDict[str, Live] = OrderedDict()
        self._given: dict[str, int] = {}  # of views that were dropped, and not loaded again yet

    def __len__(self) -> int:
        return len(self._live)

    def __contains__(self, id: str) -> bool:
        return id in self._live

    def get(self, id: str) -> Live | None:
        found = self._live.get(id)
        if found is not None:
            self._live.move_to_end(id)
        return found

    def given(self, id: str) -> int:
        """How many messages the host had for the session's latest request; 0 where that isn't known."""
        live = self._live.get(id)
        return self._given.get(id, 0) if live is None else live.given

    def put(self, id: str, live: Live) -> None:
        live.given = self._given.pop(id, live.given)
        self._live[id] = live
        self._live.move_to_end(id)
        while len(self._live) > 1 and (
            len(self._live) > SESSIONS or sum(one.size for one in self._live.values()) > PIECES
        ):
            self._live.popitem(last=False)

    def drop(self, id: str) -> None:
        live = self._live.pop(id, None)
        if live is not None:
            if len(self._given) >= SESSIONS:
                self._given.clear()
            self._given[id] = live.given

    def clear(self) -> None:
        self._live.clear()
        self._given.clear()

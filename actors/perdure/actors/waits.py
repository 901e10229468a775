"""Who waits inside whose turn: a tool that awaits a reply that can't come is told at once, with the chain.

A letter to a session is answered when its turn ends, and a turn ends when its tools have: a tool of A's turn
that awaits A's reply, or B's while a tool of B's turn awaits A's, would wait for its deadline.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from perdure.errors import WaitCycle

_INSIDE: ContextVar[str] = ContextVar("perdure_inside_turn_of", default="")


@contextmanager
def inside(key: str) -> Iterator[None]:
    """What runs here holds up the turn of this session."""
    token = _INSIDE.set(key)
    try:
        yield
    finally:
        _INSIDE.reset(token)


class Waits:
    """Edges from sessions whose turns wait to those they wait for."""

    def __init__(self) -> None:
        self._edges: dict[str, Counter[str]] = {}

    @contextmanager
    def for_reply_of(self, key: str) -> Iterator[None]:
        """Raises `WaitCycle` where the reply can't come before this very wait ends."""
        waits = _INSIDE.get()
        if not waits:
            yield
            return
        chain = self._chain(key, waits)
        if chain:
            raise WaitCycle(f"{' -> '.join((waits, *chain))}: each waits for the next one's turn to end")
        edges = self._edges.setdefault(waits, Counter())
        edges[key] += 1
        try:
            yield
        finally:
            edges[key] -= 1
            if not edges[key]:
                del edges[key]
            if not edges:
                self._edges.pop(waits, None)

    def _chain(self, start: str, end: str) -> tuple[str, ...]:
        """The way from `start` to `end`, both included; empty: there is none."""
        ways: list[tuple[str, ...]] = [(start,)]
        seen = {start}
        while ways:
            way = ways.pop()
            if way[-1] == end:
                return way
            for further in self._edges.get(way[-1], ()):
                if further not in seen:
                    seen.add(further)
                    ways.append((*way, further))
        return ()

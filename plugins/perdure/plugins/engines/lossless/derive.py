"""The view as a function: the messages of a path, and all summaries ever made, in their order.

A summary holds where all its sources stand in the view one behind the other; else it is passed over, and
they stay. So the same history and the same summaries give the same view, whatever happened in between:
a store that was lost, a branch that was left and taken up again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

from perdure.plugins.engines.lossless.pieces import Node, Piece, Raw, View


def derive(path: Iterable[Raw], nodes: Iterable[Node]) -> View:
    """The view of `path` (oldest first) under `nodes` (in the order in which they were made)."""
    chain = _Chain(path)
    for node in nodes:
        chain.take(node)
    return tuple(chain)


class _Chain:
    """The pieces as a linked list, so that each summary costs what it covers."""

    def __init__(self, path: Iterable[Raw]) -> None:
        self._pieces: dict[str, Piece] = {raw.key: raw for raw in path}
        keys = ["", *self._pieces, ""]
        self._next = dict(pairwise(keys))
        self._before = {b: a for a, b in pairwise(keys)}

    def __iter__(self) -> Iterator[Piece]:
        key = self._next[""]
        while key:
            yield self._pieces[key]
            key = self._next[key]

    def take(self, node: Node) -> None:
        if node.key in self._pieces:
            return
        if node.replaces:
            old = self._pieces.get(f"s:{node.replaces}")
            if isinstance(old, Node) and old.sources == node.sources:
                self._put(node, (old.key,))
        elif self._holds(node.sources):
            self._put(node, node.sources)

    def _holds(self, keys: tuple[str, ...]) -> bool:
        if not keys or any(key not in self._pieces for key in keys):
            return False
        return all(self._next[a] == b for a, b in pairwise(keys))

    def _put(self, node: Node, covered: tuple[str, ...]) -> None:
        before, behind = self._before[covered[0]], self._next[covered[-1]]
        for key in covered:
            del self._pieces[key], self._next[key], self._before[key]
        self._pieces[node.key] = node
        self._next[before] = self._before[behind] = node.key
        self._next[node.key], self._before[node.key] = behind, before

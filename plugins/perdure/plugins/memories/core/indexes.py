"""The indexes of all agents: opened when they are needed, a bounded number at once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import TypeVar
from urllib.parse import quote

from perdure.edges import sqlite
from perdure.errors import DamagedStore
from perdure.plugins.memories.core.index import Index
from perdure.plugins.search.embedding import HashedNgrams
from perdure.plugins.search.store import Kind

T = TypeVar("T")
MOST = 32
"""Indexes that are open at once, beside those in use."""


class Indexes:
    """Files `<agent>.sqlite` in `folder`. Any thread may call; one agent's calls take turns."""

    def __init__(self, folder: Path, vectors: Kind, *, virtual: bool) -> None:
        self._folder, self._vectors, self._virtual = folder, vectors, virtual
        self.embedder = HashedNgrams()
        self._lock = Lock()
        self._turns: dict[str, list[Lock]] = {}
        self._open: OrderedDict[str, Index] = OrderedDict()

    def use(self, agent: str, work: Callable[[Index], T]) -> T:
        """Do it with the agent's index. One that proves damaged is thrown away and made again, once."""
        with self._turn(agent):
            try:
                return work(self._index(agent))
            except DamagedStore:
                self._close(agent)
                sqlite.discard(self.path(agent))
                return work(self._index(agent))

    def path(self, agent: str) -> Path:
        """Where an agent's index is."""
        name = quote(agent, safe="", errors="surrogatepass")
        if len(name) > 150:
            name = sha256(agent.encode("utf-8", "surrogatepass")).hexdigest()
        return self._folder / f"{name}.sqlite"

    def close(self) -> None:
        """Close all; each call opens its own again."""
        for agent in list(self._open):
            with self._turn(agent):
                self._close(agent)

    @contextmanager
    def _turn(self, agent: str) -> Iterator[None]:
        """Alone with an agent's index; who waits is counted, so that no lock outlives its use."""
        with self._lock:
            waiting = self._turns.setdefault(agent, [Lock()])
            waiting.append(waiting[0])
        try:
            with waiting[0]:
                yield
        finally:
            with self._lock:
                waiting.pop()
                if len(waiting) == 1:
                    del self._turns[agent]
            self._shrink()

    def _index(self, agent: str) -> Index:
        with self._lock:
            index = self._open.get(agent)
            if index is not None:
                self._open.move_to_end(agent)
                return index
        made = Index(self.path(agent), self.embedder, vectors=self._vectors, virtual=self._virtual)
        with self._lock:
            self._open[agent] = made
        return made

    def _shrink(self) -> None:
        with self._lock:
            idle = [agent for agent in self._open if agent not in self._turns]
            excess = [self._open.pop(agent) for agent in idle[: max(0, len(self._open) - MOST)]]
        for index in excess:
            index.close()

    def _close(self, agent: str) -> None:
        with self._lock:
            index = self._open.pop(agent, None)
        if index is not None:
            index.close()

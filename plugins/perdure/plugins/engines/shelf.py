"""Open stores by name, a few at once: a session that sleeps owns no descriptor and no cache of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Generic, Protocol, TypeVar


class Closable(Protocol):
    def close(self) -> None: ...


S = TypeVar("S", bound=Closable)


class Shelf(Generic[S]):
    """Keeps the last `most` stores open; one in use is never closed. From any thread."""

    def __init__(self, make: Callable[[str], S], most: int = 8) -> None:
        self._make, self._most = make, most
        self._open: dict[str, S] = {}  # the least lately used first
        self._users: dict[str, int] = {}
        self._lock = Lock()

    @contextmanager
    def store(self, name: str) -> Iterator[S]:
        """The store of this name, opened or made. Raises what `make` raises."""
        with self._lock:
            found = self._open.pop(name, None)
            self._open[name] = store = self._make(name) if found is None else found
            self._users[name] = self._users.get(name, 0) + 1
        try:
            yield store
        finally:
            with self._lock:
                self._users[name] -= 1
                if not self._users[name]:
                    del self._users[name]
                self._close([each for each in self._open if each not in self._users][: -self._most])

    def let_go(self, name: str) -> None:
        """Close a store that nobody uses, so that its file may be moved or deleted."""
        with self._lock:
            self._close([name] if name in self._open and name not in self._users else [])

    def close(self) -> None:
        """Close all that are not in use."""
        with self._lock:
            self._close([name for name in self._open if name not in self._users])

    def __len__(self) -> int:
        return len(self._open)

    def _close(self, names: list[str]) -> None:
        for name in names:
            self._open.pop(name).close()

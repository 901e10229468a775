"""Which context engines there are: ids, factories and owners; the last resort is always `legacy`.

An entry point in group `perdure.plugins` names a function `register(api)`. A plugin is loaded only when a
slot or a session selects one of its engines.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Protocol

from perdure.contracts import ContextEngine
from perdure.errors import PerdureError, UnknownEngine
from perdure.plugins.legacy import LegacyEngine

Factory = Callable[[], ContextEngine]
GROUP = "perdure.plugins"
CORE = "core"
RESERVED = {"legacy": CORE}


class Api(Protocol):
    """What a plugin's `register` gets."""

    def register_context_engine(self, id: str, factory: Factory) -> None: ...


class Registry:
    """Engines by id. Registering an id again is allowed to its owner only."""

    def __init__(self) -> None:
        self._factories: dict[str, tuple[str, Factory]] = {"legacy": (CORE, LegacyEngine)}
        self._loaded: set[str] = set()

    def register(self, id: str, factory: Factory, owner: str) -> None:
        """Raises `PerdureError` for a reserved id, or one that another owner has."""
        holder = RESERVED.get(id) or self._factories.get(id, (owner,))[0]
        if holder != owner:
            raise PerdureError(f"context engine {id!r} belongs to {holder!r}: {owner!r} can't register it")
        self._factories[id] = (owner, factory)

    def ids(self) -> tuple[str, ...]:
        """All ids that can be chosen now, sorted; installed plugins included."""
        installed = {point.name for point in entry_points(group=GROUP)}
        return tuple(sorted({*self._factories, *installed}))

    def create(self, id: str) -> ContextEngine:
        """An engine. Raises `UnknownEngine`; what a factory raises passes through."""
        if id not in self._factories:
            self._load(id)
        if id not in self._factories:
            raise UnknownEngine(f"context engine {id!r} is not known: one of {', '.join(self.ids())}")
        engine = self._factories[id][1]()
        if not isinstance(engine, ContextEngine):
            raise PerdureError(f"context engine {id!r} lacks info, ingest, assemble or compact")
        return engine

    def _load(self, id: str) -> None:
        for point in entry_points(group=GROUP):
            if point.name == id and point.value not in self._loaded:
                self._loaded.add(point.value)
                point.load()(_Owned(self, f"plugin:{point.name}"))


class _Owned:
    def __init__(self, registry: Registry, owner: str) -> None:
        self._registry, self._owner = registry, owner

    def register_context_engine(self, id: str, factory: Factory) -> None:
        self._registry.register(id, factory, self._owner)

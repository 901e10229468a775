"""What can fill a slot: context engines and compaction triggers, by id, with factories and owners.

An entry point in group `perdure.plugins` names a function `register(api)`. A plugin is loaded only when a
slot or a session selects its id. The last resort is always the core's: `legacy`, `auto`.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Generic, Protocol, TypeVar

from perdure.contracts import CompactionTrigger, ContextEngine
from perdure.errors import PerdureError, UnknownEngine
from perdure.plugins.legacy import LegacyEngine
from perdure.plugins.triggers import Auto, Manual

Factory = Callable[[], ContextEngine]
TriggerFactory = Callable[[], CompactionTrigger]
GROUP = "perdure.plugins"
CORE = "core"
RESERVED = frozenset({"legacy", "auto", "manual"})
T = TypeVar("T")


class Api(Protocol):
    """What a plugin's `register` gets."""

    def register_context_engine(self, id: str, factory: Factory) -> None: ...
    def register_compaction_trigger(self, id: str, factory: TriggerFactory) -> None: ...


class Kind(Generic[T]):
    """What is registered for one slot. An id may be registered again by its owner only."""

    def __init__(self, name: str, protocol: type, **core: Callable[[], T]) -> None:
        self.name, self.protocol = name, protocol
        self.factories: dict[str, tuple[str, Callable[[], T]]] = {
            id: (CORE, make) for id, make in core.items()
        }

    def register(self, id: str, factory: Callable[[], T], owner: str) -> None:
        """Raises `PerdureError` for a reserved id, or one that another owner has."""
        holder = CORE if id in RESERVED else self.factories.get(id, (owner,))[0]
        if holder != owner:
            raise PerdureError(f"{self.name} {id!r} belongs to {holder!r}: {owner!r} can't register it")
        self.factories[id] = (owner, factory)

    def make(self, id: str, known: tuple[str, ...]) -> T:
        """Raises `UnknownEngine`; what a factory raises passes through."""
        if id not in self.factories:
            raise UnknownEngine(f"{self.name} {id!r} is not known: one of {', '.join(known)}")
        made = self.factories[id][1]()
        if not isinstance(made, self.protocol):
            lacks = sorted(n for n in vars(self.protocol) if n[0] != "_" and not hasattr(made, n))
            raise PerdureError(f"{self.name} {id!r} lacks {', '.join(lacks)}")
        return made


class Registry:
    """All kinds of plugins of a host."""

    def __init__(self) -> None:
        self._engines: Kind[ContextEngine] = Kind("context engine", ContextEngine, legacy=LegacyEngine)
        self._triggers: Kind[CompactionTrigger] = Kind(
            "compaction trigger", CompactionTrigger, auto=Auto, manual=Manual
        )
        self._loaded: set[str] = set()

    def register(self, id: str, factory: Factory, owner: str) -> None:
        """A context engine. Raises `PerdureError` where the id is another owner's."""
        self._engines.register(id, factory, owner)

    def register_trigger(self, id: str, factory: TriggerFactory, owner: str) -> None:
        """A compaction trigger. Raises `PerdureError` where the id is another owner's."""
        self._triggers.register(id, factory, owner)

    def ids(self) -> tuple[str, ...]:
        """Ids of engines that can be chosen now, sorted; installed plugins included."""
        return _known(self._engines)

    def triggers(self) -> tuple[str, ...]:
        """Ids of compaction triggers that can be chosen now, sorted; installed plugins included."""
        return _known(self._triggers)

    def create(self, id: str) -> ContextEngine:
        """An engine. Raises `UnknownEngine`; what a factory raises passes through."""
        return self._create(self._engines, id)

    def trigger(self, id: str) -> CompactionTrigger:
        """A compaction trigger. Raises `UnknownEngine`; what a factory raises passes through."""
        return self._create(self._triggers, id)

    def _create(self, kind: Kind[T], id: str) -> T:
        if id not in kind.factories:
            self._load(id)
        return kind.make(id, _known(kind))

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

    def register_compaction_trigger(self, id: str, factory: TriggerFactory) -> None:
        self._registry.register_trigger(id, factory, self._owner)


def _known(kind: Kind[T]) -> tuple[str, ...]:
    installed = {point.name for point in entry_points(group=GROUP)}
    return tuple(sorted({*kind.factories, *installed}))

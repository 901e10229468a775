"""What can fill a slot: context engines, memories and compaction triggers, by id, with factories and owners.

An entry point in group `perdure.plugins` names a function `register(api)`. A plugin is loaded only when a
slot or a session selects its id. The last resort is always the core's: `legacy`, `auto`, no memory.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Generic, Protocol, TypeAlias, TypeVar

from perdure.contracts import CompactionTrigger, ContextEngine, Memory, PluginRuntime
from perdure.errors import PerdureError, UnknownEngine
from perdure.plugins.shipped import ENGINES, MEMORIES, TRIGGERS

Factory: TypeAlias = Callable[[], ContextEngine] | Callable[[PluginRuntime], ContextEngine]
MemoryFactory: TypeAlias = Callable[[], Memory] | Callable[[PluginRuntime], Memory]
TriggerFactory: TypeAlias = Callable[[], CompactionTrigger]
GROUP = "perdure.plugins"
CORE = "core"
RESERVED = frozenset({"legacy", "auto", "manual", "none"})
T = TypeVar("T")


class Api(Protocol):
    """What a plugin's `register` gets. A factory takes nothing, or what its plugin is lent."""

    def register_context_engine(self, id: str, factory: Factory) -> None: ...
    def register_memory(self, id: str, factory: MemoryFactory) -> None: ...
    def register_compaction_trigger(self, id: str, factory: TriggerFactory) -> None: ...


class Kind(Generic[T]):
    """What is registered for one slot. An id may be registered again by its owner only."""

    def __init__(self, name: str, protocol: type, core: dict[str, Callable[..., T]]) -> None:
        self.name, self.protocol = name, protocol
        self.factories = {id: (CORE, make) for id, make in core.items()}

    def register(self, id: str, factory: Callable[..., T], owner: str) -> None:
        """Raises `PerdureError` for a reserved id, or one that another owner has."""
        holder = CORE if id in RESERVED else self.factories.get(id, (owner,))[0]
        if holder != owner:
            raise PerdureError(f"{self.name} {id!r} belongs to {holder!r}: {owner!r} can't register it")
        self.factories[id] = (owner, factory)

    def make(self, id: str, known: tuple[str, ...], lent: PluginRuntime | None) -> T:
        """Raises `UnknownEngine`; what a factory raises passes through."""
        if id not in self.factories:
            raise UnknownEngine(f"{self.name} {id!r} is not known: one of {', '.join(known)}")
        factory = self.factories[id][1]
        made = factory(lent) if lent is not None and takes_one(factory) else factory()
        checked: object = made
        if not isinstance(checked, self.protocol):
            lacks = sorted(n for n in vars(self.protocol) if n[0] != "_" and not hasattr(made, n))
            raise PerdureError(f"{self.name} {id!r} lacks {', '.join(lacks)}")
        return made


class Registry:
    """All kinds of plugins of a host."""

    def __init__(self) -> None:
        self._engines: Kind[ContextEngine] = Kind("context engine", ContextEngine, dict(ENGINES))
        self._memories: Kind[Memory] = Kind("memory", Memory, dict(MEMORIES))
        self._triggers: Kind[CompactionTrigger] = Kind(
            "compaction trigger", CompactionTrigger, dict(TRIGGERS)
        )
        self._loaded: set[str] = set()

    def register(self, id: str, factory: Factory, owner: str) -> None:
        """A context engine. Raises `PerdureError` where the id is another owner's."""
        self._engines.register(id, factory, owner)

    def register_memory(self, id: str, factory: MemoryFactory, owner: str) -> None:
        """A memory. Raises `PerdureError` where the id is another owner's."""
        self._memories.register(id, factory, owner)

    def register_trigger(self, id: str, factory: TriggerFactory, owner: str) -> None:
        """A compaction trigger. Raises `PerdureError` where the id is another owner's."""
        self._triggers.register(id, factory, owner)

    def ids(self) -> tuple[str, ...]:
        """Ids of engines that can be chosen now, sorted; installed plugins included."""
        return _known(self._engines)

    def memories(self) -> tuple[str, ...]:
        """Ids of memories that can be chosen now, sorted; installed plugins included."""
        return _known(self._memories)

    def triggers(self) -> tuple[str, ...]:
        """Ids of compaction triggers that can be chosen now, sorted; installed plugins included."""
        return _known(self._triggers)

    def owner(self, id: str) -> str:
        """Who registered the engine `id`; "" where it is not loaded."""
        return self._engines.factories.get(id, ("",))[0]

    def create(self, id: str, lent: PluginRuntime | None = None) -> ContextEngine:
        """An engine. Raises `UnknownEngine`; what a factory raises passes through."""
        return self._create(self._engines, id, lent)

    def memory(self, id: str, lent: PluginRuntime | None = None) -> Memory:
        """A memory. Raises `UnknownEngine`; what a factory raises passes through."""
        return self._create(self._memories, id, lent)

    def trigger(self, id: str) -> CompactionTrigger:
        """A compaction trigger. Raises `UnknownEngine`; what a factory raises passes through."""
        return self._create(self._triggers, id, None)

    def _create(self, kind: Kind[T], id: str, lent: PluginRuntime | None) -> T:
        if id not in kind.factories:
            self._load(id)
        return kind.make(id, _known(kind), lent)

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

    def register_memory(self, id: str, factory: MemoryFactory) -> None:
        self._registry.register_memory(id, factory, self._owner)

    def register_compaction_trigger(self, id: str, factory: TriggerFactory) -> None:
        self._registry.register_trigger(id, factory, self._owner)


def takes_one(factory: Callable[..., object]) -> bool:
    """Whether a factory has a place for what its plugin is lent."""
    try:
        places = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):  # a builtin, or a class that hides its signature
        return False
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return any(place.kind in positional for place in places)


def _known(kind: Kind[T]) -> tuple[str, ...]:
    installed = {point.name for point in entry_points(group=GROUP)}
    return tuple(sorted({*kind.factories, *installed}))

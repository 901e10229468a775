"""The plugins that come with perdure, by slot and id. A factory imports what it makes when it is called."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from perdure.plugins.legacy import LegacyEngine
from perdure.plugins.no_memory import NoMemory
from perdure.plugins.triggers import Auto, Manual


def _lossless(lent: Any) -> Any:
    from perdure.plugins.lossless.engine import Lossless

    return Lossless(lent)


def _memory_core(lent: Any) -> Any:
    from perdure.plugins.memory_core.memory import MemoryCore

    return MemoryCore(lent)


ENGINES: Mapping[str, Callable[..., Any]] = {"legacy": LegacyEngine, "lossless": _lossless}
MEMORIES: Mapping[str, Callable[..., Any]] = {"none": NoMemory, "memory-core": _memory_core}
TRIGGERS: Mapping[str, Callable[..., Any]] = {"auto": Auto, "manual": Manual}

"""The plugins that come with perdure, by slot and id. A factory imports what it makes when it is called."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from perdure.contracts import PluginRuntime
from perdure.plugins.engines.legacy import LegacyEngine
from perdure.plugins.memories.nothing import NoMemory
from perdure.plugins.triggers import Auto, Manual

Make = Callable[..., Any]


def _later(where: str) -> Make:
    """A factory for the class at `module:Name`, below this package."""
    module, _, name = where.partition(":")

    def make(lent: PluginRuntime) -> Any:
        return getattr(import_module(f"perdure.plugins.{module}"), name)(lent)

    return make


ENGINES: Mapping[str, Make] = {
    "legacy": LegacyEngine,
    "lossless": _later("engines.lossless.engine:Lossless"),
    "similarity": _later("engines.similarity:Similarity"),
    "cross-session": _later("engines.cross_session.engine:CrossSession"),
    "retrieval": _later("engines.retrieval.engine:Retrieval"),
}
MEMORIES: Mapping[str, Make] = {
    "none": NoMemory,
    "memory-core": _later("memories.core.memory:MemoryCore"),
    "memory-graph": _later("memories.graph.memory:GraphMemory"),
    "memory-markdown": _later("memories.markdown.memory:MarkdownMemory"),
    "memory-vector": _later("memories.vector.memory:VectorMemory"),
}
TRIGGERS: Mapping[str, Make] = {"auto": Auto, "manual": Manual}

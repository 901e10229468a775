"""The plugins that come with perdure, by slot and id. A factory imports what it makes when it is called."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from perdure.contracts import PluginRuntime
from perdure.plugins.legacy import LegacyEngine
from perdure.plugins.no_memory import NoMemory
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
    "lossless": _later("lossless.engine:Lossless"),
    "similarity": _later("similarity:Similarity"),
    "cross-session": _later("cross_session.engine:CrossSession"),
    "retrieval": _later("retrieval.engine:Retrieval"),
}
MEMORIES: Mapping[str, Make] = {
    "none": NoMemory,
    "memory-core": _later("memory_core.memory:MemoryCore"),
    "memory-graph": _later("memory_graph.memory:GraphMemory"),
    "memory-markdown": _later("memory_markdown.memory:MarkdownMemory"),
    "memory-vector": _later("memory_vector.memory:VectorMemory"),
}
TRIGGERS: Mapping[str, Make] = {"auto": Auto, "manual": Manual}

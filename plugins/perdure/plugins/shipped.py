"""The plugins that come with perdure, by slot and id. A factory imports what it makes when it is called."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from perdure.contracts import Memory, PluginRuntime
from perdure.plugins.legacy import LegacyEngine
from perdure.plugins.no_memory import NoMemory
from perdure.plugins.triggers import Auto, Manual


def _graph(lent: PluginRuntime) -> Memory:
    from perdure.plugins.memory_graph.memory import GraphMemory

    return GraphMemory(lent)


def _markdown(lent: PluginRuntime) -> Memory:
    from perdure.plugins.memory_markdown.memory import MarkdownMemory

    return MarkdownMemory(lent)


def _vector(lent: PluginRuntime) -> Memory:
    from perdure.plugins.memory_vector.memory import VectorMemory

    return VectorMemory(lent)


ENGINES: Mapping[str, Callable[..., Any]] = {"legacy": LegacyEngine}
MEMORIES: Mapping[str, Callable[..., Any]] = {
    "none": NoMemory,
    "memory-graph": _graph,
    "memory-markdown": _markdown,
    "memory-vector": _vector,
}
TRIGGERS: Mapping[str, Callable[..., Any]] = {"auto": Auto, "manual": Manual}

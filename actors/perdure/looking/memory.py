"""The memory that a host would have, for commands that only look: its tools and words, no call of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from perdure.actors.engines.lent import Lent
from perdure.actors.memories.chosen import Chosen, choose, slot_of
from perdure.actors.services import Services
from perdure.edges.forgetting import PLUGINS
from perdure.edges.settings import Settings
from perdure.edges.state import StateFolder
from perdure.edges.tools.builtin import default_tools
from perdure.errors import UsageError
from perdure.plugins.registry import Registry
from perdure.records import LedgerLine

UNASKED = "memory: what it recalls for the next message enters here; it is asked by a host only"


class Looked(Lent):
    """What a plugin is lent where nothing may be changed: a folder that is not made, and no host."""

    @property
    def store(self) -> Path:
        """The plugin's folder, whether it is there or not."""
        return self._state / PLUGINS / self.name


def remembering(settings: Settings, folder: StateFolder, lend: Callable[[str], Lent] | None = None) -> Chosen:
    """As `[plugins.slots] memory` says; `trouble` where a host would go on without, or not start."""
    plugins, tools = settings.plugins, settings.tools
    registry = Registry()

    def looked(id: str) -> Lent:
        return Looked(id, folder.path, plugins.options(id), no_host)

    return choose(
        slot_of(plugins.slots.memory),
        None,
        lambda id: registry.memory(id, (lend or looked)(id)),
        strict=False,
        taken=frozenset(tool.spec.name for tool in default_tools(settings)),
        allow=tools.allow,
        deny=tools.deny,
    )


def unasked(settings: Settings, chosen: Chosen) -> tuple[LedgerLine, ...]:
    """A line for what the request of a host would hold besides."""
    told = settings.memory
    recalls = told.recall == "auto" and hasattr(chosen.memory, "recall")
    rule = f"{UNASKED}, at most {told.recall_chars:,} characters"
    return (LedgerLine("", "left_out", rule, 0, "dynamic"),) if recalls else ()


def no_host() -> Services:
    raise UsageError("a command that only looks has no host to lend")

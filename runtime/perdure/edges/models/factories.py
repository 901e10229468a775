"""Which provider's models are made by what: the vendors this runtime speaks to, and the scripted one."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from perdure.contracts import Model
from perdure.edges.models.accounting import Accounting
from perdure.edges.models.anthropic import AnthropicModel
from perdure.edges.models.scripted import Pace, ScriptedModel
from perdure.edges.models.sources import demo_source
from perdure.records import ModelInfo


def default_factories(clock: Pace) -> Mapping[str, Callable[[ModelInfo], Model]]:
    """By provider. Vendor SDKs are imported when their first model is called, not here."""
    accounting = Accounting()
    return {
        "scripted": lambda info: ScriptedModel(info, demo_source, clock, accounting=accounting),
        "anthropic": lambda info: AnthropicModel(info, clock=clock),
    }

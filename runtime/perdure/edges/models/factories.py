"""How a host makes the models of each provider; the vendors' SDKs wait for the first request."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from perdure.contracts import Model
from perdure.edges.models.accounting import Accounting
from perdure.edges.models.anthropic import AnthropicModel
from perdure.edges.models.scripted import ScriptedModel
from perdure.edges.models.sources import demo_source
from perdure.kernel.clock import Clock
from perdure.records import ModelInfo


def default_factories(clock: Clock, environ: Mapping[str, str]) -> dict[str, Callable[[ModelInfo], Model]]:
    """Provider → maker of a model. Keys and addresses come from `environ`; scripted models share a cache."""
    books = Accounting()

    def scripted(info: ModelInfo) -> Model:
        return ScriptedModel(info, demo_source, clock, accounting=books)

    def anthropic(info: ModelInfo) -> Model:
        key, url = environ.get("ANTHROPIC_API_KEY") or None, environ.get("ANTHROPIC_BASE_URL") or None
        return AnthropicModel(info, api_key=key, base_url=url, clock=clock)

    return {"scripted": scripted, "anthropic": anthropic}

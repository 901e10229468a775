"""A context engine that keeps older turns by the words they share with the question."""

from __future__ import annotations

from perdure.plugins.registry import Api
from perdure_keyword_engine.engine import KeywordEngine

__all__ = ["KeywordEngine", "register"]


def register(api: Api) -> None:
    """Called once, when a slot or a session selects `keyword`."""
    api.register_context_engine("keyword", KeywordEngine)

"""The engine: the newest turns, and of the older ones those that share most words with the question."""

from __future__ import annotations

from perdure.contracts import Assembled, EngineContext, EngineInfo, PluginRuntime
from perdure.plugins.base import Engine, flat, turns
from perdure.plugins.options import read
from perdure.records import Items, Record, Text
from perdure_keyword_engine.words import words


class Settings(Record):
    """`[plugins.config.keyword]`. `newest`: turns that stay in any case, if they fit."""

    newest: int = 6


class KeywordEngine(Engine):
    """Stores nothing: it chooses among what the host hands it, and only where not everything fits."""

    info = EngineInfo("keyword", "Keyword engine", "0.1.0", passive=True)

    def __init__(self, lent: PluginRuntime | None = None) -> None:
        super().__init__(lent)
        self.settings = read(Settings, lent.settings, "keyword") if lent is not None else Settings()

    async def assemble(self, context: EngineContext, messages: Items) -> Assembled:
        """Everything that fits; else the running turn, the newest, then the most alike, in their order."""
        if context.runtime.estimate(messages) <= context.token_budget:
            return Assembled(messages)
        parts = turns(messages)
        chosen, room = set[int](), context.token_budget
        for n in self._ranked(parts, context.prompt):
            size = context.runtime.estimate(parts[n])
            if not chosen or size <= room:
                chosen.add(n)
                room -= size
        context.runtime.log("chose", turns=len(chosen), of=len(parts))
        return Assembled(flat(parts[n] for n in sorted(chosen)))

    def _ranked(self, parts: tuple[Items, ...], prompt: str) -> list[int]:
        newest = list(range(len(parts) - 1, -1, -1))
        asked = words(prompt)
        alike = {n: len(asked & words(text_of(parts[n]))) for n in newest[self.settings.newest :]}
        return newest[: self.settings.newest] + sorted(
            (n for n in alike if alike[n]), key=lambda n: (-alike[n], -n)
        )


def text_of(messages: Items) -> str:
    """The text blocks of a turn."""
    blocks = (block for item in messages for block in getattr(item.message, "content", ()))
    return "\n".join(block.text for block in blocks if isinstance(block, Text))

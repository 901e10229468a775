"""What a host would lend a plugin, for tests of engines and memories without a host."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from perdure.context.tokens.estimator import Estimator
from perdure.contracts import EngineContext, Replacement, Rewritten
from perdure.records import Items, ModelInfo

T = TypeVar("T")


class FakeRuntime:
    """An `EngineRuntime` with a folder, a clock that stands until it is moved, and a scripted model.

    `stored`: what `history` reads from; `answer(prompt, system)` is the model; `logged` and `rewritten`
    hold what the plugin did. Blocking work runs inline.
    """

    virtual = True

    def __init__(
        self,
        store: Path,
        settings: Mapping[str, Any] | None = None,
        *,
        answer: Callable[[str, str], str] = lambda prompt, system: prompt[:200],
        now: int = 1_767_600_000_000,
    ) -> None:
        store.mkdir(parents=True, exist_ok=True)
        self.store, self.settings, self.answer, self.now = store, settings or {}, answer, now
        self.stored: Items = ()
        self.asked: list[tuple[str, str, str]] = []
        self.logged: list[tuple[str, dict[str, object]]] = []
        self.rewritten: list[tuple[Replacement, ...]] = []

    def wall_ms(self) -> int:
        return self.now

    async def run_blocking(self, work: Callable[[], T]) -> T:
        return work()

    async def complete(self, key: str, prompt: str, *, system: str = "", max_tokens: int = 2_000) -> str:
        self.asked.append((key, prompt, system))
        return self.answer(prompt, system)

    def log(self, event: str, **fields: object) -> None:
        self.logged.append((event, fields))

    def estimate(self, items: Items) -> int:
        return sum(map(Estimator().item, items))

    async def history(self, after: str = "", limit: int = 1_000) -> Items:
        ids = [item.entry for item in self.stored]
        if after and after not in ids:
            raise LookupError(f"{after} is no entry of this session's branch")
        start = ids.index(after) + 1 if after else 0
        return self.stored[start : start + limit]

    async def rewrite_transcript_entries(self, replacements: tuple[Replacement, ...]) -> Rewritten:
        self.rewritten.append(replacements)
        return Rewritten(bool(replacements), len(replacements))


def engine_context(
    runtime: FakeRuntime,
    *,
    key: str = "agent:main:cli:dm:test",
    id: str = "session-1",
    budget: int = 24_000,
    prompt: str = "",
    model: ModelInfo | None = None,
) -> EngineContext:
    """What an engine call is told, for a test."""
    return EngineContext(id, key, f"{id}.jsonl", budget, runtime, model, prompt)

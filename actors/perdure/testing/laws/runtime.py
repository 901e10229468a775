"""What the laws lend an engine: a `FakeRuntime` that runs blocking work in threads and can be made to fail.

Time stands unless a law moves it. Entries are rewritten in `maintain` only, in the driver's log.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

import anyio
from anyio.lowlevel import checkpoint

from perdure.contracts import Replacement, Rewritten
from perdure.errors import ModelError, UsageError
from perdure.records import Items
from perdure.testing.lending import FakeRuntime

if TYPE_CHECKING:
    from perdure.testing.laws.bench import Bench
    from perdure.testing.laws.driver import Session

T = TypeVar("T")


class Trap:
    """Springs at the n-th thing that is awaited of the runtime: the call is cancelled, or the disk fails."""

    def __init__(self) -> None:
        self.count, self.at, self.sprung = 0, 0, False
        self.scope: anyio.CancelScope | None = None
        self.raised = self.swallowed = False

    def set(self, at: int, scope: anyio.CancelScope | None = None) -> None:
        """From now on; without a scope the disk is full once. 0 takes the trap away."""
        self.count, self.at, self.scope = 0, at, scope
        self.sprung = self.raised = self.swallowed = False

    async def step(self) -> None:
        self.count += 1
        if self.count != self.at or self.sprung:
            return
        self.sprung = True
        if self.scope is None:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.scope.cancel()
        try:
            await checkpoint()
        except BaseException:
            self.raised = True
            raise


class LawRuntime(FakeRuntime):
    """`EngineRuntime` of one session, `PluginRuntime` where there is none."""

    def __init__(self, bench: Bench, store: Path, session: Session | None = None) -> None:
        super().__init__(store, bench.settings, answer=bench.answer)
        self._bench, self._session = bench, session
        self.virtual = bench.virtual
        self.moment: Literal["", "maintain"] = ""

    def wall_ms(self) -> int:
        return self._bench.now

    async def run_blocking(self, work: Callable[[], T]) -> T:
        await self._bench.trap.step()
        if self.virtual:
            return work()
        return await anyio.to_thread.run_sync(work)

    async def complete(self, key: str, prompt: str, *, system: str = "", max_tokens: int = 2_000) -> str:
        await self._bench.trap.step()
        if self._bench.no_model:
            raise ModelError("overloaded", "the model does not answer")
        return await super().complete(key, prompt, system=system, max_tokens=max_tokens)

    async def history(self, after: str = "", limit: int = 1_000) -> Items:
        await self._bench.trap.step()
        self.stored = tuple(self._session.log) if self._session is not None else ()
        return await super().history(after, limit)

    async def rewrite_transcript_entries(self, replacements: tuple[Replacement, ...]) -> Rewritten:
        if self._session is None or self.moment != "maintain":
            self._bench.misplaced.append(tuple(each.entry for each in replacements))
            raise UsageError("entries are rewritten in `maintain` only")
        await self._bench.trap.step()
        self.rewritten.append(replacements)
        return self._session.rewrite(replacements)

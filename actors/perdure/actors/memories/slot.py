"""A host's memory: every call of it has a deadline, and what it fails at is logged and counted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perdure.actors.calling import PluginFailed, call
from perdure.actors.memories.chosen import NONE, Chosen, forgets
from perdure.actors.memories.figures import Figures
from perdure.actors.memories.marks import Captured, Flushing
from perdure.actors.prompting import agent_of
from perdure.context.prompt.bootstrap import KNOWLEDGE_KINDS, session_kind
from perdure.contracts import Forgotten, MemoryContext, Recalled
from perdure.edges.marks import Marks
from perdure.edges.settings_hosting import MemorySettings
from perdure.errors import PerdureError
from perdure.kernel.errors import Closed, DeadlineExceeded
from perdure.kernel.waiter import Waiter
from perdure.records import Items

if TYPE_CHECKING:
    from perdure.actors.services import Services

AT_ONCE = 64  # calls that have not ended, each perhaps in a thread; a memory that hangs is not asked for more
DISPOSE = 10.0  # seconds that it has to close
SETTLE = 5.0  # seconds in which captures that wait are still made when the host closes
APART = frozenset({"subagent", "cron", "heartbeat"})
"""Sessions that work for others: nothing of theirs is noted or captured, their results reach who asked."""


class MemorySlot:
    """What fills the slot. `services` is asked with each call, for it comes after plugins."""

    def __init__(
        self, chosen: Chosen, told: MemorySettings, state: Path, services: Callable[[], Services]
    ) -> None:
        self.chosen, self.told, self._services = chosen, told, services
        self.captures = hasattr(chosen.memory, "capture")
        self.recalls = told.recall == "auto" and hasattr(chosen.memory, "recall")
        self.flushes = (chosen.id != NONE) if told.flush is None else told.flush
        self.flushed: Marks[Flushing] = Marks(state / "flushes.jsonl", Flushing)
        self.captured: Marks[Captured] = Marks(state / "captures.jsonl", Captured)
        self.figures = Figures()
        self._under_way = 0  # calls that have not ended
        self._pending = 0  # captures that have not ended
        self._idle: Waiter[None] | None = None
        self.closed = False

    def context(self, key: str) -> MemoryContext:
        """What a call is told about whose it is."""
        services = self._services()
        return MemoryContext(
            agent_of(key), key, services.resolver.workspace(key), services.lent(self.chosen.id)
        )

    # --- recall -----------------------------------------------------------------------------------

    def reminds(self, key: str) -> bool:
        """Whether something is recalled by itself for this session: what is remembered is private."""
        return self.recalls and session_kind(key) in KNOWLEDGE_KINDS

    async def recall(self, key: str, query: str, chars: int) -> tuple[Recalled, ...]:
        """What bears on `query`, at most `chars` characters of it; nothing where the memory fails."""
        if self._under_way >= AT_ONCE or chars <= 0 or not query.strip():
            return ()
        recall: Callable[..., Any] = self.chosen.memory.recall  # type: ignore[attr-defined]
        within = self.told.recall_ms / 1000
        try:
            found = await self._call(key, recall, self.context(key), query, chars, seconds=within)
            kept = _checked(found, chars)
        except Closed:
            return ()
        except Exception as error:
            self.figures.recall_ended(error)
            self._services().log.warning(
                "memory.not_recalled", session=key, memory=self.chosen.id, error=str(error)
            )
            return ()
        self.figures.recall_ended(None, len(kept))
        return kept

    # --- capture ----------------------------------------------------------------------------------

    def expects(self) -> None:
        """A capture waits in its queue."""
        self._pending += 1

    def done(self) -> None:
        """It is over, however it ended."""
        self._pending -= 1
        if self._idle is not None and not self._pending:
            self._idle.set(None)

    async def capture(self, key: str, items: Items, seconds: float) -> None:
        """Tell the memory of committed messages. Raises `PluginFailed`; `Closed` where the host ends."""
        capture: Callable[..., Any] = self.chosen.memory.capture  # type: ignore[attr-defined]
        if self._under_way >= AT_ONCE:
            raise PluginFailed(self.chosen.id, "capture", f"{AT_ONCE} calls have not ended yet")
        await self._call(key, capture, self.context(key), items, seconds=seconds)

    # --- forgetting -------------------------------------------------------------------------------

    async def forget(self, key: str, text: str, seconds: float) -> Forgotten:
        """Let it forget. Raises `UsageError` where it can't or won't, `PerdureError` where it breaks."""
        forget = forgets(self.chosen)
        try:
            return await self._call(  # type: ignore[no-any-return]
                key, forget, self.context(key), text, seconds=seconds, returns=Forgotten
            )
        except PluginFailed as error:
            if isinstance(error.__cause__, PerdureError):
                raise error.__cause__ from None
            raise PerdureError(f"memory {error}") from None

    # --- its end ----------------------------------------------------------------------------------

    async def close(self) -> None:
        """Let captures end, and have it close, within ten seconds; a host that was killed closes nothing."""
        dispose: Callable[..., Any] | None = getattr(self.chosen.memory, "dispose", None)
        clock, log = self._services().clock, self._services().log
        with clock.shield():
            if self._pending:
                self._idle = clock.waiter("captures to end")
                try:
                    await clock.wait(self._idle, SETTLE)
                except DeadlineExceeded:
                    log.warning("memory.not_settled", memory=self.chosen.id, captures=self._pending)
            self.closed = True
            try:
                if dispose is not None:
                    await self._call("memory", dispose, seconds=DISPOSE)
            except Exception as error:
                log.warning("memory.not_disposed", memory=self.chosen.id, error=str(error))

    async def _call(
        self,
        key: str,
        method: Callable[..., Any],
        *arguments: Any,
        seconds: float,
        returns: type | None = None,
    ) -> Any:
        def over() -> None:
            self._under_way -= 1

        self._under_way += 1
        return await call(
            self._services(),
            key,
            self.chosen.id,
            method,
            *arguments,
            seconds=seconds,
            returns=returns,
            over=over,
        )

    # --- for status -------------------------------------------------------------------------------

    def line(self) -> dict[str, Any]:
        """What it is, and how it does."""
        info = self.chosen.memory.info
        return {
            "id": info.id,
            "name": info.name,
            "version": info.version,
            "healthy": not self.chosen.trouble and self.figures.healthy,
            "trouble": self.chosen.trouble or self.figures.trouble,
            "tools": [tool.spec.name for tool in self.chosen.tools],
            "recall": self.told.recall if self.recalls else "off",
            "flush": self.flushes,
            "waiting": self._pending,
            **self.figures.line(),
        }


def _checked(found: object, chars: int) -> tuple[Recalled, ...]:
    """Texts up to the bound. Raises `TypeError` for what is no recalled text."""
    kept: list[Recalled] = []
    if not isinstance(found, tuple | list):
        raise TypeError(f"recall returned {type(found).__name__}, not texts")
    for each in found:
        if not isinstance(each, Recalled):
            raise TypeError(f"recall returned {type(each).__name__}, not Recalled")
        if each.text.strip() and len(each.text) <= chars:
            kept.append(each)
            chars -= len(each.text)
    return tuple(kept)

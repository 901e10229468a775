"""A host's memory: every call of it is a job with a deadline, and what it fails at is logged and counted."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from inspect import isawaitable, iscoroutinefunction
from pathlib import Path
from typing import Any

from anyio import CapacityLimiter

from perdure.actors.memories.chosen import NONE, Chosen
from perdure.actors.memories.figures import Figures
from perdure.actors.memories.marks import Captured, Flushing
from perdure.actors.prompting import agent_of
from perdure.context.prompt.bootstrap import KNOWLEDGE_KINDS, session_kind
from perdure.contracts import MemoryContext, PluginRuntime, Recalled
from perdure.edges.log import Log
from perdure.edges.marks import Marks
from perdure.edges.settings_hosting import MemorySettings
from perdure.kernel.clock import Clock
from perdure.kernel.errors import Closed, DeadlineExceeded
from perdure.kernel.io import IoPolicy
from perdure.kernel.jobs import Job
from perdure.kernel.kernel import Kernel
from perdure.kernel.outcome import Failed, Returned, describe
from perdure.kernel.waiter import Waiter
from perdure.records import Items

AT_ONCE = 64  # recalls under way; a memory that hangs is not asked for more
THREADS = 4  # that its blocking methods may take: never those of all others
DISPOSE = 10.0  # seconds that it has to close
SETTLE = 5.0  # seconds in which captures that wait are still made when the host closes
APART = frozenset({"subagent", "cron", "heartbeat"})
"""Sessions that work for others: nothing of theirs is noted or captured, their results reach who asked."""


class MemorySlot:
    """What fills the slot. `workspace` is asked with each call, for it comes after plugins."""

    def __init__(
        self,
        chosen: Chosen,
        told: MemorySettings,
        state: Path,
        *,
        kernel: Kernel,
        clock: Clock,
        io: IoPolicy,
        log: Log,
        lent: Callable[[str], PluginRuntime],
        workspace: Callable[[str], Path],
    ) -> None:
        self.chosen, self.told = chosen, told
        self._kernel, self._clock, self._io, self._log = kernel, clock, io, log
        self._lent, self._workspace = lent, workspace
        self.captures = hasattr(chosen.memory, "capture")
        self.recalls = told.recall == "auto" and hasattr(chosen.memory, "recall")
        self.flushes = (chosen.id != NONE) if told.flush is None else told.flush
        self.flushed: Marks[Flushing] = Marks(state / "flushes.jsonl", Flushing)
        self.captured: Marks[Captured] = Marks(state / "captures.jsonl", Captured)
        self.figures = Figures()
        self._asked = 0  # recalls that have not ended
        self._pending = 0  # captures that have not ended
        self._idle: Waiter[None] | None = None
        self._limiter: CapacityLimiter | None = None
        self.closed = False

    def context(self, key: str) -> MemoryContext:
        """What a call is told about whose it is."""
        return MemoryContext(agent_of(key), key, self._workspace(key), self._lent(self.chosen.id))

    # --- recall -----------------------------------------------------------------------------------

    def reminds(self, key: str) -> bool:
        """Whether something is recalled by itself for this session: what is remembered is private."""
        return self.recalls and session_kind(key) in KNOWLEDGE_KINDS

    async def recall(self, key: str, query: str, chars: int) -> tuple[Recalled, ...]:
        """What bears on `query`, at most `chars` characters of it; nothing where the memory fails."""
        if self._asked >= AT_ONCE or chars <= 0 or not query.strip():
            return ()
        recall: Callable[..., Any] = self.chosen.memory.recall  # type: ignore[attr-defined]
        self._asked += 1
        try:
            within = self.told.recall_ms / 1000
            found = await self._call(
                f"{key}#recall", within, recall, self._end, self.context(key), query, chars
            )
            kept = _checked(found, chars)
        except Closed:
            return ()
        except Exception as error:
            self.figures.recall_ended(error)
            self._log.warning("memory.not_recalled", session=key, memory=self.chosen.id, error=_told(error))
            return ()
        self.figures.recall_ended(None, len(kept))
        return kept

    def _end(self) -> None:
        self._asked -= 1

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
        """Tell the memory of committed messages. Raises whatever it raises, `DeadlineExceeded` too."""
        capture: Callable[..., Any] = self.chosen.memory.capture  # type: ignore[attr-defined]
        await self._call(f"{key}#capture", seconds, capture, _nothing, self.context(key), items)

    # --- its end ----------------------------------------------------------------------------------

    async def close(self) -> None:
        """Let captures end, and have it close, within ten seconds; a host that was killed closes nothing."""
        dispose: Callable[..., Any] | None = getattr(self.chosen.memory, "dispose", None)
        with self._clock.shield():
            if self._pending:
                self._idle = self._clock.waiter("captures to end")
                try:
                    await self._clock.wait(self._idle, SETTLE)
                except DeadlineExceeded:
                    self._log.warning("memory.not_settled", memory=self.chosen.id, captures=self._pending)
            self.closed = True
            try:
                if dispose is not None:
                    await self._call("memory#dispose", DISPOSE, dispose, _nothing)
            except Exception as error:
                self._log.warning("memory.not_disposed", memory=self.chosen.id, error=_told(error))

    # --- how it is called -------------------------------------------------------------------------

    async def _call(
        self, name: str, seconds: float, fn: Callable[..., Any], ended: Callable[[], None], *args: Any
    ) -> Any:
        """What `fn` answers, in a job of its own that nobody waits for longer than that.

        A plain `def` runs in a thread, under virtual time inline. `ended` is called when the job is over.
        """
        done: Waiter[Any] = self._clock.waiter(name)

        def over(_job: Job, outcome: object) -> None:
            ended()
            done.set(outcome)

        try:
            job = self._kernel.start(name, self._run, fn, args, on_end=over)
        except BaseException:
            ended()
            raise
        try:
            outcome = await self._clock.wait(done, seconds)
        except BaseException:
            job.cancel()
            raise
        if isinstance(outcome, Returned):
            return outcome.value
        raise outcome.error if isinstance(outcome, Failed) else RuntimeError(describe(outcome))

    async def _run(self, fn: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        if iscoroutinefunction(fn):
            return await fn(*args)
        if self._limiter is None and not self._io.virtual:
            self._limiter = CapacityLimiter(THREADS)
        found = await self._io.run(partial(fn, *args), limiter=self._limiter)
        return await found if isawaitable(found) else found

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


def _told(error: BaseException) -> str:
    return str(error) if isinstance(error, DeadlineExceeded) else repr(error)


def _nothing() -> None:
    """Nobody counts these."""

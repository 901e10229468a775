"""`MarkdownMemory`: lasting facts in MEMORY.md, what happened in memory/HISTORY.md, as files that anybody can
read.

Messages wait until a session has more than `bound`; then all but the last `keep` become, by one call of the
model, a line of the log and a new MEMORY.md. The messages count as done only when both files are written.
"""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path
from typing import Annotated

import msgspec

from perdure.contracts import MemoryContext, MemoryInfo, PluginRuntime, Tool
from perdure.contracts.memories import Forgotten, Recalled, Trust
from perdure.edges.tools.arguments import Checked
from perdure.errors import ConfigError, ModelError, PerdureError, UsageError
from perdure.plugins.memories.markdown import asking, files, lines
from perdure.plugins.memories.markdown.committing import Files
from perdure.plugins.memories.markdown.files import HISTORY, MEMORY
from perdure.plugins.memories.markdown.store import Batch, Beside
from perdure.plugins.memories.markdown.tools import SearchTool
from perdure.plugins.memories.said import Said, said
from perdure.plugins.options import read
from perdure.records import Items, Record

RECALL_BYTES = 256 * 1024  # of the log, its end
MAX_RECALLED = 30
MAX_BACK_OFF = 64

GUIDANCE = """\
MEMORY.md holds lasting facts, a line each; correct it with edit when one is wrong or new. The log of what
happened, memory/HISTORY.md, is not shown to you, and you never change it: find things in both with
memory_search before you answer about earlier work, people, decisions or dates."""


class MarkdownSettings(Record):
    """`[plugins.config.memory-markdown]`. `bound`: messages of a session that wait before they are
    consolidated; `keep`: of these the newest that wait on; `batch_chars`: of messages in one call;
    `memory_chars`: MEMORY.md may have so many; `max_loss`: the share of its lines that one consolidation may
    drop.
    """

    bound: Annotated[int, msgspec.Meta(ge=2)] = 40
    keep: Annotated[int, msgspec.Meta(ge=0)] = 20
    batch_chars: Annotated[int, msgspec.Meta(ge=2_000)] = 40_000
    memory_chars: Annotated[int, msgspec.Meta(ge=1_000)] = 20_000
    max_loss: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.25


class MarkdownMemory:
    """See the module."""

    info = MemoryInfo("memory-markdown", "MEMORY.md and HISTORY.md")

    def __init__(self, runtime: PluginRuntime) -> None:
        self._runtime = runtime
        self._settings = read(MarkdownSettings, runtime.settings, "memory-markdown")
        if self._settings.keep >= self._settings.bound:
            raise ConfigError("plugins.config.memory-markdown.keep: must be less than bound")
        sync = not runtime.virtual
        self._beside = Beside(runtime.store / "markdown.sqlite", sync=sync)
        self._files = Files(self._beside, runtime.store / "preimages", sync=sync)
        self._busy: set[str] = set()

    def tools(self) -> tuple[Tool, ...]:
        return (Checked(SearchTool(self._runtime, self._found)),)

    def guidance(self) -> str:
        return GUIDANCE

    async def recall(self, context: MemoryContext, query: str, chars: int) -> tuple[Recalled, ...]:
        """Lines of both files that share words with the query, best first."""
        found = await self._runtime.run_blocking(
            lambda: self._found(context.agent, context.workspace, query, MAX_RECALLED, RECALL_BYTES)
        )
        kept = []
        for one in found:
            if len(one.text) <= chars:
                chars -= len(one.text)
                kept.append(one)
        return tuple(kept)

    async def capture(self, context: MemoryContext, items: Items) -> None:
        """Keep the messages; consolidate when more than `bound` wait. Raises `StorageFailed` if they can't be
        kept.
        """
        messages = said(items)
        await self._runtime.run_blocking(
            lambda: self._beside.add(context.agent, context.session_key, messages)
        )
        if context.session_key in self._busy:
            return
        self._busy.add(context.session_key)
        try:
            await self._consolidate(context)
        except (PerdureError, OSError) as error:
            self._log(context, "memory.not_consolidated", str(error))
        finally:
            self._busy.discard(context.session_key)

    async def forget(self, context: MemoryContext, text: str) -> Forgotten:
        """Lines that say the text, or the line `MEMORY.md#L3`; in both files, kept versions and waiting
        messages.
        """
        if not text.strip():
            raise UsageError(
                "forget: tell what: words that stand in the lines, or a source like MEMORY.md#L3"
            )
        return await self._runtime.run_blocking(lambda: self._forget(context, text))

    async def dispose(self) -> None:
        await self._runtime.run_blocking(self._beside.close)

    async def _consolidate(self, context: MemoryContext) -> None:
        due = await self._runtime.run_blocking(lambda: self._due(context))
        if due is None:
            return
        batch, base = due
        try:
            reply = await self._runtime.complete(
                batch.session,
                asking.prompt(base, batch.messages, batch.refused),
                system=asking.SYSTEM,
                max_tokens=self._settings.memory_chars // 2 + asking.HISTORY_CHARS,
            )
        except ModelError as error:
            await self._failed(context, f"the model failed ({error.kind})", "")
            return
        update = asking.judge(reply, base, most=self._settings.memory_chars, max_loss=self._settings.max_loss)
        if isinstance(update, str):
            await self._failed(context, f"its answer was refused: {update}", update)
            return
        now = self._runtime.wall_ms()
        done = await self._runtime.run_blocking(
            lambda: self._files.commit(context.workspace, batch, base, update, now)
        )
        if done:
            fields = {"agent": batch.agent, "session": batch.session, "messages": len(batch.messages)}
            self._runtime.log("memory.consolidated", **fields)

    def _due(self, context: MemoryContext) -> tuple[Batch, str] | None:
        """The messages to consolidate now, and MEMORY.md as it is; None while few wait or a failure is
        recent.
        """
        self._files.recover(context.workspace, context.agent)
        pending = self._beside.pending(context.session_key)
        _, next_, why = self._beside.trouble(context.session_key)
        if len(pending) <= self._settings.bound or len(pending) < next_:
            return None
        cut = pending[
            : batch_end([one for _, one in pending], self._settings.keep, self._settings.batch_chars)
        ]
        messages = tuple(one for _, one in cut)
        batch = Batch(context.agent, context.session_key, messages, cut[-1][0], _mark(context, messages), why)
        return batch, files.text_of(context.workspace, MEMORY)

    async def _failed(self, context: MemoryContext, what: str, why: str) -> None:
        """Tell the log, and wait for more messages before the next try, each time longer."""

        def note() -> None:
            count, _, _ = self._beside.trouble(context.session_key)
            waiting = len(self._beside.pending(context.session_key))
            more = min(2**count, MAX_BACK_OFF) * max(2, self._settings.bound // 8)
            self._beside.failed(context.session_key, waiting + more, why)

        await self._runtime.run_blocking(note)
        self._log(context, "memory.not_consolidated", what)

    def _found(self, agent: str, root: Path, query: str, limit: int, most: int) -> tuple[Recalled, ...]:
        """Lines of both files by relevance; blocks."""
        try:
            self._files.recover(root, agent)
        except (PerdureError, OSError):
            pass  # what can't be finished now can be read all the same
        log, first = files.tail_of(root, HISTORY, most)
        known = [*lines.split(MEMORY, files.text_of(root, MEMORY)), *lines.split(HISTORY, log, first)]
        found = lines.search(known, query, limit)
        return tuple(self._recalled(agent, line, score) for line, score in found)

    def _recalled(self, agent: str, line: lines.Line, score: float) -> Recalled:
        origin = self._beside.origin(agent, mark=line.mark, row=line.text)
        trust: Trust = "untrusted" if line.untrusted else origin.trust
        return Recalled(line.text, line.source, round(score, 6), trust, origin.entries, origin.at)

    def _forget(self, context: MemoryContext, text: str) -> Forgotten:
        counts = self._files.rewrite(
            context.workspace, context.agent, lambda name, whole: lines.without(name, whole, text)
        )
        waiting = self._beside.forget(context.agent, text)
        touched = tuple(name for name, count in zip((MEMORY, HISTORY), counts, strict=False) if count)
        return Forgotten(notes=counts[0] + counts[1], chunks=waiting, derived=counts[2], sources=touched)

    def _log(self, context: MemoryContext, event: str, why: str) -> None:
        self._runtime.log(event, agent=context.agent, session=context.session_key, why=why)


def batch_end(messages: list[Said], keep: int, chars: int) -> int:
    """How many of the oldest messages are consolidated: up to where a user begins to speak, within
    `chars`.
    """
    room, fits = chars, 0
    for one in messages[: len(messages) - keep]:
        room -= min(len(one.text), asking.MESSAGE_CHARS)
        if room < 0 and fits:
            break
        fits += 1
    turns = [n for n in range(1, fits + 1) if n < len(messages) and messages[n].role == "user"]
    return turns[-1] if turns else fits


def _mark(context: MemoryContext, messages: tuple[Said, ...]) -> str:
    """What a consolidation is known by: its session and its messages, so that it is the same after a
    restart.
    """
    told = "\0".join((context.agent, context.session_key, *(one.entry for one in messages)))
    return f"m{blake2b(told.encode('utf-8', 'surrogatepass'), digest_size=8).hexdigest()}"

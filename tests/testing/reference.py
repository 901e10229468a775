"""A correct engine that does everything an engine may do: the laws pass it, and mutants are made of it.

It keeps a note of each entry in a file for each session, tells of them in its addition, sends the turns that
fit, owns compaction (a mark behind which it sends), shortens very long results in maintenance, and lets a
forked child inherit its parent's notes.
"""

from __future__ import annotations

import hashlib
import json
import threading
from functools import partial
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from perdure.contracts import (
    Assembled,
    Bootstrapped,
    Delegate,
    EngineCompaction,
    EngineContext,
    EngineInfo,
    Maintained,
    Moment,
    Replacement,
    Rollback,
    Spawn,
    SpawnEnd,
    TurnReport,
)
from perdure.plugins.base import Engine, flat, turns
from perdure.records import Item, Items, Text, ToolResult, User
from perdure.testing.laws.answers import text_of

LONG = 50_000  # characters of a result that maintenance shortens
KEPT = 2  # turns that a compaction keeps
Line = dict[str, Any]


class Reference(Engine):
    info = EngineInfo("reference", "Reference", owns_compaction=True)

    def __init__(self, lent: Any = None) -> None:
        super().__init__(lent)
        self.lock = threading.Lock()

    # --- its store --------------------------------------------------------------------------------

    def path(self, name: str) -> Path:
        digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
        return Path(self.lent.store) / f"{digest[:32]}.jsonl"

    def read(self, path: Path) -> list[Line]:
        """The lines of a session; a file that is damaged is given up: it is made anew from the session."""
        try:
            return [json.loads(line) for line in path.read_bytes().splitlines()]
        except FileNotFoundError:
            return []
        except ValueError:
            path.unlink()
            return []

    def add(self, path: Path, lines: list[Line]) -> int:
        with self.lock:
            known = {line["entry"] for line in self.read(path)}
            new = [line for line in lines if line["entry"] not in known]
            with open(path, "a") as file:
                file.write("".join(json.dumps(line) + "\n" for line in new))
        return len(new)

    def lines(self, path: Path) -> list[Line]:
        with self.lock:
            return self.read(path)

    def keep(self, path: Path, lines: list[Line]) -> None:
        with self.lock:
            path.write_text("".join(json.dumps(line) + "\n" for line in lines))

    async def notes(self, context: EngineContext) -> list[Line]:
        return await context.runtime.run_blocking(partial(self.lines, self.path(context.session_id)))

    async def inherited(self, context: EngineContext) -> list[Line]:
        return await context.runtime.run_blocking(partial(self.lines, self.heir(context.session_key)))

    def heir(self, child_key: str) -> Path:
        return self.path(f"child of somebody: {child_key}")

    # --- the contract -----------------------------------------------------------------------------

    async def bootstrap(self, context: EngineContext) -> Bootstrapped:
        notes = await self.notes(context)
        return Bootstrapped(len(notes), notes[-1]["entry"] if notes else "")

    async def ingest(self, context: EngineContext, item: Item) -> bool:
        return await self.ingest_batch(context, (item,)) == 1

    async def ingest_batch(self, context: EngineContext, items: Items) -> int:
        lines = [self.note(item) for item in items]
        return await context.runtime.run_blocking(partial(self.add, self.path(context.session_id), lines))

    def note(self, item: Item) -> Line:
        text = " ".join(text_of((item,)).split())[:60]
        return {"entry": item.entry, "note": text, "user": isinstance(item.message, User)}

    async def after_turn(self, context: EngineContext, report: TurnReport) -> None:
        return

    async def assemble(self, context: EngineContext, messages: Items) -> Assembled:
        notes = await self.notes(context)
        addition = self.digest(context, [*await self.inherited(context), *notes])
        room = context.token_budget - self.tokens(context, addition)
        sent = self.select(context, self.behind_mark(messages, notes), room)
        return Assembled(sent, self.tokens(context, addition) + context.runtime.estimate(sent), addition)

    def behind_mark(self, messages: Items, notes: list[Line]) -> Items:
        marks = [line["entry"] for line in notes if line.get("mark")]
        at = [n for n, item in enumerate(messages) if marks and item.entry == marks[-1]]
        return messages[at[0] :] if at else messages

    def select(self, context: EngineContext, messages: Items, room: int) -> Items:
        """The newest turns that fit, the running one always."""
        parts = turns(messages)
        chosen, left = [*parts[-1:]], room - context.runtime.estimate(flat(parts[-1:]))
        for part in reversed(parts[:-1]):
            left -= context.runtime.estimate(part)
            if left < 0:
                break
            chosen.append(part)
        return flat(reversed(chosen))

    def digest(self, context: EngineContext, notes: list[Line]) -> str:
        """The newest notes that take a sixth of the budget."""
        chosen, room = list[str](), min(2_000, context.token_budget // 6)
        for line in reversed(notes):
            room -= self.tokens(context, line["note"]) + 2
            if room < 0:
                break
            chosen.append(f"- {line['note']}")
        return "\n".join(reversed(chosen))

    def tokens(self, context: EngineContext, text: str) -> int:
        return context.runtime.estimate((Item("", User((Text(text),))),)) if text else 0

    async def compact(
        self, context: EngineContext, delegate: Delegate, *, force: bool, instructions: str
    ) -> EngineCompaction:
        notes = await self.notes(context)
        starts = [n for n, line in enumerate(notes) if line["user"]]
        if len(starts) <= KEPT or notes[starts[-KEPT]].get("mark"):
            return EngineCompaction(True, False, "nothing is old enough")
        first = starts[-KEPT]
        notes[first] = {**notes[first], "mark": True}
        await context.runtime.run_blocking(partial(self.keep, self.path(context.session_id), notes))
        return EngineCompaction(True, True, first_kept=notes[first]["entry"], tokens_before=len(notes),
                                tokens_after=len(notes) - first)  # fmt: skip

    async def maintain(self, context: EngineContext, moment: Moment) -> Maintained:
        long = tuple(
            Replacement(item.entry, self.shortened(item.message))
            for item in await context.runtime.history()
            if isinstance(item.message, ToolResult) and len(text_of((item,))) > LONG
        )
        if not long:
            return Maintained()
        done = await context.runtime.rewrite_transcript_entries(long)
        await context.runtime.run_blocking(partial(self.forget, self.path(context.session_id), long[0].entry))
        return Maintained(done.changed, done.entries)

    def shortened(self, message: ToolResult) -> ToolResult:
        return replace(message, content=(Text(text_of((Item("", message),))[:1_000] + " [...]"),))

    def forget(self, path: Path, first: str) -> None:
        """The notes from this entry on: those entries are no longer on the session's path."""
        notes = self.lines(path)
        at = [n for n, line in enumerate(notes) if line["entry"] == first]
        self.keep(path, notes[: at[0]] if at else notes)

    async def prepare_subagent_spawn(self, context: EngineContext, spawn: Spawn) -> Rollback | None:
        if spawn.mode == "isolated":
            return None
        path, notes = self.heir(spawn.child_key), await self.notes(context)
        await context.runtime.run_blocking(partial(self.keep, path, notes))

        async def back() -> None:
            await context.runtime.run_blocking(partial(path.unlink, missing_ok=True))

        return back

    async def on_subagent_ended(self, context: EngineContext, child_key: str, end: SpawnEnd) -> None:
        await context.runtime.run_blocking(partial(self.heir(child_key).unlink, missing_ok=True))

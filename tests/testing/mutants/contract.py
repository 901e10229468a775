"""Faults against the contract's shape, and of ingest, redelivery and order."""

from __future__ import annotations

import threading
import uuid
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import force_setattr, replace

from perdure.contracts import (
    Assembled,
    EngineInfo,
)
from perdure.plugins.base import flat, turns
from perdure.records import (
    Assistant,
    Item,
    Text,
    ToolResult,
    ToolSpec,
    User,
)
from testing.mutants.made import mutant
from testing.reference import Reference

FOREVER = 3.0  # seconds: longer than any deadline of these tests


# --- shape -----------------------------------------------------------------------------------


@mutant("shape.required")
class LacksIngest:
    info = EngineInfo("lacks", "Lacks")

    async def assemble(self, context: Any, messages: Any) -> Assembled:
        return Assembled(messages)

    async def compact(self, context: Any, delegate: Any, *, force: bool, instructions: str) -> Any:
        return await delegate()


@mutant("shape.optional")
class HookIsNoMethod(Reference):
    after_turn = "later"


@mutant("shape.arguments")
class OldArguments(Reference):
    async def compact(self, context: Any, delegate: Any) -> Any:
        return await delegate()


@mutant("shape.info")
class StrangeId(Reference):
    info = EngineInfo("not an id!", "Strange", owns_compaction=True)


@mutant("shape.info-stays")
class RenamesItself(Reference):
    async def assemble(self, context: Any, messages: Any) -> Assembled:
        self.info = replace(self.info, version="2")
        return await super().assemble(context, messages)


@mutant("shape.lazy")
class StartsAtOnce(Reference):
    def __init__(self, lent: Any = None) -> None:
        super().__init__(lent)
        self.done = threading.Event()
        threading.Thread(target=self.done.wait, args=(FOREVER,), daemon=True).start()

    async def dispose(self) -> None:
        self.done.set()


SHARED: dict[str, list[Any]] = {}


@mutant("shape.instances")
class KeepsNotesInTheModule(Reference):
    def lines(self, path: Path) -> list[Any]:
        return [*SHARED.get("all", []), *super().lines(path)]

    def add(self, path: Path, lines: list[Any]) -> int:
        SHARED.setdefault("all", []).extend(lines)
        del SHARED["all"][:-20]
        return super().add(path, lines)


@mutant("shape.passive")
class PassiveButListens(Reference):
    info = EngineInfo("passive", "Passive", owns_compaction=True, passive=True)


class Twin:
    spec = ToolSpec("look", "Look", b"{}")


@mutant("shape.tools")
class TwoToolsOfOneName(Reference):
    def tools(self) -> Any:
        return (Twin(), Twin())


# --- ingest ----------------------------------------------------------------------------------


@mutant("ingest.answers", "ingest.single", "redelivery.last")
class AnswersNothing(Reference):
    async def ingest(self, context: Any, item: Any) -> Any:
        await super().ingest(context, item)


@mutant("ingest.counts")
class CountsTooMany(Reference):
    async def ingest_batch(self, context: Any, items: Any) -> int:
        return await super().ingest_batch(context, items) + len(items) + 1

    async def ingest(self, context: Any, item: Any) -> bool:
        return await super().ingest_batch(context, (item,)) > 0


@mutant("ingest.nothing")
class EmptyBatchIsOne(Reference):
    async def ingest_batch(self, context: Any, items: Any) -> int:
        return await super().ingest_batch(context, items) if items else 1


@mutant("ingest.every-kind")
class KnowsThreeKinds(Reference):
    def note(self, item: Item) -> Any:
        if not isinstance(item.message, User | Assistant | ToolResult):
            raise TypeError(f"what is a {type(item.message).__name__}?")
        return super().note(item)


@mutant("order.portions")
class BatchLosesTheLast(Reference):
    async def ingest_batch(self, context: Any, items: Any) -> int:
        return await super().ingest_batch(context, items[:-1] if len(items) > 1 else items)


@mutant("ingest.kept-as-is")
class EditsEntries(Reference):
    def note(self, item: Item) -> Any:
        force_setattr(item, "message", User((Text("edited"),)))
        return super().note(item)


@mutant("assemble.first", "assemble.behind")
class SendsOnlyWhatItStored(Reference):
    """Answers from its store alone: what is new, or was not delivered, is missing."""

    async def assemble(self, context: Any, messages: Any) -> Assembled:
        known = {line["entry"] for line in await self.notes(context)}
        return await super().assemble(context, tuple(i for i in messages if i.entry in known))


@mutant("assemble.request", "ingest.newest", "order.newest-last")
class SendsAllButTheNewest(Reference):
    async def assemble(self, context: Any, messages: Any) -> Assembled:
        return Assembled(messages[:-1])


@mutant("ingest.heartbeat")
class NoHeartbeats(Reference):
    async def assemble(self, context: Any, messages: Any) -> Assembled:
        if context.heartbeat:
            return Assembled(())
        return await super().assemble(context, messages)


# --- redelivery ------------------------------------------------------------------------------


@mutant("redelivery.all")
class DoublesTheLast(Reference):
    def add(self, path: Path, lines: list[Any]) -> int:
        known = {line["entry"] for line in self.lines(path)[:-1]}
        new = [line for line in lines if line["entry"] not in known]
        self.keep(path, [*self.lines(path), *new])
        return len(new)


@mutant("redelivery.restart")
class DoublesEverything(Reference):
    def add(self, path: Path, lines: list[Any]) -> int:
        self.keep(path, [*self.lines(path), *lines])
        return len(lines)


@mutant("redelivery.overlap")
class RefusesKnownBatches(Reference):
    """Of a batch that begins with a known entry it takes nothing."""

    def add(self, path: Path, lines: list[Any]) -> int:
        known = {line["entry"] for line in self.lines(path)}
        return 0 if lines and lines[0]["entry"] in known else super().add(path, lines)


@mutant("redelivery.full-disk")
class SwallowsFullDisk(Reference):
    async def ingest_batch(self, context: Any, items: Any) -> int:
        with suppress(OSError):
            return await super().ingest_batch(context, items)
        return len(items)


@mutant("redelivery.turn")
class CountsTurns(Reference):
    async def after_turn(self, context: Any, report: Any) -> None:
        lines = [{"entry": f"turn-{uuid.uuid4()}", "note": "a turn", "user": False}]
        await context.runtime.run_blocking(partial(self.add, self.path(context.session_id), lines))


@mutant("redelivery.growth")
class KeepsEveryDelivery(Reference):
    def add(self, path: Path, lines: list[Any]) -> int:
        with open(path.with_suffix(".journal"), "a") as file:
            file.write(msgspec.json.encode([*lines, "x" * 200_000]).decode())
        return super().add(path, lines)


# --- order -----------------------------------------------------------------------------------


@mutant("order.portions")
class SortsBatches(Reference):
    def add(self, path: Path, lines: list[Any]) -> int:
        return super().add(path, sorted(lines, key=lambda line: line["note"]))


@mutant("order.interleaved")
class RemembersTheNewestSession(Reference):
    """One cursor for all sessions."""

    latest = ""

    async def ingest_batch(self, context: Any, items: Any) -> int:
        if self.latest not in ("", context.session_id):
            lines = [
                {"entry": f"switch-{items[-1].entry if items else ''}", "note": "a switch", "user": False}
            ]
            await context.runtime.run_blocking(partial(self.add, self.path(context.session_id), lines))
        self.latest = context.session_id
        return await super().ingest_batch(context, items)


@mutant("order.running-turn", "pairs.step")
class ReversesTheRunningTurn(Reference):
    async def assemble(self, context: Any, messages: Any) -> Assembled:
        answer = await super().assemble(context, messages)
        parts = turns(answer.messages)
        return replace(answer, messages=flat((*parts[:-1], tuple(reversed(parts[-1] if parts else ())))))


@mutant("order.long-turn")
class CutsTheRunningTurn(Reference):
    def select(self, context: Any, messages: Any, room: int) -> Any:
        chosen = super().select(context, messages, room)
        if context.runtime.estimate(chosen) <= room:
            return chosen
        return turns(chosen)[-1][:1]

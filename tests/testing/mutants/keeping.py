"""Faults in what is kept: isolation, compaction, bootstrap and maintenance."""

from __future__ import annotations

import uuid
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from perdure.contracts import (
    Assembled,
    Bootstrapped,
    EngineCompaction,
    EngineInfo,
    Maintained,
    Replacement,
)
from perdure.records import (
    Text,
    ToolResult,
    User,
)
from testing.mutants.made import mutant
from testing.reference import Reference

# --- isolation -------------------------------------------------------------------------------


@mutant("isolation.session", "isolation.asked")
class OneStoreForAll(Reference):
    def path(self, name: str) -> Path:
        return super().path("all")


@mutant("isolation.new-file")
class OneStoreForAKey(Reference):
    async def notes(self, context: Any) -> Any:
        own = await super().notes(context)
        kept = await context.runtime.run_blocking(partial(self.lines, self.path(context.session_key)))
        return [*kept, *own]

    async def ingest_batch(self, context: Any, items: Any) -> int:
        lines = [{**self.note(item), "entry": f"key {item.entry}"} for item in items]
        await context.runtime.run_blocking(partial(self.add, self.path(context.session_key), lines))
        return await super().ingest_batch(context, items)


@mutant("isolation.agent")
class SearchesEverywhere(Reference):
    """Adds what matches the prompt, of whatever session."""

    def everything(self) -> list[str]:
        files = sorted(Path(self.lent.store).glob("*.jsonl"))
        return [line["note"] for path in files for line in self.lines(path)]

    async def assemble(self, context: Any, messages: Any) -> Assembled:
        answer = await super().assemble(context, messages)
        words = [word for word in context.prompt.split() if len(word) > 5]
        found = [note for note in self.everything() if any(word in note for word in words)]
        return replace(answer, addition=answer.addition + "\n".join(found[:3]))


@mutant("isolation.same-ids")
class EntriesAreGlobal(Reference):
    """One row for an entry's id, whatever the session."""

    def add(self, path: Path, lines: list[Any]) -> int:
        whole = path.with_name("entries.jsonl")
        super().add(whole, lines)
        mine = {line["entry"] for line in lines}
        return super().add(path, [line for line in self.lines(whole) if line["entry"] in mine])


@mutant("isolation.neighbours")
class SloppyNames(Reference):
    def path(self, name: str) -> Path:
        clean = "".join(c.lower() if c.isalnum() and c.isascii() else "-" for c in name)[:40]
        return Path(self.lent.store) / f"{clean}.jsonl"


@mutant("isolation.names")
class NamesAreFolders(Reference):
    def path(self, name: str) -> Path:
        path = Path(f"{self.lent.store}/{name[:60]}.jsonl".replace("\x00", ""))
        path.parent.mkdir(parents=True, exist_ok=True)
        return path


@mutant("isolation.settings")
class WritesSettings(Reference):
    async def assemble(self, context: Any, messages: Any) -> Assembled:
        context.runtime.settings["calls"] = context.runtime.settings.get("calls", 0) + 1
        return await super().assemble(context, messages)


# --- compaction ------------------------------------------------------------------------------

DELEGATES = EngineInfo("delegates", "Delegates")


class Delegates(Reference):
    info = DELEGATES

    async def compact(self, context: Any, delegate: Any, *, force: bool, instructions: str) -> Any:
        return await delegate()


@mutant("compaction.delegates")
class NeverDelegates(Delegates):
    async def compact(self, context: Any, delegate: Any, *, force: bool, instructions: str) -> Any:
        return EngineCompaction(True, False)


@mutant("compaction.refused")
class AlwaysSucceeds(Delegates):
    async def compact(self, context: Any, delegate: Any, *, force: bool, instructions: str) -> Any:
        with suppress(Exception):
            await delegate()
        return EngineCompaction(True, True)


@mutant("compaction.failed")
class HidesErrors(Delegates):
    async def compact(self, context: Any, delegate: Any, *, force: bool, instructions: str) -> Any:
        try:
            return await delegate()
        except Exception as error:
            raise RuntimeError("compaction failed") from error


@mutant("compaction.shrinks")
class CompactsNothing(Reference):
    async def compact(self, context: Any, delegate: Any, *, force: bool, instructions: str) -> Any:
        return EngineCompaction(True, True, "compacted")


@mutant("compaction.answers")
class CompactedButNotOk(Reference):
    async def compact(self, context: Any, delegate: Any, **told: Any) -> Any:
        return replace(await super().compact(context, delegate, **told), ok=False, compacted=True)


@mutant("compaction.numbers")
class SizesSwapped(Reference):
    async def compact(self, context: Any, delegate: Any, **told: Any) -> Any:
        found = await super().compact(context, delegate, **told)
        return replace(found, tokens_before=found.tokens_after, tokens_after=found.tokens_before)


@mutant("compaction.known-id")
class StrangeFirstKept(Reference):
    async def compact(self, context: Any, delegate: Any, **told: Any) -> Any:
        return replace(await super().compact(context, delegate, **told), first_kept="sum_0001")


@mutant("compaction.little")
class IndexesFromTheEnd(Reference):
    """Two turns are kept, so there must be two."""

    async def compact(self, context: Any, delegate: Any, **told: Any) -> Any:
        notes = await self.notes(context)
        assert [line for line in notes if line["user"]][-2]
        return await super().compact(context, delegate, **told)


@mutant("compaction.again")
class GrowsByCompacting(Reference):
    async def compact(self, context: Any, delegate: Any, **told: Any) -> Any:
        found = await super().compact(context, delegate, **told)
        lines = [{"entry": f"made-{uuid.uuid4()}", "note": "a summary " * 6, "user": False}]
        await context.runtime.run_blocking(partial(self.add, self.path(context.session_id), lines))
        return found


@mutant("compaction.request")
class CompactsTheRequest(Reference):
    async def assemble(self, context: Any, messages: Any) -> Assembled:
        done = any(line.get("mark") for line in await self.notes(context))
        return Assembled(()) if done else await super().assemble(context, messages)


@mutant("compaction.no-model")
class NeedsAModel(Reference):
    async def compact(self, context: Any, delegate: Any, **told: Any) -> Any:
        try:
            await context.runtime.complete(context.session_key, "summarise")
        except Exception as error:
            raise ValueError("no summary") from error
        return await super().compact(context, delegate, **told)


# --- bootstrap -------------------------------------------------------------------------------


@mutant("bootstrap.restart", "bootstrap.deleted")
class ForgetsAtRestart(Reference):
    """In memory only, and no word of it in `bootstrap`."""

    def __init__(self, lent: Any = None) -> None:
        super().__init__(lent)
        self.held: dict[Path, list[Any]] = {}

    def read(self, path: Path) -> list[Any]:
        return list(self.held.get(path, []))

    def add(self, path: Path, lines: list[Any]) -> int:
        known = {line["entry"] for line in self.read(path)}
        self.held.setdefault(path, []).extend(line for line in lines if line["entry"] not in known)
        return len(lines)

    def keep(self, path: Path, lines: list[Any]) -> None:
        self.held[path] = lines

    async def bootstrap(self, context: Any) -> Bootstrapped:
        return Bootstrapped()


@mutant("bootstrap.killed")
class WritesAtTheEnd(ForgetsAtRestart):
    """What it holds goes to disk when it is disposed: a kill loses it."""

    def read(self, path: Path) -> list[Any]:
        if path not in self.held:
            with suppress(OSError):
                self.held[path] = msgspec.json.decode(path.read_bytes())
        return super().read(path)

    async def dispose(self) -> None:
        for path, lines in self.held.items():
            path.write_bytes(msgspec.json.encode(lines))


@mutant("bootstrap.missed", "bootstrap.late")
class CursorAhead(Reference):
    """Its cursor is the newest entry of the session, not of its store."""

    async def bootstrap(self, context: Any) -> Bootstrapped:
        history = await context.runtime.history()
        return Bootstrapped(0, history[-1].entry if history else "")


@mutant("bootstrap.answers")
class StrangeCursor(Reference):
    async def bootstrap(self, context: Any) -> Bootstrapped:
        return replace(await super().bootstrap(context), cursor="row 17")


@mutant("bootstrap.damaged")
class BelievesDamage(Reference):
    """Once it has seen garbage, garbage is what it knows."""

    spoilt = False

    def read(self, path: Path) -> list[Any]:
        self.spoilt |= path.exists() and not path.read_bytes().startswith(b"{")
        return super().read(path)

    async def assemble(self, context: Any, messages: Any) -> Any:
        return Assembled(()) if self.spoilt else await super().assemble(context, messages)


@mutant("bootstrap.cut")
class DiesOfDamage(Reference):
    def read(self, path: Path) -> list[Any]:
        if path.exists():
            try:
                msgspec.json.decode(b"[" + b",".join(path.read_bytes().splitlines()) + b"]")
            except ValueError:
                raise ValueError from None
        return super().read(path)


@mutant("bootstrap.before-any")
class NeedsAMessage(Reference):
    async def bootstrap(self, context: Any) -> Bootstrapped:
        history = await context.runtime.history()
        return replace(await super().bootstrap(context), imported=history.index(history[0]))


# --- maintenance -----------------------------------------------------------------------------


@mutant("maintain.answers")
class MaintainsSilently(Reference):
    async def maintain(self, context: Any, moment: Any) -> Any:
        await super().maintain(context, moment)


@mutant("maintain.only-there")
class RewritesWhileAssembling(Reference):
    async def assemble(self, context: Any, messages: Any) -> Assembled:
        with suppress(Exception):
            await context.runtime.rewrite_transcript_entries(
                (Replacement(messages[0].entry, messages[0].message),)
            )
        return await super().assemble(context, messages)


class Rewrites(Reference):
    """In maintenance it rewrites what `made` answers, once."""

    def made(self, history: Any) -> Any:
        return ()

    async def maintain(self, context: Any, moment: Any) -> Maintained:
        history = await context.runtime.history()
        made = self.made(history)
        if not made:
            return Maintained()
        done = await context.runtime.rewrite_transcript_entries(made)
        return Maintained(done.changed, done.entries)


@mutant("maintain.known")
class RewritesStrangers(Rewrites):
    def made(self, history: Any) -> Any:
        return (Replacement("nobody", User((Text("x"),))),)


@mutant("maintain.rests")
class RewritesForever(Rewrites):
    def made(self, history: Any) -> Any:
        return tuple(Replacement(item.entry, item.message) for item in history[:1])


@mutant("maintain.faithful")
class RewritesResultsAsText(Rewrites):
    def made(self, history: Any) -> Any:
        results = [item for item in history if isinstance(item.message, ToolResult)]
        return tuple(Replacement(item.entry, User((Text("it went well"),))) for item in results)


@mutant("maintain.faithful")
class RewritesIds(Rewrites):
    def made(self, history: Any) -> Any:
        results = [i for i in history if isinstance(i.message, ToolResult) and i.message.call_id != "r0"]
        return tuple(Replacement(i.entry, replace(i.message, call_id="r0")) for i in results)


@mutant("maintain.unchanged")
class TidiesInSilence(Reference):
    async def maintain(self, context: Any, moment: Any) -> Maintained:
        if moment == "compaction":
            path = self.path(context.session_id)
            await context.runtime.run_blocking(lambda: self.keep(path, self.lines(path)[1:]))
            return Maintained()
        return await super().maintain(context, moment)


@mutant("maintain.after", "prefix.sleep")
class MaintainsAway(Reference):
    """Behind maintenance it sends nothing."""

    tidy = False

    async def maintain(self, context: Any, moment: Any) -> Maintained:
        self.tidy = moment == "bootstrap"
        return await super().maintain(context, moment)

    async def assemble(self, context: Any, messages: Any) -> Assembled:
        return Assembled(()) if self.tidy else await super().assemble(context, messages)


@mutant("maintain.turn")
class KnowsTwoEnds(Reference):
    async def after_turn(self, context: Any, report: Any) -> None:
        {"stop": 1, "toolUse": 1}[report.stop]

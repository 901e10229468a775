"""Faults in what is assembled: answers, pairs, budget and prefix."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any

from msgspec.structs import force_setattr, replace

from perdure.contracts import (
    Assembled,
    Bootstrapped,
)
from perdure.records import (
    Image,
    Item,
    Summary,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    User,
)
from testing.mutants.made import mutant
from testing.reference import Reference

# --- assemble --------------------------------------------------------------------------------


@mutant("assemble.answers")
class AnswersAList(Reference):
    async def assemble(self, context: Any, messages: Any) -> Any:
        return list(messages)


@mutant("assemble.answers")
class AnswersBareMessages(Reference):
    async def assemble(self, context: Any, messages: Any) -> Any:
        answer = await super().assemble(context, messages)
        return replace(answer, messages=[item.message for item in answer.messages])


@mutant("assemble.empty")
class RaisesOnEmpty(Reference):
    async def assemble(self, context: Any, messages: Any) -> Assembled:
        messages[-1]
        return await super().assemble(context, messages)


@mutant("assemble.view-kept")
class EditsTheView(Reference):
    async def assemble(self, context: Any, messages: Any) -> Assembled:
        for item in messages[:1]:
            force_setattr(item, "message", User((Text("shorter"),)))
        return await super().assemble(context, messages)


@mutant("assemble.known-ids")
class InventsIds(Reference):
    async def assemble(self, context: Any, messages: Any) -> Assembled:
        answer = await super().assemble(context, messages)
        made = Item("summary-1", Summary("before"))
        return replace(answer, messages=(made, *answer.messages))


@mutant("assemble.known-ids")
class SendsTwice(Reference):
    async def assemble(self, context: Any, messages: Any) -> Assembled:
        answer = await super().assemble(context, messages)
        return replace(answer, messages=(*answer.messages, *answer.messages))


@mutant("assemble.kind")
class SummaryUnderAnEntrysId(Reference):
    async def assemble(self, context: Any, messages: Any) -> Assembled:
        answer = await super().assemble(context, messages)
        first = tuple(Item(item.entry, Summary("before")) for item in answer.messages[:1])
        return replace(answer, messages=(*first, *answer.messages[1:]))


@mutant("assemble.pictures")
class ShortensPictures(Reference):
    async def assemble(self, context: Any, messages: Any) -> Assembled:
        answer = await super().assemble(context, messages)
        return replace(answer, messages=tuple(changed(item, self.block) for item in answer.messages))

    def block(self, block: Any) -> Any:
        return replace(block, data=block.data[:20]) if isinstance(block, Image) else block


@mutant("assemble.thoughts")
class EditsThoughts(ShortensPictures):
    def block(self, block: Any) -> Any:
        return replace(block, thinking=block.thinking[:5]) if isinstance(block, Thinking) else block


@mutant("assemble.text")
class CutsCharacters(ShortensPictures):
    def block(self, block: Any) -> Any:
        if not isinstance(block, Text) or len(block.text) < 1_000:
            return block
        return Text(block.text.encode("utf-8", "surrogatepass")[:1_001].decode("utf-8", "replace"))


@mutant("pairs.arguments")
class CutsArguments(ShortensPictures):
    def block(self, block: Any) -> Any:
        return replace(block, arguments=block.arguments[:9]) if isinstance(block, ToolCall) else block


def changed(item: Item, by: Callable[[Any], Any]) -> Item:
    content = getattr(item.message, "content", None)
    if content is None:
        return item
    return Item(item.entry, replace(item.message, content=tuple(map(by, content))))


@mutant("assemble.often")
class CountsQuestions(Reference):
    """Each assembly is noted."""

    async def assemble(self, context: Any, messages: Any) -> Assembled:
        lines = [{"entry": f"asked-{uuid.uuid4()}", "note": "asked", "user": False}]
        await context.runtime.run_blocking(partial(self.add, self.path(context.session_id), lines))
        return await super().assemble(context, messages)


@mutant("assemble.long", "hostile.many")
class GivesUpOnLongSessions(Reference):
    async def assemble(self, context: Any, messages: Any) -> Assembled:
        if len(messages) > 500:
            raise RecursionError("too long")
        return await super().assemble(context, messages)


# --- pairs -----------------------------------------------------------------------------------


@mutant("pairs.tight", "pairs.reused")
class CutsByMessages(Reference):
    """Fills the room by messages, not by turns."""

    def select(self, context: Any, messages: Any, room: int) -> Any:
        chosen: list[Any] = []
        for item in reversed(messages):
            room -= context.runtime.estimate((item,))
            if room < 0 and chosen:
                break
            chosen.append(item)
        return tuple(reversed(chosen))


@mutant("pairs.whole")
class DropsErrors(Reference):
    def select(self, context: Any, messages: Any, room: int) -> Any:
        failed = lambda item: isinstance(item.message, ToolResult) and item.message.is_error  # noqa: E731
        return tuple(item for item in super().select(context, messages, room) if not failed(item))


@mutant("pairs.reused")
class OneResultForEachId(Reference):
    """Takes results of equal ids for one: providers use ids again."""

    def select(self, context: Any, messages: Any, room: int) -> Any:
        seen, out = set(), []
        for item in super().select(context, messages, room):
            if isinstance(item.message, ToolResult):
                if item.message.call_id in seen:
                    continue
                seen.add(item.message.call_id)
            out.append(item)
        return tuple(out)


@mutant("pairs.compacted")
class CutsWhereItCompacted(Reference):
    """Behind a compaction it sends from the newest result on."""

    def behind_mark(self, messages: Any, notes: Any) -> Any:
        if not any(line.get("mark") for line in notes):
            return messages
        at = [n for n, item in enumerate(messages) if isinstance(item.message, ToolResult)]
        return messages[at[-1] :] if at else messages


# --- budget ----------------------------------------------------------------------------------


@mutant("budget.kept", "budget.growing")
class LargerThanItCame(Reference):
    def select(self, context: Any, messages: Any, room: int) -> Any:
        return (Item("", Summary("so far " * 20_000)), *messages)


@mutant("budget.stored", "budget.addition")
class AddsAllItKnows(Reference):
    def digest(self, context: Any, notes: list[Any]) -> str:
        return "\n".join(line["note"] for line in notes)


@mutant("budget.honest")
class CountsInBytes(Reference):
    async def assemble(self, context: Any, messages: Any) -> Assembled:
        answer = await super().assemble(context, messages)
        return replace(answer, estimated_tokens=answer.estimated_tokens * 40)


@mutant("budget.none")
class DividesByTheBudget(Reference):
    def digest(self, context: Any, notes: list[Any]) -> str:
        assert 1 / context.token_budget
        return super().digest(context, notes)


# --- prefix ----------------------------------------------------------------------------------


@mutant("prefix.same-call", "time.repeatable")
class Shuffles(Reference):
    def digest(self, context: Any, notes: list[Any]) -> str:
        return super().digest(context, random.sample(notes, len(notes)))


@mutant("prefix.turn")
class StepCountInFront(Reference):
    """Begins each request with how long it is."""

    def select(self, context: Any, messages: Any, room: int) -> Any:
        return (Item("", Summary(f"{len(messages)} messages")), *super().select(context, messages, room))


@mutant("prefix.room")
class RoomInFront(Reference):
    def select(self, context: Any, messages: Any, room: int) -> Any:
        return (Item("", Summary(f"{room} tokens left")), *super().select(context, messages, room))


@mutant("prefix.delivery")
class NoteCountInFront(Reference):
    async def assemble(self, context: Any, messages: Any) -> Assembled:
        answer, notes = await super().assemble(context, messages), await self.notes(context)
        return replace(answer, messages=(Item("", Summary(f"{len(notes)} notes")), *answer.messages))


@mutant("prefix.sleep")
class CountsWakings(Reference):
    wakings = 0

    async def bootstrap(self, context: Any) -> Bootstrapped:
        self.wakings += 1
        return await super().bootstrap(context)

    def digest(self, context: Any, notes: list[Any]) -> str:
        return f"{super().digest(context, notes)}{self.wakings or ''}"

"""The silent turn of a memory flush: one part of the conversation, one tool, and nothing that anybody hears.

The tool takes a text and no place: it can only add to the day's note. That is all that the turn can reach,
whatever its model says; every other call is answered as that of an unknown tool.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from types import MappingProxyType
from typing import Any

from perdure.actors.aside import Aside
from perdure.actors.gates import Slot
from perdure.actors.messages import Rested, Snapshot, TurnOutcome
from perdure.actors.services import Services
from perdure.context import environment
from perdure.context.flush import NUDGE, SYSTEM, Part, noted, prompt, says_nothing
from perdure.context.numbers import limits
from perdure.context.pipeline import Prepared
from perdure.context.tokens.estimator import Estimator
from perdure.contracts import Answer, Tool, ToolContext, ToolOutput
from perdure.edges import daynote
from perdure.edges.daynote import Origin
from perdure.edges.tools.arguments import Checked
from perdure.edges.tools.outcome import failure, result
from perdure.edges.tools.spec import make_spec, text
from perdure.records import Item, Text, ToolCall, ToolResult, User

STEPS = 3  # model calls for one part: an answer that was no note may be made good twice
OUTPUT = 4_000  # tokens of one answer
LONGEST = 8_000  # characters of one note
SPEC = make_spec(
    "memory_append",
    "Add lines to the end of today's note. Nothing that stands in it can be changed or taken away.",
    "Add lines to today's note",
    {"text": text("What to note, as it should be read later", minLength=1, maxLength=LONGEST)},
    ("text",),
)


class NoteTool:
    """Appends to the note of one workspace, for one session. `room`: characters that this flush has left."""

    spec = SPEC

    def __init__(self, services: Services, root: Path, session: str, room: int) -> None:
        self._services, self._root, self._session, self.room = services, root, session, room
        self.origin = Origin(session)
        self.notes = self.characters = 0
        self.broken = ""  # why the note took nothing
        self._lock = Lock()  # calls of one answer run at once: the same text must not be noted by two

    def of(self, part: Part) -> None:
        """What is noted from now on was made of this part."""
        entries = (part.first,) if part.first == part.last else (part.first, part.last)
        self.origin = Origin(self._session, entries, part.trust)

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        """Durable when it returns."""
        told = noted(arguments["text"])
        if not told:
            return failure("There is nothing to note in that.")
        if len(told) > self.room:
            return failure(f"That is too long: this time, {self.room:,} characters are left. Note less.")
        now, io = self._services.clock.wall_ms(), self._services.io
        try:
            written = await io.run(self._append, told, now, io.sync)
        except OSError as error:
            self.broken = f"the note can't be written: {error.strerror or error}"
            return failure(f"{self.broken}. Nothing was noted.")
        if not written:
            return result("That stands in the note already.")
        self.notes += 1
        self.characters += len(told)
        self.room -= len(told)
        return result("Noted.")

    def _append(self, told: str, now: int, sync: bool) -> int:
        with self._lock:
            return daynote.append(self._root, told, now, self.origin, sync=sync)


class Silent(Aside):
    """Runs until something was noted well, or the model says that there is nothing."""

    async def run_in(self, slot: Slot) -> TurnOutcome:
        """Model ↔ tool, in a place of its own among background work."""
        try:
            with self.services.tracing.span("perdure.flush", self.key):
                return await self._steps(slot)
        finally:
            slot.give()

    def tool(self, view: Snapshot, name: str) -> Tool | None:
        """No other, of whomever."""
        return self.services.tools.get(name)

    async def _answered(self, view: Snapshot, prepared: Prepared, answer: Answer) -> TurnOutcome | None:
        rested = await super()._answered(view, prepared, answer)
        if rested is None:
            return Rested("", "stop") if self._all_noted(answer) else None
        if isinstance(rested, Rested) and not says_nothing(rested.text) and rested.stop != "aborted":
            await self.append(User((Text(NUDGE),)))
            return None
        return rested

    def _all_noted(self, answer: Answer) -> bool:
        calls = sum(isinstance(block, ToolCall) for block in answer.message.content)
        results = [item.message for item in self.view.items[-calls:]]
        return all(isinstance(message, ToolResult) and not message.is_error for message in results)


def silent_turn(services: Services, view: Snapshot, part: Part, which: str, tool: NoteTool) -> Silent:
    """A turn on one part, beside the session of `view`: the summarising model, its own prompt, one tool."""
    key, env = f"{view.key}#flush", view.environment
    info = services.resolver.summariser(env.model)
    lines = limits(min(info.window, env.limits.window))
    light = environment.resolve(
        key, info, SYSTEM, (SPEC,), lines, retention="none", output_cap=OUTPUT, pruning=None
    )
    day = daynote.name_of(services.clock.wall_ms()).removesuffix(".md")
    asked = Item("asked", User((Text(prompt(part, which, day)),), services.clock.wall_ms()))
    own = dataclasses.replace(
        services,
        tools=MappingProxyType({SPEC.name: Checked(tool)}),
        hooks=(),
        timing=dataclasses.replace(services.timing, max_steps=STEPS),
    )
    aside = Snapshot(
        key=key,
        session_id=view.session_id,
        file=view.file,
        generation=view.generation,
        leaf="asked",
        items=(asked,),
        decisions={},
        environment=light,
        unseen=frozenset(),
        estimator=Estimator(),
    )
    return Silent(aside, None, own)

"""A scripted session: calls an engine as a host would, without one.

Committed entries are delivered in order behind a cursor; a view is what the file shows behind its latest
summary, repaired; each call has a deadline, plain `def` methods run in a thread. What an engine raises, and
what it answers of a wrong type, is `Broken`.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import anyio
from msgspec.structs import replace

from perdure.context.safety.heartbeat import drop_silent_heartbeats
from perdure.context.safety.repair import repair
from perdure.context.safety.strip import strip
from perdure.contracts import (
    Assembled,
    Bootstrapped,
    ContextEngine,
    Delegate,
    EngineCompaction,
    EngineContext,
    Maintained,
    Moment,
    Replacement,
    Rewritten,
    Rollback,
    Spawn,
    SpawnEnd,
    SpawnMode,
    TurnReport,
)
from perdure.records import Item, Items, Message, ModelInfo, Stop, Summary, Text, User
from perdure.testing.laws.histories import Messages
from perdure.testing.laws.law import Broken
from perdure.testing.laws.runtime import LawRuntime

if TYPE_CHECKING:
    from perdure.testing.laws.bench import Bench

T = TypeVar("T")
Situation: TypeAlias = Literal["room", "little", "covered"]
"""What a session's calls are like: room for the whole view, for a third of it, all but a turn covered."""
MODEL = ModelInfo("scripted", "scripted", window=200_000)
ROUNDS = 6  # of maintenance, at most
ROOM = 24_000  # tokens: the least budget of a call that has room
COVERED = Summary("Earlier the user and the agent talked about several things.", tokens_before=500)


class Raised(Broken):
    """An engine's method raised where nothing allows it."""

    def __init__(self, method: str, error: BaseException, history: str) -> None:
        super().__init__(f"`{method}` to answer", f"it raised {type(error).__name__}: {error}", history)
        self.error = error


class Session:
    """One session of a law. `log`: its committed entries; `cursor`: the last that was delivered."""

    situation: Situation = "covered"

    def __init__(self, bench: Bench, engine: ContextEngine, key: str, id: str, store: str, name: str) -> None:
        self.bench, self.engine, self.key, self.id, self.name = bench, engine, key, id, name
        self.store, self.log, self.cursor = store, list[Item](), ""
        self.runtime = LawRuntime(bench, bench.folder(store), self)
        self.model: ModelInfo | None = MODEL
        self.rewrites: list[list[tuple[Message | None, Replacement]]] = []
        self._ids = 0

    # --- the log ----------------------------------------------------------------------------------

    def add(self, *messages: Message, ids: tuple[str, ...] = ()) -> Items:
        """Commit messages, without telling the engine."""
        added = []
        for n, message in enumerate(messages):
            self._ids += 1
            added.append(Item(ids[n] if ids else f"{self.id}-{self._ids:06d}", message))
        self.log += added
        return tuple(added)

    def view(self) -> Items:
        """What the pipeline hands to `assemble`: the entries behind the latest summary, repaired."""
        starts = [n for n, item in enumerate(self.log) if isinstance(item.message, Summary)]
        items = tuple(self.log[starts[-1] if starts else 0 :])
        return repair(drop_silent_heartbeats(strip(items).items).items).items

    def covered(self) -> Items:
        """The view when a compaction has covered all but the newest turn."""
        view = self.view()
        starts = [n for n, item in enumerate(view) if isinstance(item.message, User)]
        return (Item("", COVERED), *view[starts[-1] if starts else 0 :])

    def prompt(self) -> str:
        users = [item.message for item in self.log if isinstance(item.message, User)]
        return "\n".join(b.text for b in users[-1].content if isinstance(b, Text)) if users else ""

    def rewrite(self, replacements: tuple[Replacement, ...]) -> Rewritten:
        """Branch before the first match and write the rest again under new ids."""
        stored = {item.entry: item.message for item in self.log}
        self.rewrites.append([(stored.get(each.entry), each) for each in replacements])
        new = {each.entry: each.message for each in replacements}
        at = [n for n, item in enumerate(self.log) if item.entry in new]
        if not at:
            return Rewritten(False, reason="no matching message entries")
        rest, self.log = self.log[at[0] :], self.log[: at[0]]
        self.add(*(new.get(item.entry, item.message) for item in rest))
        self.cursor = self.log[at[0] - 1].entry if at[0] else ""
        return Rewritten(True, len(at))

    # --- calls ------------------------------------------------------------------------------------

    def context(
        self, budget: int = ROOM, *, prompt: str | None = None, heartbeat: bool = False
    ) -> EngineContext:
        told = self.prompt() if prompt is None else prompt
        file = f"{self.id}.jsonl"
        return EngineContext(
            self.id, self.key, file, budget, self.runtime, self.model, told, ("read", "grep"), heartbeat
        )  # fmt: skip

    def has(self, method: str) -> bool:
        return callable(getattr(self.engine, method, None))

    async def call(self, method: str, *arguments: Any, **named: Any) -> Any:
        """What the method answers. Raises `Raised`, or `Broken` behind its deadline."""
        return await timed(self.bench, self.engine, method, self.name, *arguments, **named)

    async def typed(self, kind: type[T], method: str, *arguments: Any, **named: Any) -> T:
        """The same, of that type."""
        found = await self.call(method, *arguments, **named)
        if type(found) is not kind:
            told = f"it answered {type(found).__name__}"
            raise Broken(f"`{method}` to answer {kind.__name__}", told, self.name)
        return found

    async def deliver(self, items: Items, *, single: bool = False) -> None:
        """Hand committed entries over, by `ingest_batch` where the engine has it."""
        context = self.context(0)
        if self.has("ingest_batch") and not single:
            await self.typed(int, "ingest_batch", context, items)
        else:
            for item in items:
                await self.typed(bool, "ingest", context, item)
        if items:
            self.cursor = items[-1].entry

    async def catch_up(self) -> None:
        """Deliver what lies behind the cursor."""
        ids = [item.entry for item in self.log]
        behind = self.log[ids.index(self.cursor) + 1 if self.cursor in ids else 0 :]
        if behind:
            await self.deliver(tuple(behind))

    async def wake(self) -> None:
        """As a session wakes: bootstrap, what is missing by its cursor, maintenance."""
        if self.log and self.has("bootstrap"):
            told = await self.typed(Bootstrapped, "bootstrap", self.context(0))
            if told.cursor is not None:
                self.cursor = told.cursor
        await self.catch_up()
        await self.maintain("bootstrap")

    async def turn(self, *messages: Message, stop: Stop = "stop", heartbeat: bool = False) -> None:
        """Commit and deliver a turn, then call the hooks behind it."""
        items = self.add(*messages)
        await self.catch_up()
        await self.after_turn(items, stop, heartbeat=heartbeat)
        await self.maintain("turn")

    async def after_turn(self, items: Items, stop: Stop = "stop", *, heartbeat: bool = False) -> None:
        if self.has("after_turn"):
            view = self.view()
            report = TurnReport(items, view, stop, self.runtime.estimate(view))
            context = self.context(ROOM, heartbeat=heartbeat)
            await self.typed(type(None), "after_turn", context, report)

    async def live(self, messages: Messages) -> Session:
        """A whole history, turn by turn, the newest turn still running."""
        starts = [n for n, m in enumerate(messages) if isinstance(m, User) and n]
        edges = [0, *starts, len(messages)]
        for a, b in pairwise(edges[:-1]):
            await self.turn(*messages[a:b])
        self.add(*messages[edges[-2] :])
        await self.catch_up()
        return self

    async def assemble(self, view: Items | None = None, budget: int = 0, **told: Any) -> Assembled:
        """Of the view as it is, with room, unless told otherwise."""
        given = self.view() if view is None else view
        room = budget or self.room(given)
        return await self.typed(Assembled, "assemble", self.context(room, **told), given)

    async def answers(self) -> tuple[Assembled, ...]:
        """What it answers in this session's situation: always the same call, to be compared with itself.

        One situation a session, for an engine may keep to what it sent before.
        """
        if self.situation == "covered":
            return (await self.assemble(self.covered()),)
        return (await self.assemble(budget=self.little() if self.situation == "little" else 0),)

    async def situations(self) -> tuple[Assembled, ...]:
        """What it answers with little room, when all but a turn is covered, and with room."""
        view = self.view()
        return (
            await self.assemble(view, self.little()),
            await self.assemble(self.covered()),
            await self.assemble(view),
        )

    def little(self) -> int:
        """A third of the view."""
        return max(600, self.runtime.estimate(self.view()) // 3)

    async def compact(self, delegate: Delegate, *, force: bool = True) -> EngineCompaction:
        told = {"force": force, "instructions": ""}
        return await self.typed(EngineCompaction, "compact", self.context(), delegate, **told)

    async def maintain(self, moment: Moment) -> Maintained:
        """`Maintained()` where the engine has no such method; what it rewrote is delivered."""
        if not self.has("maintain"):
            return Maintained()
        self.runtime.moment = "maintain"
        try:
            found = await self.typed(Maintained, "maintain", self.context(ROOM), moment)
        finally:
            self.runtime.moment = ""
        await self.catch_up()
        return found

    async def settle(self) -> None:
        """Maintenance until it rewrites nothing more."""
        for _ in range(ROUNDS):
            if not (await self.maintain("turn")).rewritten:
                return

    async def spawn(self, child: Session, mode: SpawnMode) -> Rollback | None:
        if not self.has("prepare_subagent_spawn"):
            return None
        told = Spawn(self.key, child.key, self.id, "count the boxes", mode)
        back: Rollback | None = await self.call("prepare_subagent_spawn", self.context(ROOM), told)
        return back

    async def ended(self, child_key: str, end: SpawnEnd) -> None:
        if self.has("on_subagent_ended"):
            await self.typed(type(None), "on_subagent_ended", self.context(0), child_key, end)

    def room(self, view: Items) -> int:
        """A budget that `view` fills to a fifth at most."""
        return max(ROOM, 5 * self.runtime.estimate(view))

    def size(self, answer: Assembled) -> int:
        """Tokens of messages and addition, as a session counts them."""
        extra = Item("", User((Text(answer.addition),)))
        return self.runtime.estimate(answer.messages) + (
            self.runtime.estimate((extra,)) if answer.addition else 0
        )


async def timed(
    bench: Bench, engine: ContextEngine, method: str, history: str, *arguments: Any, **named: Any
) -> Any:
    """Call a method as the host does: plain functions in a thread, everything within the deadline."""
    late = Broken(f"`{method}` to answer within {bench.deadline:g} s", "it did not come back", history)
    with anyio.move_on_after(bench.deadline) as scope:
        try:
            raised = bench.trap.raised
            found = await called(bench, getattr(engine, method), *arguments, **named)
            bench.trap.swallowed |= bench.trap.raised and not raised
            return found
        except Broken:
            raise
        except Exception as error:
            if not scope.cancel_called:
                raise Raised(method, error, history) from error
    raise late


async def called(bench: Bench, method: Any, *arguments: Any, **named: Any) -> Any:
    """A method that is `async def`, or plain `def`."""
    if inspect.iscoroutinefunction(method) or bench.virtual:
        found = method(*arguments, **named)
    else:
        work = partial(method, *arguments, **named)
        found = await anyio.to_thread.run_sync(work, abandon_on_cancel=True)
    if isinstance(found, Awaitable):
        return await found
    return found


def reissued(items: Items, id: str) -> Items:
    """The same messages under the entry ids of another session."""
    return tuple(replace(item, entry=f"{id}-{n:06d}") for n, item in enumerate(items))

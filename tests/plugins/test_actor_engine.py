"""An engine is what it overrides; an actor is an engine by what it answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from perdure.contracts import Assembled, EngineCompaction, EngineContext, EngineInfo, Maintained, Spawn
from perdure.errors import Busy
from perdure.plugins import actor
from perdure.plugins.actor import ActorEngine, Assemble, Compact, Dispose, Ingest, PrepareSpawn
from perdure.plugins.base import Engine, flat, turns
from perdure.records import Assistant, Item, Items, Text, User
from perdure.testing.lending import FakeRuntime, engine_context

pytestmark = pytest.mark.anyio
INFO = EngineInfo("clerk", "Clerk")
VIEW: Items = tuple(
    Item(f"e{n}", User((Text(str(n)),)) if n % 2 else Assistant((Text(str(n)),))) for n in range(6)
)


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def context(tmp_path: Path) -> EngineContext:
    return engine_context(FakeRuntime(tmp_path))


async def delegate() -> EngineCompaction:
    return EngineCompaction(True, True, "by the runtime")


class Clerk:
    """Knows three messages."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    async def receive(self, message: Any) -> Any:
        self.seen.append(message)
        match message:
            case Ingest(items=items):
                return len(items)
            case Assemble(messages=view):
                return view[-2:]
            case PrepareSpawn():
                return self.back
        return NotImplemented

    async def back(self) -> None:
        self.seen.append("back")


async def test_a_base_engine_changes_nothing(context: EngineContext) -> None:
    class Nothing(Engine):
        info = INFO

    engine = Nothing()
    assert (await engine.assemble(context, VIEW)).messages is VIEW
    assert await engine.ingest_batch(context, VIEW) == 0
    assert await engine.compact(context, delegate, force=True, instructions="") == await delegate()
    assert await engine.maintain(context, "turn") == Maintained()
    assert await engine.prepare_subagent_spawn(context, Spawn("a", "b", "c", "d")) is None
    assert engine.tools() == ()


def test_a_view_is_cut_into_turns_and_back() -> None:
    assert [len(part) for part in turns(VIEW)] == [1, 2, 2, 1]
    assert flat(turns(VIEW)) == VIEW
    assert turns(()) == ()


async def test_each_call_is_one_message_and_its_answer_the_result(context: EngineContext) -> None:
    clerk = Clerk()
    engine = ActorEngine(INFO, clerk)
    assert await engine.ingest_batch(context, VIEW) == 6
    assert await engine.ingest(context, VIEW[0])
    assert await engine.assemble(context, VIEW) == Assembled(VIEW[-2:])
    back = await engine.prepare_subagent_spawn(context, Spawn("a", "b", "c", "d"))
    assert back is not None
    await back()
    await engine.dispose()
    assert [type(each) for each in clerk.seen] == [Ingest, Ingest, Assemble, PrepareSpawn, str, Dispose]


async def test_what_an_actor_does_not_know_is_answered_by_a_default(context: EngineContext) -> None:
    engine = ActorEngine(INFO, Clerk())
    assert await engine.compact(context, delegate, force=True, instructions="") == await delegate()
    assert (await engine.bootstrap(context)).cursor is None
    await engine.on_subagent_ended(context, "child", "completed")


@pytest.mark.parametrize("way", ["ask", "receive", "handle"])
async def test_an_actor_has_one_of_three_ways_to_be_told(way: str, context: EngineContext) -> None:
    told = type("Desk", (), {way: lambda self, message: None})()
    assert (await ActorEngine(INFO, told).assemble(context, VIEW)).messages == VIEW


def test_what_is_no_actor_is_refused_in_words() -> None:
    with pytest.raises(TypeError, match="int is no actor: it has neither `ask`, `receive` nor `handle`"):
        ActorEngine(INFO, 7)


async def test_an_answer_of_a_wrong_type_is_named(context: EngineContext) -> None:
    async def wrong(message: Any) -> Any:
        return "a string" if isinstance(message, Assemble | Compact) else 5

    engine = ActorEngine(INFO, wrong)
    with pytest.raises(TypeError, match="clerk answered Assemble with str, not Assembled or tuple or list"):
        await engine.assemble(context, VIEW)
    with pytest.raises(TypeError, match="clerk answered Compact with str"):
        await engine.compact(context, delegate, force=True, instructions="")
    with pytest.raises(TypeError, match="no function"):
        await engine.prepare_subagent_spawn(context, Spawn("a", "b", "c", "d"))


async def test_an_actor_gets_one_message_after_another(context: EngineContext) -> None:
    running = most = 0

    async def slow(message: Any) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await anyio.lowlevel.checkpoint()
        running -= 1

    engine = ActorEngine(INFO, slow)
    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(engine.assemble, context, VIEW)
    assert most == 1


async def test_its_queue_is_bounded(context: EngineContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actor, "WAITING", 2)
    gate = anyio.Event()

    async def hangs(message: Any) -> None:
        await gate.wait()

    engine = ActorEngine(INFO, hangs)
    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(engine.assemble, context, VIEW)
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(Busy, match="clerk has 2 messages waiting"):
            await engine.assemble(context, VIEW)
        gate.set()

"""An engine in another process: it answers, it crashes, it lies, it hangs; and it never outlives its host."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from textwrap import dedent
from typing import Any

import anyio
import pytest

from perdure.contracts import Assembled, EngineCompaction, EngineContext, EngineInfo, Spawn
from perdure.errors import PerdureError
from perdure.plugins.process import ProcessEngine
from perdure.plugins.wire import line, pack, parsed, unpack
from perdure.records import Item, Items, Text, ToolCall, User
from perdure.testing.laws.answers import whole_text
from perdure.testing.laws.histories import HISTORIES
from perdure.testing.lending import FakeRuntime, engine_context

pytestmark = pytest.mark.anyio
INFO = EngineInfo("far", "Far away")
VIEW: Items = tuple(Item(f"e{n}", User((Text(f"message {n}"),))) for n in range(3))

WELL = """
    import os, signal, sys, anyio
    from perdure.contracts import Assembled
    from perdure.plugins.base import Engine
    from perdure.plugins.remote import serve
    from perdure.records import Item

    class Far(Engine):
        async def assemble(self, context, messages):
            what = context.prompt
            if what == "history":
                return Assembled(await context.runtime.history("", 2))
            if what == "model":
                said = await context.runtime.complete("", "summarise", system="briefly")
                return Assembled((), addition=said)
            if what == "die":
                os.kill(os.getpid(), signal.SIGKILL)
            if what == "hang":
                await anyio.sleep(100)
            if what == "spin":
                while True: pass
            if what == "flood":
                sys.stderr.write("noise " * 40_000 + "\\n" + "line\\n" * 1_000)
            if what == "raise":
                raise LookupError("no such thing")
            print("a print is no message")
            return Assembled(messages[::-1], addition=str(os.getpid()))

        async def compact(self, context, delegate, *, force, instructions):
            return await delegate()

        async def prepare_subagent_spawn(self, context, spawn):
            async def back():
                context.runtime.log("taken back", child=spawn.child_key)
            return back

    serve(Far)
"""
RAW = """
    import json, sys
    def say(**told): print(json.dumps(told), flush=True)
    sys.stdin.readline()
    say(hello={"protocol": 1, "methods": ["assemble", "dispose"]})
    for text in sys.stdin:
        call = json.loads(text).get("call")
"""
ASKS = """
say(ask=1, of=call, what="secrets", arguments=[])
say(call=call, error=json.loads(sys.stdin.readline())["error"])
"""


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def runtime(tmp_path: Path) -> FakeRuntime:
    made = FakeRuntime(tmp_path)
    made.virtual = False
    made.stored = VIEW
    return made


def about(runtime: FakeRuntime, what: str = "", session: str = "session-1") -> EngineContext:
    return engine_context(runtime, prompt=what, id=session)


@asynccontextmanager
async def far(code: str, more: str = "", **told: Any) -> AsyncIterator[ProcessEngine]:
    program = dedent(code) + "".join(f"    {each}\n" for each in more.splitlines())
    engine = ProcessEngine(INFO, [sys.executable, "-c", program], **told)
    with anyio.fail_after(30):
        try:
            yield engine
        finally:
            await engine.dispose()


async def test_it_answers_and_asks_its_host(runtime: FakeRuntime) -> None:
    async def delegate() -> EngineCompaction:
        return EngineCompaction(True, True, "by the runtime")

    async with far(WELL) as engine:
        assert (await engine.assemble(about(runtime), VIEW)).messages == VIEW[::-1]
        assert (await engine.assemble(about(runtime, "history"), ())).messages == VIEW[:2]
        assert (await engine.assemble(about(runtime, "model"), ())).addition == "summarise"
        assert runtime.asked == [(about(runtime).session_key, "summarise", "briefly")]
        done = await engine.compact(about(runtime), delegate, force=True, instructions="")
        assert done.reason == "by the runtime"
        back = await engine.prepare_subagent_spawn(about(runtime), Spawn("a", "b", "c", "d"))
        assert back is not None
        await back()
        assert ("taken back", {"child": "b"}) in runtime.logged
        assert not await engine.ingest(about(runtime), VIEW[0])
        with pytest.raises(PerdureError, match="far: `assemble`: LookupError: no such thing"):
            await engine.assemble(about(runtime, "raise"), VIEW)
    assert ("stderr", {"text": "a print is no message"}) in runtime.logged


async def test_a_kill_costs_its_call_and_the_next_starts_it_anew(runtime: FakeRuntime) -> None:
    async with far(WELL) as engine:
        first = await engine.assemble(about(runtime), VIEW)
        with pytest.raises(PerdureError, match="its process ended with code -9"):
            await engine.assemble(about(runtime, "die"), VIEW)
        second = await engine.assemble(about(runtime), VIEW)
        assert second.messages == first.messages
        assert second.addition != first.addition
    assert ("process.ended", {"engine": "far", "reason": "its process ended with code -9"}) in runtime.logged


async def test_one_that_is_late_is_ended_and_harms_no_other_call(runtime: FakeRuntime) -> None:
    answers: list[Assembled] = []

    async def beside() -> None:
        answers.extend([await engine.assemble(about(runtime, session="s-2"), VIEW) for _ in range(5)])

    async with far(WELL, call_seconds=0.6) as engine:
        first = await engine.assemble(about(runtime), VIEW)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(beside)
            assert "`assemble` was not answered within 0.6 s" in await refused(engine, about(runtime, "hang"))
        assert len(answers) == 5
        obeyed = await engine.assemble(about(runtime), VIEW)
        assert obeyed.addition == first.addition  # it stopped when it was told to, and lives
        assert "did not stop when it was told to" in await refused(engine, about(runtime, "spin"))
        assert (await engine.assemble(about(runtime), VIEW)).addition != first.addition


async def refused(engine: ProcessEngine, context: EngineContext) -> str:
    with pytest.raises(PerdureError) as raised:
        await engine.assemble(context, VIEW)
    return str(raised.value)


async def test_a_call_that_is_cut_off_leaves_the_process_in_order(runtime: FakeRuntime) -> None:
    async with far(WELL) as engine:
        first = await engine.assemble(about(runtime), VIEW)
        with anyio.move_on_after(0.05) as scope:
            await engine.assemble(about(runtime, "hang"), VIEW)
        assert scope.cancelled_caught
        assert await engine.assemble(about(runtime), VIEW) == first


async def test_a_flood_on_stderr_holds_nothing_up(runtime: FakeRuntime) -> None:
    async with far(WELL) as engine:
        assert (await engine.assemble(about(runtime, "flood"), VIEW)).messages == VIEW[::-1]
    said = [fields for event, fields in runtime.logged if event == "stderr"]
    assert 0 < len(said) < 500
    assert all(len(str(fields["text"])) <= 500 for fields in said)


@pytest.mark.parametrize(
    ("lie", "told"),
    [
        ('print("nonsense", flush=True)', "not a message: b'nonsense'"),
        ('say(call=call, answer={"is": "Nothing"})', "a record of an unknown kind: 'Nothing'"),
        ('say(call=call, answer={"is": "Assembled"})', "not a Assembled"),
        ("say(call=call, answer=7)", "answered `assemble` with a int, not Assembled"),
        ("sys.exit(3)", "its process ended with code 3"),
        ("import os; os.close(1); sys.stdin.read()", "it closed its stdout"),
        (ASKS, "'secrets' can't be asked here"),
    ],
)
async def test_what_the_protocol_does_not_know_is_told_in_words(
    lie: str, told: str, runtime: FakeRuntime
) -> None:
    async with far(RAW, lie) as engine:
        said = await refused(engine, about(runtime))
    assert told in said
    assert "\n" not in said


async def test_one_that_crashes_again_and_again_is_restarted_more_rarely(runtime: FakeRuntime) -> None:
    async with far(RAW, "sys.exit(1)") as engine:
        told = []
        for _ in range(4):
            with pytest.raises(PerdureError) as raised:
                await engine.assemble(about(runtime), VIEW)
            told.append(str(raised.value))
    assert [("code 1" in text, "restarted in" in text) for text in told] == [
        (True, False), (True, False), (False, True), (False, True)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (["/no/such/program"], "can't be started: No such file"),
        ([sys.executable, "-c", "pass"], "its process ended with code 0"),
        ([sys.executable, "-c", "print('{}', flush=True); input()"], "did not say hello in protocol 1"),
        ([sys.executable, "-c", "import time; time.sleep(60)"], "did not say hello within 0.5 s"),
    ],
)
async def test_what_does_not_start_is_told_in_words(
    command: list[str], told: str, runtime: FakeRuntime
) -> None:
    engine = ProcessEngine(INFO, command, start_seconds=0.5)
    with pytest.raises(PerdureError, match=f"far: .*{told}"):
        await engine.assemble(about(runtime), VIEW)
    await engine.dispose()


async def test_virtual_time_is_refused(tmp_path: Path) -> None:
    engine = ProcessEngine(INFO, ["/no/such/program"])
    with pytest.raises(PerdureError, match="no virtual time: use a real clock"):
        await engine.assemble(about(FakeRuntime(tmp_path)), VIEW)


async def test_one_that_won_t_go_is_killed_when_it_is_disposed(runtime: FakeRuntime) -> None:
    stays = "say(call=call, answer=None)\nwhile call == 2: pass"
    async with far(RAW, stays) as engine:
        assert await engine.assemble(about(runtime), VIEW) == Assembled(VIEW)
        await engine.dispose()
        with pytest.raises(PerdureError, match="far was disposed"):
            await engine.assemble(about(runtime), VIEW)


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="Linux tells when a process has gone")
def test_it_does_not_outlive_a_host_that_was_killed(tmp_path: Path) -> None:
    program = f"""
import anyio, sys
from pathlib import Path
from perdure.contracts import EngineInfo
from perdure.plugins.process import ProcessEngine
from perdure.testing.lending import FakeRuntime, engine_context

async def main():
    runtime = FakeRuntime(Path({str(tmp_path)!r})); runtime.virtual = False
    engine = ProcessEngine(EngineInfo("far", "Far"), [sys.executable, "-c", {dedent(WELL)!r}])
    print((await engine.assemble(engine_context(runtime), ())).addition, flush=True)
    await anyio.sleep(100)
anyio.run(main)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as host:
        assert host.stdout is not None
        child = int(host.stdout.readline())
        gone = os.pidfd_open(child)
        host.kill()
        host.wait()
    assert select.select([gone], [], [], 10)[0], "the child still runs"
    os.close(gone)


@pytest.mark.parametrize("history", HISTORIES)
def test_every_history_survives_the_wire(history: str) -> None:
    items = tuple(Item(f"e{n}", message) for n, message in enumerate(HISTORIES[history]))
    assert unpack(parsed(line({"value": pack(items)}))["value"]) == items


def test_half_characters_and_broken_bytes_survive_the_wire() -> None:
    item = Item("\ud83d", User((Text("\udcff \ud83d"), ToolCall("x", "y", b'\xff{"a": "\xf0"}'))))
    assert unpack(parsed(line({"value": pack(item)}))["value"]) == item


def test_a_value_that_no_process_could_read_is_refused() -> None:
    with pytest.raises(PerdureError, match="a function can't be sent"):
        pack(whole_text)

"""Reported faults of plugins, each with the right outcome: hangs, crashes, restarts, what they are told."""

from __future__ import annotations

import inspect
import json
import time
from pathlib import Path
from typing import Any

import anyio
import pytest

from helpers_cases import case, covers
from helpers_host import KEY, Play, ask, hosted, messages, notices, real, said_by_users, session_path, virtual
from helpers_kernel import LOOPS
from perdure.actors.services import Timing
from perdure.contracts import METHODS, Assembled, Bootstrapped, EngineCompaction, EngineInfo, Maintained
from perdure.edges.settings import PluginSettings, Settings, SlotSettings
from perdure.errors import UnknownEngine
from perdure.host import Host
from perdure.kernel.clock import RealClock
from perdure.kernel.virtual import VirtualClock

OTHER = "agent:main:cli:dm:other"


class Engine:
    """Every method of the contract; `does[name](n)` is run first in the n-th call of a method."""

    info = EngineInfo("probe", "Probe")

    def __init__(self, **does: Any) -> None:
        self.does, self.counts = does, dict.fromkeys(METHODS, 0)
        self.seen: list[str] = []
        self.cursor: str | None = None

    async def _called(self, name: str) -> None:
        self.counts[name] += 1
        act = self.does.get(name)
        if act is not None:
            await act(self.counts[name])

    async def bootstrap(self, context: Any) -> Bootstrapped:
        await self._called("bootstrap")
        return Bootstrapped(cursor=self.cursor)

    async def maintain(self, context: Any, moment: str) -> Maintained:
        await self._called("maintain")
        return Maintained()

    async def ingest(self, context: Any, item: Any) -> bool:
        await self._called("ingest")
        self.seen.append(item.entry)
        return True

    async def after_turn(self, context: Any, report: Any) -> None:
        await self._called("after_turn")

    async def assemble(self, context: Any, messages: Any) -> Assembled:
        await self._called("assemble")
        return Assembled(messages)

    async def compact(self, context: Any, delegate: Any, **_: Any) -> EngineCompaction:
        await self._called("compact")
        return await delegate()  # type: ignore[no-any-return]

    async def dispose(self) -> None:
        await self._called("dispose")


async def for_ever(_n: int) -> None:
    await anyio.sleep_forever()


@covers("PL01")
@pytest.mark.parametrize("loop", LOOPS)
def test_a_message_outlives_a_hook_that_never_settles(tmp_path: Path, loop: Any) -> None:
    """By the machine's time: what never settles must not be able to hold it up either."""
    assert "awaits forever" in case("PL01")["input"]["plugin"]
    engine, play = Engine(ingest=for_ever), Play()

    async def main() -> None:
        told = Timing(engine=0.2)
        async with hosted(tmp_path, play, RealClock(), engine=engine, timing=told) as host:
            seen = notices(host)
            sent = await host.send(KEY, "m1")
            assert said_by_users(session_path(tmp_path)) == ["m1"]  # before any hook
            assert (await sent.reply(20)).stop == "stop"
            assert any(n.kind == "engine" and "probe" in n.text and "ingest" in n.text for n in seen)

    real(main, loop)


@covers("PL02")
@pytest.mark.parametrize("loop", LOOPS)
def test_blocking_code_of_a_plugin_harms_neither_the_loop_nor_the_shutdown(tmp_path: Path, loop: Any) -> None:
    assert "time.sleep(60)" in case("PL02")["input"]["plugin"]

    class Blocking(Engine):
        def after_turn(self, context: Any, report: Any) -> None:  # type: ignore[override]
            self.counts["after_turn"] += 1
            if context.session_key == KEY:
                time.sleep(60)

    engine, play, stalls = Blocking(), Play(), []

    async def beat(stop: anyio.Event) -> None:
        while not stop.is_set():
            before = time.perf_counter()
            await anyio.sleep(0.005)
            stalls.append(time.perf_counter() - before - 0.005)

    async def main() -> float:
        told, stop = Timing(engine=0.3), anyio.Event()
        host = hosted(tmp_path, play, RealClock(), engine=engine, timing=told)
        async with anyio.create_task_group() as group, host:
            group.start_soon(beat, stop)
            seen = notices(host)
            for n in range(3):
                assert (await ask(host, f"turn {n}")).stop == "stop"
                assert (await ask(host, f"turn {n}", OTHER)).stop == "stop"
                await anyio.sleep(0.35)
            assert engine.counts["maintain"] >= 3  # other hooks of the event still run
            (line,) = (e for e in host.status()["engines"] if e["id"] == "probe")
            assert line["quarantined"] == [KEY]
            assert any("after_turn" in n.text for n in seen if n.key == KEY)
            assert not [n for n in seen if n.key == OTHER and n.kind == "engine"]
            stop.set()
            began = time.perf_counter()
        return time.perf_counter() - began

    took = real(main, loop)
    assert took < 10  # the stuck threads sleep for a minute
    assert max(stalls) < 5


@covers("PL03")
def test_every_method_of_the_contract_has_a_deadline_by_construction(tmp_path: Path) -> None:
    """There is one way to call a plugin, and it takes `seconds`; what is called otherwise fails here."""
    from perdure.actors import calling
    from perdure.actors.engines import actor

    assert "never settles" in case("PL03")["input"]["plugin"]
    places = inspect.signature(calling.call).parameters
    assert places["seconds"].default is inspect.Parameter.empty
    assert inspect.signature(actor.EngineActor.call).parameters["seconds"].default is None
    for name in ("bootstrap", "ingest", "assemble", "after_turn", "maintain"):
        folder = tmp_path / name
        folder.mkdir()
        engine = Engine(**{name: _waits})

        async def main(clock: VirtualClock, folder: Path = folder, engine: Engine = engine) -> None:
            _waits.clock = clock  # type: ignore[attr-defined]
            async with hosted(folder, Play(), clock, engine=engine, timing=Timing(engine=5.0)) as host:
                seen = notices(host)
                assert (await ask(host, "hello")).stop == "stop"
                await clock.sleep(20)
                assert any(n.kind == "engine" for n in seen), engine.counts

        virtual(main)


async def _waits(_n: int) -> None:
    await _waits.clock.sleep(10**9)  # type: ignore[attr-defined]


class Fatal(BaseException):
    """No `Exception`, and no cancellation of ours."""


@covers("PL05")
@pytest.mark.parametrize("error", [RuntimeError("a bug"), Fatal("worse"), SystemExit(3)], ids=repr)
@pytest.mark.parametrize("strict", [False, True], ids=["fallback", "strict"])
def test_a_failing_engine_is_replaced_aloud_or_refused(
    tmp_path: Path, strict: bool, error: BaseException
) -> None:
    assert "raises on turn 2" in case("PL05")["input"]["engine"]

    async def fails(n: int) -> None:
        if n == 2:
            raise error

    play, engine = Play(), Engine(assemble=fails)
    settings = Settings(plugins=PluginSettings(strict=strict))

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, play, clock, engine=engine, settings=settings) as host:
            seen = notices(host)
            assert (await ask(host, "one")).stop == "stop"
            second, asked = await ask(host, "two"), len(play.bodies[KEY])
            (line,) = (e for e in host.status()["engines"] if e["id"] == "probe")
            assert (line["state"], line["failures"]) == ("failing", 1)
            assert [n.kind for n in seen] == ["engine"]
            if strict:
                assert (second.stop, asked) == ("error", 1)
                assert "probe" in second.errors[-1]
                assert "strict" in second.errors[-1]
            else:
                assert (second.stop, asked) == ("stop", 2)
            assert (await ask(host, "three")).stop == "stop"

    virtual(main)


@covers("PL06")
def test_an_engine_nobody_registered_is_told_once_with_the_names_there_are(tmp_path: Path) -> None:
    id = case("PL06")["input"]["config"]["engine"]
    play, slots = Play(), SlotSettings(context_engine=id)

    async def main(clock: VirtualClock) -> None:
        settings = Settings(plugins=PluginSettings(slots=slots))
        async with hosted(tmp_path, play, clock, settings=settings) as host:
            assert "'nope'" in host.resolver.replaced
            assert "legacy" in host.resolver.replaced
            for n in range(case("PL06")["input"]["events"][0].count("3") * 3):
                assert (await ask(host, f"{n}")).stop == "stop"
        log = (tmp_path / "state" / "runtime.log").read_text().splitlines()
        assert sum(json.loads(row)["event"] == "engine.fallback" for row in log) == 1

    virtual(main)
    strict = Settings(plugins=PluginSettings(slots=slots, strict=True))

    async def refused(clock: VirtualClock) -> None:
        async with hosted(tmp_path, play, clock, settings=strict):
            pass

    with pytest.raises(UnknownEngine, match="'nope' is not known: one of"):
        virtual(refused)


async def _ten_turns_and_a_restart(folder: Path, engine: Engine, clock: VirtualClock, *, kill: bool) -> Host:
    async with hosted(folder, Play(), clock, engine=engine) as host:
        for n in range(10):
            await ask(host, f"turn {n}")
        if kill:
            await clock.sleep(1)
            host.kill()
    return host


@covers("PL07", "PL09")
@pytest.mark.parametrize("own_cursor", [False, True], ids=["the host's cursor", "a cursor of its own"])
@pytest.mark.parametrize("kill", [False, True], ids=["closed", "killed"])
def test_after_a_restart_an_engine_hears_what_is_new_and_all_of_it(
    tmp_path: Path, kill: bool, own_cursor: bool
) -> None:
    engine = Engine()

    async def main(clock: VirtualClock) -> None:
        await _ten_turns_and_a_restart(tmp_path, engine, clock, kill=kill)
        before = list(engine.seen)
        engine.cursor = before[-1] if own_cursor else None
        async with hosted(tmp_path, Play(), clock, engine=engine) as host:
            await ask(host, "one more")
            await clock.sleep(1)
            (line,) = (e for e in host.status()["engines"] if e["id"] == "probe")
            assert line["behind"] == []
        new = engine.seen[len(before) :]
        stored = [entry["id"] for entry in messages(session_path(tmp_path))]
        assert set(engine.seen) == set(stored)  # it saw every entry …
        assert new == stored[20:]  # … the old ones not again …
        assert before == stored[:20]  # … each once, and in order

    virtual(main)


@covers("PL09")
def test_an_engine_that_lags_is_an_alarm_and_catches_up(tmp_path: Path) -> None:
    async def refuses(n: int) -> None:
        if n in (2, 3):
            raise OSError("its disk is full")

    engine = Engine(ingest=refuses)

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, Play(), clock, engine=engine) as host:
            await ask(host, "one")
            await clock.sleep(1)
            (line,) = (e for e in host.status()["engines"] if e["id"] == "probe")
            assert line["behind"] == [KEY]
            await ask(host, "two")
            await clock.sleep(1)
            (line,) = (e for e in host.status()["engines"] if e["id"] == "probe")
            assert line["behind"] == []
        assert engine.seen == [entry["id"] for entry in messages(session_path(tmp_path))]
        assert "engine.behind" in (tmp_path / "state" / "runtime.log").read_text()

    virtual(main)

"""What a host says of itself: lag with its culprit, what it does without, what was lost."""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from helpers_host import KEY, Fn, Play, ask, calls, hosted, real, tells, virtual
from perdure.actors.services import Timing
from perdure.contracts import ToolContext
from perdure.edges import machine
from perdure.edges.models.reply import fail
from perdure.kernel.clock import Clock, RealClock
from perdure.kernel.run import Backend


def log_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "state" / "runtime.log").read_text().splitlines()]


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_a_tool_that_blocks_the_loop_is_named_with_its_session(tmp_path: Path, loop: Backend) -> None:
    async def hogs(arguments: Mapping[str, Any], context: ToolContext) -> str:
        time.sleep(0.6)  # noqa: ASYNC251  # what it is about
        return "done"

    async def main() -> None:
        clock = RealClock()
        async with hosted(tmp_path, Play(calls("hog")), clock, tools=[Fn("hog", hogs)]) as host:
            await clock.sleep(0.12)
            await ask(host, "go")
            await clock.sleep(0.12)
            told = host.status()
            assert told["host"]["loop_lag_ms"] > 0
            assert told["lag"]["blocked"] >= 1
            assert told["lag"]["max_ms"] >= 400

    real(main, loop)
    found = [line for line in log_of(tmp_path) if line["event"] == "loop.blocked" and line["at"]]
    blamed = [line for line in found if line["at"].endswith("hogs")]
    assert blamed
    assert blamed[0]["session"] == KEY
    assert blamed[0]["ms"] >= 400


def test_errors_of_models_are_counted_by_class_with_retries(tmp_path: Path) -> None:
    async def main(clock: Clock) -> None:
        play = Play(fail("overloaded"), fail("overloaded"), fail("stall"))
        timing = Timing(model_idle=20, retries=3)
        async with hosted(tmp_path, play, clock, timing=timing) as host:
            await ask(host, "go")
            (line,) = host.status()["models"]
            assert line["errors"] == {"overloaded": 2, "timeout": 1}
            assert (line["requests"], line["retries"]) == (4, 3)
            assert host.status()["lag"] is None
            assert host.health() == []

    virtual(main)


def test_what_is_worse_than_it_should_be_is_told_in_words(tmp_path: Path) -> None:
    async def broken(arguments: Mapping[str, Any], context: ToolContext) -> str:
        raise RuntimeError("no")

    async def main(clock: Clock) -> None:
        async with hosted(tmp_path, Play(calls("bad")), clock, tools=[Fn("bad", broken)]) as host:
            assert host.status()["degraded"] == []
            await ask(host, "go")
            assert host.log.counts["tool.failed"] == 1
            host.log.warning("session.lock_taken", file="x")
            assert any("1 × session.lock_taken: another" in line for line in host.status()["degraded"])

    virtual(main)


def test_a_listener_that_falls_behind_is_counted_and_told(tmp_path: Path) -> None:
    async def main(clock: Clock) -> None:
        async with hosted(tmp_path, Play(), clock) as host:
            events = host.events()
            for _ in range(120):
                await ask(host, "x")
            assert host.log.counts["kernel.channel.dropped"] > 0
            assert any("kernel.channel.dropped" in line for line in host.status()["degraded"])
            await anext(events)

    virtual(main)


def test_few_descriptors_bound_the_sessions_awake_and_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (machine.SPARE + 2, 4096))

    async def main() -> None:
        async with hosted(tmp_path, Play(), RealClock()) as host:
            for n in range(5):
                await ask(host, "hello", f"agent:main:cli:dm:{n}")
            while len(host.directory.awake) > 3:  # they leave in their own time; `real` has a net
                await anyio.lowlevel.checkpoint()
            told = host.status()
            assert (told["machine"]["open_files"], told["machine"]["most_open_files"]) == (130, 4096)
            assert told["host"]["awake"] <= 3
            assert any("ulimit" in line for line in told["degraded"])

    real(main)


def test_a_library_never_raises_a_limit_and_a_command_does(monkeypatch: pytest.MonkeyPatch) -> None:
    now, asked = [(100, 500)], []
    monkeypatch.setattr(resource, "getrlimit", lambda _which: now[0])
    monkeypatch.setattr(resource, "setrlimit", lambda _which, pair: asked.append(pair))
    assert machine.raise_open_files() == 500
    assert asked == [(500, 500)]

    def refuse(_which: int, _pair: tuple[int, int]) -> None:
        raise ValueError("not allowed")

    monkeypatch.setattr(resource, "setrlimit", refuse)
    assert machine.raise_open_files() == 100


def test_an_odd_machine_is_told_and_lived_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "boot_id", lambda: "unknown")

    def none() -> str:
        raise FileNotFoundError("no usable temporary directory")

    monkeypatch.setattr(machine.tempfile, "gettempdir", none)
    found = machine.look(tmp_path, 1000)
    short = "\n".join(found.short(10))
    assert all(word in short for word in ("2000", "boot id", "temporary"))

    async def main() -> None:
        async with hosted(tmp_path, Play(), RealClock(start_ms=1000), tools=[tells("x")]) as host:
            assert (await ask(host, "hello")).text == "ok 1"
            assert any("2000" in line for line in host.status()["degraded"])

    real(main)

"""How a host ends: in order, within its deadline, and with nothing left behind, on both loops."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

from helpers_host import KEY, Fn, Gate, Play, ask, calls, hosted, real, said_by_users, session_path, virtual
from perdure.edges.models.reply import say
from perdure.errors import Closed
from perdure.host import Host
from perdure.kernel.clock import RealClock
from perdure.kernel.jobs import Job
from perdure.kernel.run import Backend
from perdure.kernel.virtual import VirtualClock

BOTH: tuple[Backend, ...] = ("asyncio", "trio")
OTHER = "agent:main:cli:dm:other"


def test_a_drain_takes_no_more_mail_lets_turns_end_and_awaits_what_settles(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        settled: list[str] = []

        async def deliveries(seconds: float) -> tuple[str, ...]:
            settled.append(f"{seconds:.0f}")
            await clock.sleep(3)
            return ()

        async with hosted(tmp_path, Play(say("whole", latency=20.0)), clock) as host:
            host.settlers = (*host.settlers, deliveries)
            sent = await host.send(KEY, "go")
            ends = host.kernel.start("drain", host.drain, 60.0)
            await clock.sleep(1)
            with pytest.raises(Closed):
                await host.send(OTHER, "too late")
            assert (await sent.reply(100)).text == "whole"
            await clock.sleep(30)
            assert not ends.current
            assert host.drained is not None
            assert host.drained.whole
            assert len(settled) == 1
        assert not session_path(tmp_path, OTHER).exists()

    virtual(main)


def test_what_the_deadline_cuts_off_is_named_and_goes_on_at_the_next_start(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        play = Play(say("never", latency=10_000.0), say("after the restart"))

        async def stuck(seconds: float) -> tuple[str, ...]:
            await clock.sleep(seconds)
            return ("a delivery",)

        async with hosted(tmp_path, play, clock) as host:
            host.settlers = (stuck,)
            await host.send(KEY, "go")
            await clock.sleep(1)
            began = clock.now()
            drained = await host.drain(20.0)
            assert clock.now() - began <= 30
            assert (drained.turns, drained.unsettled, drained.stuck) == ((KEY,), ("a delivery",), ())
            assert host.status()["trouble"]["host.cut_off"] == 1
        async with hosted(tmp_path, play, clock) as host:
            sent = await host.send(KEY, "and?")
            assert (await sent.reply(100)).stop == "stop"
        assert said_by_users(session_path(tmp_path)) == ["go", "and?"]

    virtual(main)


def test_a_settler_that_breaks_keeps_nothing_from_ending(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        async def broken(seconds: float) -> tuple[str, ...]:
            raise OSError("no network")

        async with hosted(tmp_path, Play(), clock) as host:
            host.settlers = (broken,)
            await ask(host, "hello")
            assert "no network" in (await host.drain(5.0)).unsettled[0]

    virtual(main)


@pytest.mark.parametrize("loop", BOTH)
def test_a_task_that_swallows_every_cancellation_holds_up_its_own_process_and_nobody_else(
    tmp_path: Path, loop: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Job.cancel, "__defaults__", (0.05,))
    monkeypatch.setattr("perdure.kernel.kernel.STOP", 0.2)
    monkeypatch.setattr("perdure.hosting.draining.LAST", 0.2)
    told: list[tuple[str, ...]] = []
    second: list[str] = []

    async def main() -> None:
        release, begun = anyio.Event(), anyio.Event()

        async def deaf(arguments: Mapping[str, Any], context: Any) -> str:
            begun.set()
            with anyio.CancelScope(shield=True):
                await release.wait()
            return "at last"

        host = hosted(tmp_path, Play(calls("deaf")), RealClock(), tools=(Fn("deaf", deaf),))

        def lost(jobs: tuple[str, ...]) -> None:
            told.append(jobs)
            again = Host(tmp_path / "state", model="scripted", clock=RealClock(), environ={})

            async def other() -> None:  # another host can have the folder while this one's exit waits
                async with again:
                    second.append("opened")
                release.set()

            group.start_soon(other)

        async with anyio.create_task_group() as group:
            host.on_lost = lost
            async with host:
                await host.send(KEY, "go")
                await begun.wait()
                await host.drain(0.1)

    real(main, loop, seconds=20)
    assert any("deaf" in name or KEY in name for name in told[0])
    assert second == ["opened"]
    assert threading.active_count() < 50


def test_a_gate_of_a_drained_host_is_no_reason_to_wait(tmp_path: Path) -> None:
    """Turns that wait for a model's place are stopped like others, and taken up later."""

    async def main(clock: VirtualClock) -> None:
        gate = Gate(clock)
        async with hosted(tmp_path, Play(gate), clock) as host:
            await host.send(KEY, "go")
            await gate.arrived()
            assert (await host.drain(1.0)).turns == (KEY,)
            assert host.services.gates.of("scripted").used == 0

    virtual(main)

"""Reported faults of schedulers, each as a running host that must not have it."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers_host import KEY, START, Play, ask, hosted, said_by_users, session_path
from perdure.kernel.run import Backend, run
from perdure.kernel.virtual import VirtualClock

HOUR = 3_600.0
FOUR = 4 * 3_600_000


class SetClock(VirtualClock):
    """A clock whose wall time somebody sets."""

    def __init__(self, start_ms: int = START) -> None:
        super().__init__(0, start_ms)
        self.steady = False

    def jump(self, hours: float) -> None:
        self.start_ms += int(hours * 3_600_000)


def ticks(folder: Path) -> int:
    return said_by_users(session_path(folder)).count("tick")


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_rt15_the_next_run_is_computed_from_now_never_from_the_last_one(
    tmp_path: Path, loop: Backend
) -> None:
    """Its events in order: a job every 4 h, +13 h, -1 h, a restart after the due time, a change of clocks."""
    clock = SetClock()

    async def main() -> None:
        async with hosted(tmp_path, Play(), clock) as host:
            made = await host.schedule(KEY, "tick", every="4h")
            assert made.next == START + FOUR

            clock.jump(13)
            await clock.sleep(120)
            assert ticks(tmp_path) == 1  # one catch-up, no burst
            (row,) = await host.schedules(KEY)
            assert row.next == START + 4 * FOUR  # ahead, on its own grid

            clock.jump(-1)
            await clock.sleep(3 * HOUR)
            assert ticks(tmp_path) == 1  # nothing twice
            await clock.sleep(1.1 * HOUR)
            assert ticks(tmp_path) == 2
            (row,) = await host.schedules(KEY)
            due = row.next

        async with hosted(tmp_path, Play(), clock) as host:  # before its time: what was written down holds
            assert [s.next for s in await host.schedules(KEY)] == [due]
        await clock.sleep(6 * HOUR)
        assert clock.wall_ms() > due
        async with hosted(tmp_path, Play(), clock) as host:
            await clock.sleep(120)
            assert ticks(tmp_path) == 3
            (row,) = await host.schedules(KEY)
            assert 0 < row.next - clock.wall_ms() <= FOUR

    run(lambda _kernel: main(), backend=loop, clock=clock)


def test_rt15_a_change_of_clocks_neither_skips_nor_doubles_a_daily_job(tmp_path: Path) -> None:
    clock = SetClock(1_774_699_200_000)  # 2026-03-28 12:00 UTC: clocks in Berlin go forward that night

    async def main() -> None:
        async with hosted(tmp_path, Play(), clock) as host:
            await host.schedule(KEY, "tick", cron="30 2 * * *", timezone="Europe/Berlin")
            for days in range(1, 5):
                await clock.sleep(24 * HOUR)
                assert ticks(tmp_path) == days
            assert (await ask(host, "and you?")).stop == "stop"

    run(lambda _kernel: main(), backend="asyncio", clock=clock)

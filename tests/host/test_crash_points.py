"""A host that dies, or whose disk refuses, at each call that changes the disk.

A sample by default; `PERDURE_CRASH_POINTS=all` takes every point (`make kill`).
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import get_args

import pytest

from helpers_crash import Client, Machine, Mode, Tale, What, check, left
from helpers_host import virtual
from perdure.edges import disk
from perdure.kernel.virtual import VirtualClock

ALL = os.environ.get("PERDURE_CRASH_POINTS") == "all"
PARTS = 20 if ALL else 1
each_part = pytest.mark.parametrize("part", range(PARTS))
MODES: tuple[Mode, ...] = get_args(Mode)


def played(folder: Path, mode: Mode, at: int | None, what: What, *, power_cut: bool = False) -> Machine:
    """The workload, cut off at a point; then the next life, and a look at what the files hold."""
    folder.mkdir(parents=True, exist_ok=True)
    machine, tale = Machine(folder / "state", at, what), Tale()

    async def main(clock: VirtualClock) -> None:
        client = Client(folder, clock, mode, machine, tale)
        with disk.faults(machine):
            await client.live(client.work)
        if power_cut:
            machine.platter.cut_power(random.Random(at))
        if machine.dead:
            machine.buried(clock.wall_ms())
        machine.dead = False
        await client.live(client.aftermath)

    virtual(main, "trio" if (at or 0) % 2 else "asyncio")
    check(folder, tale)
    assert not any(tale.unsure.values()), tale.unsure
    assert not left(folder)
    return machine


@pytest.fixture(scope="module")
def points(tmp_path_factory: pytest.TempPathFactory) -> dict[Mode, int]:
    """How many calls the undisturbed workload makes."""
    return {mode: played(tmp_path_factory.mktemp(mode), mode, None, "crash").count for mode in MODES}


def test_the_workload_changes_the_disk_often_enough(points: dict[Mode, int]) -> None:
    assert sum(points.values()) >= 500, points


def sample(count: int, part: int, most: int, seed: int) -> list[int]:
    """The part's share of all points, or so many of them."""
    every = range(1, count + 1)
    return list(every[part::PARTS]) if ALL else sorted(random.Random(seed).sample(every, most))


@each_part
@pytest.mark.parametrize("mode", MODES)
def test_a_crash_at_any_call_loses_doubles_and_reorders_nothing(
    mode: Mode, part: int, points: dict[Mode, int], tmp_path: Path
) -> None:
    for at in sample(points[mode], part, 7, 1):
        for what in ("crash", "torn") if ALL else (("crash", "torn")[at % 2],):
            played(tmp_path / f"{at}{what}", mode, at, what)  # type: ignore[arg-type]


@each_part
def test_a_power_cut_at_any_call_loses_doubles_and_reorders_nothing(
    part: int, points: dict[Mode, int], tmp_path: Path
) -> None:
    for at in sample(points["power"], part, 10, 2):
        played(tmp_path / str(at), "power", at, "torn", power_cut=True)


@each_part
@pytest.mark.parametrize("mode", MODES)
def test_a_disk_that_refuses_any_call_costs_a_typed_error_and_nothing_more(
    mode: Mode, part: int, points: dict[Mode, int], tmp_path: Path
) -> None:
    for at in sample(points[mode], part, 6, 3):
        for what in ("EIO", "ENOSPC") if ALL else (("EIO", "ENOSPC")[at % 2],):
            played(tmp_path / f"{at}{what}", mode, at, what)  # type: ignore[arg-type]

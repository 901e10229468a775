"""Random trees of subagents that fail, time out, overspend and wait, while parents compact and sleep and the
host is killed: each child has one result, no grant stays open, and the budgets of every node add up.

`PERDURE_TREES=full` grows one of five hundred nodes for each of several seeds (`make trees`).
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from helpers_host import virtual
from helpers_trees import World, check
from perdure.kernel.run import Backend

FULL = os.environ.get("PERDURE_TREES") == "full"
TREES: list[tuple[int, int, int, Backend]] = (
    [(seed, 500, 6, "trio" if seed % 2 else "asyncio") for seed in range(4)]
    if FULL
    else [(1, 40, 0, "trio"), (3, 60, 3, "asyncio")]
)


@pytest.mark.parametrize(("seed", "nodes", "kills", "loop"), TREES)
def test_every_child_of_a_tree_has_one_result_and_every_budget_adds_up(
    seed: int, nodes: int, kills: int, loop: Backend, tmp_path: Path
) -> None:
    world = World(tmp_path, seed, nodes, kills)
    virtual(world.run, loop, seed)
    ends = check(world)
    assert ends.total() > nodes // 3
    assert ends["completed"] > nodes // 10
    assert len(ends) >= 3, ends


def test_the_same_tree_ends_the_same_on_both_loops(tmp_path: Path) -> None:
    told = []
    for loop in ("asyncio", "trio"):
        folder = tmp_path / loop
        folder.mkdir()
        world = World(folder, 7, 16, 0)
        virtual(world.run, loop, 7)  # type: ignore[arg-type]
        told.append((check(world), len(world.play.of)))
    assert told[0] == told[1]

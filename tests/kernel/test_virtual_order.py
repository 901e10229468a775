"""The same program gives the same order on every loop and in every process, for each seed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from helpers_kernel import LOOPS
from helpers_kernel_program import digest


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_one_seed_gives_one_order_on_every_loop(seed: int) -> None:
    assert len({digest(loop, seed) for loop in LOOPS}) == 1


def test_seeds_explore_different_orders() -> None:
    assert len({digest("asyncio", seed) for seed in range(4)}) == 4


def test_two_processes_with_other_hash_seeds_agree() -> None:
    script = Path(__file__).parents[1] / "helpers_kernel_program.py"
    runs = [
        subprocess.run(
            [sys.executable, str(script), loop, "7"],
            env={**os.environ, "PYTHONHASHSEED": salt},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        for loop, salt in (("asyncio", "1"), ("trio", "2"))
    ]
    assert runs[0] == runs[1] == digest("uvloop", 7)

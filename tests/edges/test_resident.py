"""What the machine says of memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.edges.resident import memory_bytes, rss_bytes


@pytest.fixture
def told(tmp_path: Path) -> tuple[Path, Path]:
    limit, meminfo = tmp_path / "memory.max", tmp_path / "meminfo"
    meminfo.write_text("MemTotal:  9000 kB\nMemAvailable:    4000 kB\n")
    limit.write_text("max\n")
    return limit, meminfo


def test_a_process_knows_its_resident_memory() -> None:
    assert rss_bytes() > 1_000_000


def test_a_limit_of_the_cgroup_goes_before_what_the_machine_has(told: tuple[Path, Path]) -> None:
    limit, meminfo = told
    limit.write_text("2048000\n")
    assert memory_bytes((limit,), meminfo) == 2_048_000


@pytest.mark.parametrize("limit", ["max\n", "9223372036854771712\n", "", "nonsense"])
def test_no_limit_leaves_what_is_available_and_what_is_ours(told: tuple[Path, Path], limit: str) -> None:
    told[0].write_text(limit)
    assert memory_bytes((told[0],), told[1]) >= 4000 * 1024 + rss_bytes() // 2


def test_a_system_that_tells_nothing_says_so(tmp_path: Path) -> None:
    assert memory_bytes((tmp_path / "no",), tmp_path / "nothing") == 0
    (tmp_path / "odd").write_text("MemAvailable:\n")
    assert memory_bytes((), tmp_path / "odd") == 0

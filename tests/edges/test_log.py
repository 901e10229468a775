"""The log: stable lines, no secrets, bounded, and harmless when it can't write."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.edges.log import MAX_TEXT, RotatingFile, bound, memory_log, open_log, safe
from perdure.records import Usage

SECRET = "sk-ant-api03-abcdefghijklmnopqrstuvwxyz"


def entries(lines: list[bytes]) -> list[dict[str, Any]]:
    return [msgspec.json.decode(line) for line in lines]


def test_an_event_is_one_json_line_with_time_level_name_and_fields(tmp_path: Path) -> None:
    log = open_log(tmp_path / "runtime.log", wall_ms=lambda: 1_700_000_000_000).bind(
        session="agent:main:main"
    )
    log.info("turn.ended", steps=3, text="two\nlines")
    log.debug("not.shown")
    log.close()
    line = (tmp_path / "runtime.log").read_bytes()
    assert line.startswith(b'{"ts":1700000000000,"level":"info","event":"turn.ended",')
    assert line.count(b"\n") == 1
    assert msgspec.json.decode(line)["text"] == "two\nlines"
    assert (tmp_path / "runtime.log").stat().st_mode & 0o077 == 0


def test_bound_fields_reach_every_event_inside() -> None:
    lines: list[bytes] = []
    log = memory_log(lines)
    with bound(session="s", turn=4):
        log.info("a.b")
    log.info("c.d")
    assert entries(lines) == [
        {"level": "info", "event": "a.b", "session": "s", "turn": 4},
        {"level": "info", "event": "c.d"},
    ]


@pytest.mark.parametrize(
    "fields",
    [
        {"text": f"see {SECRET}!"}, {"api_key": "plain"}, {"deep": {"a": [{"authToken": "plain"}]}},
        {"error": ValueError(f"bad {SECRET}")}, {"raw": SECRET.encode()}, {SECRET: 1},
        {"headers": {"Authorization": "plain"}}, {"url": "https://u:plain@host/"},
    ],
)  # fmt: skip
def test_no_secret_reaches_a_line_by_name_or_by_shape(fields: dict[str, Any]) -> None:
    lines: list[bytes] = []
    memory_log(lines).info("x.y", **fields)
    assert b"plain" not in lines[0]
    assert b"sk-ant" not in lines[0]
    assert b"[redacted]" in lines[0]


def test_counts_are_not_secrets() -> None:
    lines: list[bytes] = []
    memory_log(lines).info("x.y", token=3, usage=Usage(1, 2))
    assert entries(lines)[0]["token"] == 3
    assert entries(lines)[0]["usage"]["input"] == 1


LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.just(object())
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=10
)


@settings(max_examples=50)
@given(VALUES)
def test_any_value_can_be_logged(value: Any) -> None:
    lines: list[bytes] = []
    memory_log(lines).info("x.y", value=value)
    assert len(lines) == 1
    msgspec.json.decode(lines[0])


def test_values_that_resist_are_logged_as_their_kind() -> None:
    class Hostile:
        def __repr__(self) -> str:
            raise RuntimeError("no")

    loop: list[Any] = []
    loop.append(loop)
    lines: list[bytes] = []
    memory_log(lines).info("x.y", hostile=Hostile(), loop=loop, half="\ud800", big=10**40, text="x" * 100_000)
    entry = entries(lines)[0]
    assert entry["hostile"] == "<Hostile>"
    assert len(entry["text"]) == MAX_TEXT + 1


def test_a_cut_never_leaves_half_a_secret() -> None:
    for shift in range(len(SECRET)):
        assert "sk-ant" not in safe("y" * (MAX_TEXT - shift) + SECRET)


def test_the_file_rotates_and_only_the_newest_are_kept(tmp_path: Path) -> None:
    file = RotatingFile(tmp_path / "log", 100, keep=2)
    for n in range(50):
        file.write(f"{n:039}\n".encode())
    file.close()
    assert sorted(os.listdir(tmp_path)) == ["log", "log.1", "log.2"]
    assert (tmp_path / "log").read_text().split()[-1] == f"{49:039}"
    assert all((tmp_path / name).stat().st_size <= 100 for name in os.listdir(tmp_path))


def test_a_log_that_can_t_be_written_drops_lines_and_counts_them(tmp_path: Path) -> None:
    log = open_log(tmp_path / "no" / "such" / "folder.log")
    log.error("x.y")
    log.error("x.y")
    assert log.dropped == 2


def test_level_off_writes_nothing() -> None:
    lines: list[bytes] = []
    memory_log(lines, level="off").error("x.y")
    assert lines == []

"""Files of any size cost one line or a report, and no more memory than their longest record."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers_cli import python
from helpers_sessions import assistant, user, write

HUGE = 400 << 20  # bytes, all of them holes: no disk is filled
ENOUGH = 200  # MB: the program itself takes about 40
# Linux hands `ru_maxrss` on from who forked, which here is the whole suite; VmHWM begins with the program.
MEASURED = """
import re, sys
from perdure.cli.entry import invoke
code = invoke(sys.argv[1:])
peak = int(re.search(r"VmHWM:\\s*(\\d+)", open("/proc/self/status").read())[1]) // 1024
sys.stderr.write(f"\\n{code} {peak}")
"""

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")


def measured(*words: str | os.PathLike[str]) -> tuple[int, int, str, str]:
    """Exit code, peak of memory in MB, stdout and stderr of a command in a process of its own."""
    done = python(MEASURED, *words)
    told, _, last = done.stderr.decode().rpartition("\n")
    code, peak = last.split()
    return int(code), int(peak), done.stdout.decode(), told


def blank(path: Path) -> None:
    path.touch()
    os.truncate(path, HUGE)


def text(path: Path) -> None:
    path.write_bytes(b"dear diary\n" * 2_000_000)


def noise(path: Path) -> None:
    path.write_bytes(os.urandom(1 << 20) * 30)


def one_line(path: Path) -> None:
    path.write_bytes(b"x" * (100 << 20))


@pytest.mark.parametrize("make", [text, noise, one_line], ids=lambda make: make.__name__)
@pytest.mark.parametrize("words", ["doctor", "context", "sessions show"])
def test_a_large_file_of_something_else_is_refused_in_little_memory(
    tmp_path: Path, make: Callable[[Path], None], words: str
) -> None:
    make(tmp_path / "s.jsonl")
    code, peak, _, told = measured(*words.split(), tmp_path / "s.jsonl")
    assert (code, told.count("\n")) == (2, 1), told
    assert told.startswith(f"perdure: {tmp_path / 's.jsonl'}: ")
    assert peak < ENOUGH


def test_a_disk_image_of_nothing_is_refused_in_little_memory(tmp_path: Path) -> None:
    blank(tmp_path / "s.jsonl")
    code, peak, _, told = measured("doctor", tmp_path / "s.jsonl")
    assert (code, told.count("\n")) == (2, 1), told
    assert "blanks" in told
    assert peak < ENOUGH


@pytest.mark.parametrize("words", ["doctor --json", "sessions show --json"])
def test_a_session_with_endless_padding_is_read_in_little_memory(tmp_path: Path, words: str) -> None:
    file = write(tmp_path / "s.jsonl", [user("e0", None), assistant("e1", "e0")])
    size = file.stat().st_size
    os.truncate(file, HUGE)
    code, peak, out, told = measured(*words.split(), file)
    assert told == ""
    assert peak < ENOUGH
    if words.startswith("doctor"):
        found = [(each["kind"], each["byte"]) for each in json.loads(out)["problems"]]
        assert (code, found) == (1, [("nul", size)])
    else:
        assert code == 0
        assert len(json.loads(out)["messages"]) == 2

"""What every command line has: help, a version, one line for a mistake, and its own code for a bug."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import perdure.cli.sessions
from helpers_cli import failed, process, run
from helpers_sessions import assistant, user, write
from perdure.errors import Locked

COMMANDS = ("demo", "chat", "replay", "context", "doctor", "sessions", "import", "status", "config")
LEAVES = (
    *(("demo",), ("chat",), ("replay",), ("context",), ("doctor",), ("import",), ("status",)),
    *(("sessions", "list"), ("sessions", "show"), ("config", "check")),
)


def big(tmp_path: Path) -> Path:
    entries = [user("e0", None, "x" * 2_000_000), assistant("e1", "e0", "y" * 2_000_000)]
    return write(tmp_path / "big.jsonl", entries)


def test_help_lists_all_commands() -> None:
    ran = run("--help")
    assert ran.code == 0
    for name in COMMANDS:
        assert re.search(rf"\b{name}\b", ran.out), name


@pytest.mark.parametrize("words", [(), ("sessions",), ("config",)])
def test_a_group_alone_prints_its_help(words: tuple[str, ...]) -> None:
    ran = run(*words)
    assert ran.code == 0
    assert ran.out.startswith("Usage: perdure")


@pytest.mark.parametrize("words", LEAVES)
def test_every_command_has_help_and_json(words: tuple[str, ...]) -> None:
    ran = run(*words, "--help")
    assert ran.code == 0
    assert "--json" in ran.out
    assert f"Usage: perdure {' '.join(words)}" in ran.out


def test_the_version_is_told() -> None:
    assert re.fullmatch(r"perdure \d+\.\d+\.\d+\S*\n", run("--version").out)


@pytest.mark.parametrize(
    ("words", "about"),
    [
        (("bogus",), "bogus"),
        (("doctr", "x"), "doctor"),
        (("sessions", "bogus"), "bogus"),
        (("doctor",), "TARGET"),
        (("doctor", "--bogus", "x"), "--bogus"),
        (("doctor", "a", "b"), "'b'"),
        (("context", "x", "--window", "k"), "--window"),
        (("context", "x", "--window"), "--window"),
        (("demo", "--sessions", "x"), "--sessions"),
        (("chat", "--loop", "curio"), "curio"),
        (("replay",), "PATHS"),
        (("context", ""), "key"),
        (("context", "a\0b"), "key"),
        (("sessions", "show", "x" * 5000), "too long"),
        (("sessions", "show", "no such"), "no such session"),
        (("sessions", "show", "no/such"), "no such file"),
        (("status", "--state", "/nowhere/at/all"), "no such state folder"),
    ],
)
def test_a_mistake_in_the_call_is_one_line_and_exit_2(words: tuple[str, ...], about: str) -> None:
    assert about in failed(run(*words))


def test_a_bug_is_one_line_with_the_place_of_its_trace_and_exit_70(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(**_: object) -> int:
        raise KeyError("sk-ant-REDACTED\n\x1b[31m")

    monkeypatch.setattr(perdure.cli.sessions, "run_list", broken)
    line = failed(run("sessions", "list"), 70)
    assert "KeyError" in line
    assert "sk-ant" not in line
    trace = re.search(r"the trace is in (\S+),", line)
    assert trace is not None
    kept = Path(trace[1])
    assert "Traceback" in kept.read_text()
    assert "sk-ant" not in kept.read_text()
    assert kept.stat().st_mode & 0o077 == 0


def test_a_bug_shows_its_traceback_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(**_: object) -> int:
        raise ZeroDivisionError

    monkeypatch.setattr(perdure.cli.sessions, "run_list", broken)
    monkeypatch.setenv("PERDURE_DEBUG", "1")
    ran = run("sessions", "list")
    assert ran.code == 70
    assert ran.err.startswith("Traceback")


def test_mistakes_that_come_in_a_group_are_told_as_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(**_: object) -> int:
        raise ExceptionGroup("tasks", [ExceptionGroup("more", [Locked("the folder is\nheld by pid 7")])])

    monkeypatch.setattr(perdure.cli.sessions, "run_list", refused)
    assert failed(run("sessions", "list")) == "the folder is held by pid 7"


def test_an_interrupt_has_the_code_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(**_: object) -> int:
        raise BaseExceptionGroup("tasks", [KeyboardInterrupt()])

    monkeypatch.setattr(perdure.cli.sessions, "run_list", stopped)
    ran = run("sessions", "list")
    assert (ran.code, ran.err) == (130, "")


def test_a_reader_that_leaves_ends_a_command_quietly(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        ran = process("sessions", "show", big(tmp_path), stdout=writing)
    finally:
        os.close(writing)
    assert (ran.returncode, ran.stderr) == (141, b"")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no such device here")
@pytest.mark.parametrize("words", ["sessions show", "doctor", "doctor --json", "context --json"])
def test_output_that_cannot_be_written_is_told(tmp_path: Path, words: str) -> None:
    with open("/dev/full", "wb") as full:
        ran = process(*words.split(), big(tmp_path), stdout=full)
    assert ran.returncode == 74
    assert ran.stderr.decode().count("\n") == 1
    assert b"No space left" in ran.stderr


def test_closed_streams_do_not_matter(tmp_path: Path) -> None:
    file = write(tmp_path / "s.jsonl", [user("a", None), assistant("b", "a")])
    script = f'exec "{sys.executable}" -c "from perdure.cli import main; main()" doctor "{file}" >&- 2>&-'
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(["sh", "-c", script], env=environ, timeout=60)
    assert done.returncode == 0


def test_a_terminal_without_utf8_gets_what_it_can_show(tmp_path: Path) -> None:
    file = write(tmp_path / "s.jsonl", [user("a", None, "你好 – naïve 🙂"), assistant("b", "a")])
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": ""}
    for words in (("sessions", "show", file), ("doctor", file), ("context", file), ("--help",)):
        ran = process(*words, env=plain)
        assert (ran.returncode, ran.stderr) == (0, b""), words
        assert ran.stdout.isascii()


def test_json_is_utf8_whatever_the_terminal_is(tmp_path: Path) -> None:
    file = write(tmp_path / "s.jsonl", [user("a", None, "你好"), assistant("b", "a")])
    ran = process("sessions", "show", file, "--json", env={"LC_ALL": "C", "PYTHONUTF8": "0"})
    assert "你好" in ran.stdout.decode("utf-8")

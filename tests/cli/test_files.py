"""Whatever file a looking command is given: one line or a report, no traceback, and no byte changed."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from helpers_cli import failed, fingerprint, python, run
from helpers_sessions import HEADER, Scribe, assistant, calls, line, result, user, write

LOOKING = (
    *(("doctor",), ("doctor", "--json"), ("context",), ("context", "--json"), ("context", "--why", "e0")),
    *(("sessions", "show"), ("sessions", "show", "--json")),
)


def missing(path: Path) -> None:
    pass


def empty(path: Path) -> None:
    path.write_bytes(b"")


def blank(path: Path) -> None:
    path.write_bytes(b"\n \n\0\0\n")


def binary(path: Path) -> None:
    path.write_bytes(bytes(range(256)) * 300)


def folder(path: Path) -> None:
    path.mkdir()


def pipe(path: Path) -> None:
    os.mkfifo(path)


def loop(path: Path) -> None:
    path.symlink_to(path.name)


def nowhere(path: Path) -> None:
    path.symlink_to("nothing-there")


def text(path: Path) -> None:
    path.write_text("dear diary\n" * 50)


def no_session(path: Path) -> None:
    path.write_bytes(b'{"some":"json"}\n[1,2]\nnull\n')


def another_program(path: Path) -> None:
    row = {"type": "user", "sessionId": "s", "uuid": "u", "parentUuid": None, "message": {"role": "user"}}
    path.write_text(json.dumps(row) + "\n")


def torn_header(path: Path) -> None:
    path.write_bytes(line(HEADER)[:20])


def newer_facts(path: Path) -> None:
    write(path, [user("e0", None, perdure={"v": 99, "e": 1}), assistant("e1", "e0")])


NO_SESSIONS = (missing, empty, blank, binary, folder, pipe, loop, nowhere, text, no_session, another_program)


def header_only(path: Path) -> None:
    write(path, [])


def truncated(path: Path) -> None:
    write(path, [user("e0", None), line(assistant("e1", "e0"))[:40]])


def no_header(path: Path) -> None:
    write(path, [user("e0", None), assistant("e1", "e0")], header=None)


def only_images(path: Path) -> None:
    image = {"type": "image", "mimeType": "image/png", "data": "QUJD"}
    write(
        path, [user("e0", None) | {"message": {"role": "user", "content": [image]}}, calls("e1", "e0", "c")]
    )


def odd_shapes(path: Path) -> None:
    odd: list[dict[str, Any]] = [
        {"type": "message", "id": "e0", "parentId": None, "message": {"role": "user", "content": None}},
        {"type": "message", "id": "e1", "parentId": "e0", "message": "not an object"},
        {"type": "message", "id": "e2", "parentId": "e1", "message": {"role": "wizard", "content": []}},
        {
            "type": "message",
            "id": "e3",
            "parentId": "e2",
            "message": {"role": "assistant", "usage": 1e300},
        },
        {"type": "compaction", "id": "e4", "parentId": "e3", "summary": None, "tokensBefore": -1e308},
        {"type": "unknown_kind", "id": "e5", "parentId": "e4", "data": [[[]]]},
        user("e6", "e5", "\ud800 half a pair"),
    ]
    path.write_bytes(b"\n".join([line(HEADER), *(json.dumps(entry).encode() for entry in odd)]) + b"\n")


SESSIONS = (header_only, truncated, no_header, only_images, odd_shapes)


@pytest.mark.parametrize("make", [*NO_SESSIONS, torn_header, newer_facts], ids=lambda make: make.__name__)
@pytest.mark.parametrize("words", LOOKING, ids=" ".join)
def test_what_is_no_session_is_refused_in_one_line(
    tmp_path: Path, make: Callable[[Path], None], words: tuple[str, ...]
) -> None:
    if make is newer_facts and "doctor" in words:
        pytest.skip("the doctor reads what is common to all versions")
    make(tmp_path / "s.jsonl")
    before = sorted(tmp_path.iterdir())
    failed(run(*words, tmp_path / "s.jsonl"))
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("make", [*NO_SESSIONS, torn_header], ids=lambda make: make.__name__)
def test_what_is_no_recording_is_not_imported(
    tmp_path: Path, make: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make(tmp_path / "s.jsonl")
    ran = run("import", tmp_path / "s.jsonl")
    if make is not another_program:  # that one is a recording, of one message
        failed(ran)
        assert not (tmp_path / "s.scenario.jsonl").exists()


@pytest.mark.parametrize("make", SESSIONS, ids=lambda make: make.__name__)
@pytest.mark.parametrize("words", LOOKING, ids=" ".join)
def test_a_poor_session_is_shown_as_far_as_it_goes(
    tmp_path: Path, make: Callable[[Path], None], words: tuple[str, ...]
) -> None:
    make(tmp_path / "s.jsonl")
    before = fingerprint(tmp_path)
    ran = run(*words, tmp_path / "s.jsonl")
    assert ran.code in ((0, 1) if "--why" not in words else (0, 2)), ran
    assert fingerprint(tmp_path) == before
    if "--json" in words:
        json.loads(ran.out)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 50), st.integers(0, 12)), max_size=30))
def test_no_history_whatever_makes_a_command_fail(tmp_path: Path, steps: list[tuple[int, int, int]]) -> None:
    path = Scribe(tmp_path / "s.jsonl").play(steps)
    for words in (("doctor", "--json"), ("context", "--json"), ("sessions", "show"), ("context",)):
        ran = run(*words, path)
        assert ran.code in (0, 1), ran


def test_a_file_that_may_not_be_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(tmp_path / "s.jsonl", [user("e0", None)])
    opening = os.open

    def refused(path: Any, *more: Any, **named: Any) -> int:
        if os.fspath(path) == os.fspath(file):
            raise PermissionError(errno.EACCES, "Permission denied", os.fspath(path))
        return opening(path, *more, **named)

    monkeypatch.setattr(os, "open", refused)
    for words in LOOKING:
        assert "permission" in failed(run(*words, file))


def test_a_locked_file_is_read_and_the_lock_noted(tmp_path: Path) -> None:
    file = write(tmp_path / "s.jsonl", [user("e0", None), assistant("e1", "e0")])
    stamp = "2999-01-01T00:00:00.000Z"
    (tmp_path / "s.jsonl.lock").write_text(json.dumps({"pid": os.getpid(), "createdAt": stamp}))
    ran = run("doctor", file, "--json")
    assert ran.code == 0
    assert [found["kind"] for found in ran.json["problems"]] == ["locked"]
    assert run("context", file).code == 0


def test_a_name_that_is_not_utf8_is_shown_and_encoded(tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9.jsonl")
    file = write(tmp_path / name, [user("e0", None), assistant("e1", "e0")])
    assert run("doctor", file).code == 0
    assert run("doctor", file, "--json").json["healthy"] is True
    assert run("context", file, "--json").code == 0
    failed(run("doctor", tmp_path / os.fsdecode(b"\xff.jsonl")))


def test_nothing_in_a_session_moves_the_cursor(tmp_path: Path) -> None:
    evil = "\x1b[2J\x1b]0;title\x07\x9b31m\r\x08\u202edne\u200f\x00"
    said = assistant("e1", "e0", evil, model=evil, errorMessage=evil, stopReason="error")
    file = write(tmp_path / "s.jsonl", [user("e0", None, evil), said, calls("e2" + evil, "e1", evil)])
    for words in (("sessions", "show"), ("context",), ("doctor",)):
        ran = run(*words, file)
        assert not set(ran.out + ran.err) & set("\x1b\x9b\x07\x08\r\x00\u202e\u200f"), words
    told = run("sessions", "show", file, "--json")
    assert not set(told.out) & set("\x1b\x9b\x07\x08\r\x00\u202e\u200f")
    assert told.json["messages"][0]["message"]["content"][0]["text"] == evil


def test_doctor_is_asked_for_damage_and_answers_with_its_code(tmp_path: Path) -> None:
    file = write(tmp_path / "s.jsonl", [user("e0", None), b'{"torn', assistant("e1", "e0")])
    ran = run("doctor", file)
    assert ran.code == 1
    assert "line 3" in ran.out
    told = run("doctor", file, "--json").json
    assert set(told) >= {"file", "format", "entries", "healthy", "problems", "fixed"}
    assert (told["healthy"], told["entries"], told["fixed"]) == (False, 2, [])
    assert set(told["problems"][0]) >= {"kind", "severity", "line", "byte", "detail", "fix"}


def test_doctor_misses_evidence_that_a_state_folder_should_have(tmp_path: Path) -> None:
    folder = tmp_path / "sessions" / "main"
    folder.mkdir(parents=True)
    digest = "ab" * 32
    said = result("e2", "e1", "c") | {"perdure": {"v": 1, "e": 1}}
    said["message"]["content"][0]["text"] = f"head … [evidence sha256:{digest}] … tail"
    file = write(folder / "s.jsonl", [user("e0", None), calls("e1", "e0", "c"), said])
    assert run("doctor", file).code == 0
    (tmp_path / "shard.lock").write_text("{}")
    ran = run("doctor", file, "--json")
    assert [(found["kind"], found["severity"]) for found in ran.json["problems"]] == [
        ("missing_evidence", "damage")
    ]
    kept = tmp_path / "evidence" / "ab" / "ab" / digest[4:]
    kept.parent.mkdir(parents=True)
    kept.write_bytes(b"x")
    assert run("doctor", file).code == 0


def test_doctor_gives_one_shape_for_what_is_unreadable_too(tmp_path: Path) -> None:
    ran = run("doctor", "--json", tmp_path / "none.jsonl")
    assert ran.code == 2
    assert ran.json["healthy"] is False
    assert ran.json["problems"][0]["severity"] == "damage"


def test_doctor_loads_no_vendor_no_tool_and_no_loop(tmp_path: Path) -> None:
    file = write(tmp_path / "s.jsonl", [user("e0", None), assistant("e1", "e0")])
    code = (
        "import sys; from perdure.cli.entry import invoke; assert invoke(['doctor', sys.argv[1]]) == 0\n"
        "heavy = 'anthropic openai mcp anyio asyncio trio structlog bpe_openai rich cyclopts'.split()\n"
        "print([m for m in sys.modules if m.split('.')[0] in heavy or m.startswith('perdure.edges.tools')])"
    )
    done = python(code, file)
    assert done.stdout.decode().splitlines()[-1] == "[]", done.stderr


def test_a_file_of_a_newer_program_is_shown_with_a_warning_and_not_judged(tmp_path: Path) -> None:
    file = write(tmp_path / "s.jsonl", [user("e0", None, "hello")], header=HEADER | {"version": 99})
    told = failed(run("doctor", file))
    assert "version 99" in told
    assert "a newer program wrote it" in told
    assert run("doctor", file, "--json").json["healthy"] is False
    assert [p["kind"] for p in run("context", file, "--json").json["problems"]] == ["newer_version"]
    shown = run("sessions", "show", file).out
    assert "version 99" in shown
    assert "hello" in shown


@pytest.mark.parametrize("version", ["1e400", '"99"', "NaN", "3.5", "-1", "true"])
def test_no_version_whatever_makes_the_doctor_fail(tmp_path: Path, version: str) -> None:
    header = b'{"type":"session","id":"s1","version":%s}' % version.encode()
    (tmp_path / "s.jsonl").write_bytes(header + b"\n" + line(user("e0", None)) + b"\n")
    assert run("doctor", tmp_path / "s.jsonl").code in (0, 1, 2)


def test_doctor_takes_a_key_too(tmp_path: Path) -> None:
    folder = tmp_path / "sessions" / "main"
    folder.mkdir(parents=True)
    file = write(folder / "agent+main+cli+dm+local.jsonl", [user("e0", None), assistant("e1", "e0")])
    ran = run("doctor", "agent:main:cli:dm:local", "--state", tmp_path)
    assert (ran.code, ran.out.startswith(str(file))) == (0, True)
    assert "no such session" in failed(run("doctor", "agent:main:cli:dm:you", "--state", tmp_path))
    file.write_bytes(b"")
    assert "a message to it begins it" in failed(
        run("doctor", "agent:main:cli:dm:local", "--state", tmp_path)
    )
    assert "delete it" in failed(run("doctor", file))


def test_doctor_offers_to_mend_what_it_can_and_nothing_else(tmp_path: Path) -> None:
    torn = write(tmp_path / "torn.jsonl", [user("e0", None), b'{"torn', assistant("e1", "e0")])
    hole = write(tmp_path / "hole.jsonl", [user("e0", None), assistant("e1", "lost")])
    assert "--fix" in run("doctor", torn).out
    assert "--fix" not in run("doctor", hole).out

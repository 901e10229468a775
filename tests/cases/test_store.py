"""Reported faults of session files, each with the right outcome."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from helpers_cases import case
from helpers_cli import fingerprint, python, run
from helpers_files import FakeGrant
from helpers_host import (
    KEY,
    Gate,
    Play,
    ask,
    calls,
    entries,
    hosted,
    said_by_users,
    session_path,
    tells,
    virtual,
)
from helpers_sessions import HEADER, assistant, compaction, line, user, write
from perdure.contracts import Letter
from perdure.edges.models.reply import say
from perdure.edges.session import lines, scan, writer
from perdure.edges.session.doctor import Report, examine
from perdure.edges.session.files import Listed, SessionFiles
from perdure.edges.session.load import load
from perdure.edges.session.lock import SessionLock
from perdure.edges.session.survey import survey
from perdure.edges.session.tail import open_session
from perdure.edges.session.writer import LocalSessionFile
from perdure.errors import StorageFailed
from perdure.kernel.virtual import VirtualClock
from perdure.records import Text, User

NOW = 1_790_000_000_000


def raw(tmp_path: Path, name: str) -> Path:
    """The case's file, byte for byte."""
    path = tmp_path / "s.jsonl"
    path.write_bytes(case(name)["input"]["raw_file"].encode())
    return path


def shown(path: Path) -> list[str]:
    """What a model sees, both ways of reading; a gap is `gap`."""
    whole, tail = load(path).opened().items, open_session(path).items
    assert whole == tail
    return [item.entry or "gap" for item in tail]


def found(report: Report) -> dict[str, tuple[int, int]]:
    return {problem.kind: (problem.line, problem.byte) for problem in report.problems}


def writing(path: Path) -> LocalSessionFile:
    status = path.stat()
    return LocalSessionFile(path, FakeGrant(), size=status.st_size, inode=status.st_ino, sync=False)


def said(id: str, parent: str | None, text: str) -> bytes:
    return lines.message_line(id, parent, NOW, User((Text(text),), NOW))


def test_st01_a_half_record_costs_itself_and_the_whole_one_behind_it_is_read(tmp_path: Path) -> None:
    path = raw(tmp_path, "ST01")
    before = fingerprint(tmp_path)
    assert shown(path) == ["e1", "gap", "e3", "e4"]
    problems = {p.kind: p for p in examine(path).problems if p.severity == "damage"}
    assert (problems["torn"].line, problems["torn"].byte) == (3, 211)
    assert "byte 251" in problems["torn"].detail
    assert "e2" in problems["missing_parent"].detail
    assert "e1" in problems["missing_parent"].detail
    assert fingerprint(tmp_path) == before


def test_st02_two_records_on_one_line_are_both_read_and_counted_alike_everywhere(tmp_path: Path) -> None:
    path = raw(tmp_path, "ST02")
    before = fingerprint(tmp_path)
    assert shown(path) == ["e1", "e2", "e3"]
    status = path.stat()
    row = survey(Listed(KEY, str(path), status.st_size, status.st_mtime_ns))
    assert (load(path).count, examine(path).entries, row.entries) == (3, 3, 3)
    assert len(run("sessions", "show", path, "--json").json["messages"]) == 3
    assert fingerprint(tmp_path) == before


def test_st02_brackets_inside_a_text_split_nothing(tmp_path: Path) -> None:
    path = write(
        tmp_path / "s.jsonl", [line(user("a", None, 'x}{"type":"message"}{"y')) + line(user("b", "a"))]
    )
    assert shown(path) == ["a", "b"]


def test_st03_a_run_of_nul_bytes_is_damage_and_what_follows_is_read(tmp_path: Path) -> None:
    path = raw(tmp_path, "ST03")
    assert shown(path) == ["e1", "e2", "e3", "e4"]
    assert "nul" in found(examine(path))
    data = path.read_bytes()
    path.write_bytes(
        data.replace(
            b'\n{"type":"message","message":{"role":"user","content":[{"type":"text","text":"and',
            b'\n\0\0{"type":"message","message":{"role":"user","content":[{"type":"text","text":"and',
        )
    )
    assert shown(path) == ["e1", "e2", "e3", "e4"]


def test_st04_only_newlines_end_a_line_for_every_reader(tmp_path: Path) -> None:
    path = raw(tmp_path, "ST04")
    file = writing(path)
    file.append([said("e2", "e1", "next")])
    assert shown(path) == ["e1", "e2"]
    (first, _) = open_session(path).items
    assert first.message.content[0].text == "first\u2028second\u0085third\u2029fourth"  # type: ignore[union-attr]
    assert (load(path).count, examine(path).entries) == (2, 2)
    assert len(run("sessions", "tree", path, "--json").json["entries"]) == 2
    with path.open("rb") as opened:
        size = path.stat().st_size
        assert len(list(scan.forward(opened.fileno(), 0, size))) == 3
        assert len(list(scan.backward(opened.fileno(), size))) == 3


_TAIL = bytes.fromhex(case("ST06")["input"]["raw_bytes_hex_tail"])


@pytest.mark.parametrize(
    ("tail", "kept"),
    [
        (_TAIL, False),
        (line(assistant("e2", "e1")), True),
        (line(assistant("e2", "e1"))[:40], False),
    ],
    ids=case("ST06")["input"]["variants"],
)
def test_st06_nothing_is_glued_to_an_unfinished_line(tmp_path: Path, tail: bytes, kept: bool) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(case("ST06")["input"]["prefix"].encode() + tail)
    leaf = open_session(path).leaf
    writing(path).append([said("new", leaf, "next")])
    assert path.read_bytes().count(b"\n" + said("new", leaf, "next")) == 1
    assert shown(path) == (["e1", "e2", "new"] if kept else ["e1", "new"])
    assert load(path).count == (3 if kept else 2)


def test_st08_the_lock_of_a_dead_process_is_taken_over_at_once(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    files = SessionFiles(tmp_path, FakeGrant(), sync=False)
    path = files.path(KEY)
    path.parent.mkdir(parents=True)
    write(path, [user("a", None)])
    stamp = lines.iso(time.time_ns() // 1_000_000 - 1_000)
    Path(f"{path}.lock").write_text(json.dumps({"pid": ended.pid, "createdAt": stamp}))
    held = files.open(KEY, time.time_ns() // 1_000_000)
    assert held.file.append([said("b", "a", "hi")]).size == path.stat().st_size
    held.close(handover=True)
    SessionLock(path).acquire(NOW)


def test_st10_a_reply_made_meanwhile_stands_beside_what_another_program_wrote(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        gate = Gate(clock, say("the reply"))
        async with hosted(tmp_path, Play(say("first"), gate), clock) as host:
            await ask(host, "one")
            sent = await host.send(KEY, "two")
            await gate.arrived()
            leaf = entries(session_path(tmp_path))[-1]["id"]
            with session_path(tmp_path).open("ab") as other:
                other.write(line(user("e5", leaf, "from elsewhere")) + b"\n")
            gate.open()
            assert (await sent.reply(100)).text == "the reply"

    virtual(main)
    path = session_path(tmp_path)
    assert load(path).problems == []
    rows = {row["id"]: row for row in entries(path) if row["type"] == "message"}
    (reply,) = [row for row in rows.values() if "the reply" in json.dumps(row)]
    assert reply["parentId"] in ("e5", rows["e5"]["parentId"])
    assert "e5" in rows


def grown(path: Path, count: int) -> Path:
    """`count` lines of about 1,000 bytes, a compaction now and then, the same kept tail at the end."""
    every = count // 12
    with path.open("wb") as out:
        out.write(line(HEADER) + b"\n")
        for n in range(count):
            above = f"e{n - 1}" if n else None
            compacts = n and n % every == 0 and n < count - 50
            row = compaction(f"e{n}", above, f"e{n - 2}") if compacts else user(f"e{n}", above, "x" * 850)
            if n == count - 50:
                row = compaction(f"e{n}", above, f"e{n - 10}")
            out.write(line(row) + b"\n")
    return path


def test_st11_a_long_file_is_opened_from_its_tail_like_a_short_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bytes_read = [0]
    pread = os.pread

    def counted(fd: int, size: int, at: int) -> bytes:
        data = pread(fd, size, at)
        bytes_read[0] += len(data)
        return data

    monkeypatch.setattr(os, "pread", counted)
    seen: list[tuple[int, int, int]] = []
    for count in (2_000, case("ST11")["input"]["generate"]["lines"] // 3):
        path = grown(tmp_path / f"{count}.jsonl", count)
        bytes_read[0] = 0
        tracemalloc.start()
        opened = open_session(path, search=False)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        seen.append((bytes_read[0], peak, len(opened.items)))
    (few, small, shorter), (many, large, longer) = seen
    assert shorter == longer == 60
    assert many <= 1.5 * few
    assert large <= 1.5 * small


class Disk:
    """Takes nothing while it is full."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full, write = False, os.write

        def call(fd: int, data: bytes) -> int:
            if self.full and b'"type"' in bytes(data):
                raise OSError(28, "No space left on device")
            return write(fd, data)

        monkeypatch.setattr(writer.os, "write", call)


def test_st13_on_a_full_disk_nothing_is_acknowledged_and_no_model_runs_until_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    assert case("ST13")["input"]["events"][1] == "user sends 3 more messages"

    async def main(clock: VirtualClock) -> None:
        play = Play()
        async with hosted(tmp_path, play, clock) as host:
            await ask(host, "kept", mid="m0")
            disk.full = True
            for n in range(3):
                with pytest.raises(StorageFailed, match="make room"):
                    await host.send(KEY, f"lost {n}", mid=f"m{n + 1}")
            assert len(play.bodies[KEY]) == 1
            disk.full = False
            await ask(host, "there is room", mid="m9")
        async with hosted(tmp_path, play, clock) as host:
            again = await host.send(KEY, "kept", mid="m0")
            assert again.receipt.repeated

    virtual(main)
    assert said_by_users(session_path(tmp_path)) == ["kept", "there is room"]


def test_st15_an_island_is_bridged_by_the_order_of_lines_with_a_visible_gap(tmp_path: Path) -> None:
    rows = case("ST15")["input"]["entries"]
    path = write(tmp_path / "s.jsonl", rows[1:], header=rows[0])
    before = fingerprint(tmp_path)
    assert shown(path) == ["e1", "e2", "gap", "e3", "e4"]
    (problem,) = [p for p in examine(path).problems if p.severity == "damage"]
    assert (problem.kind, "MISSING" in problem.detail) == ("missing_parent", True)
    assert fingerprint(tmp_path) == before


@pytest.mark.parametrize(
    ("change", "expected", "kind"),
    [
        (lambda rows: rows, ["e1", "e2", "e3"], "cycle"),
        (lambda rows: [rows[0] | {"parentId": "e1"}, *rows[1:]], ["e1", "e2", "e3"], "cycle"),
        (
            lambda rows: [rows[0] | {"parentId": None}, rows[1], rows[1] | {"parentId": "e1"}, rows[2]],
            ["e1", "e2", "e3"],
            "repeated",
        ),
        (lambda rows: [rows[1], rows[0] | {"parentId": None}, rows[2]], ["e1", "e2", "e3"], None),
    ],
    ids=["as reported", *case("ST16")["input"]["variants"]],
)
def test_st16_no_link_traps_the_walk(
    tmp_path: Path, change: Any, expected: list[str], kind: str | None
) -> None:
    rows = case("ST16")["input"]["entries"]
    path = write(tmp_path / "s.jsonl", change(rows[1:]), header=rows[0])
    assert shown(path) == expected
    damage = {p.kind for p in examine(path).problems if p.severity == "damage"}
    assert damage == ({kind} if kind else set())


KILLED = """
import os, shutil, signal, sys
from pathlib import Path
from helpers_files import held
from perdure.edges.session import rewrite

def counted(real, left):
    def call(*arguments, **named):
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments, **named)
    return call

def truncate(path, at):
    left, copy = [at], rewrite._copy
    def half(file, start, end, out):
        copy(file, start, (start + end) // 2, out)
        out.flush()
        steps(None)
        copy(file, (start + end) // 2, end, out)
    steps, rewrite._copy = counted(lambda _: None, left), half
    for name in ("open", "fsync", "rename", "symlink", "link"):
        setattr(os, name, counted(getattr(os, name), left))
    file = held(path)
    file._sync = True
    rewrite.truncate(file, lambda: "note", 1, sync=True)

for at in range(1, 99):
    path = Path(f"{sys.argv[1]}-{at}/s.jsonl")
    shutil.copytree(sys.argv[1], path.parent)
    if not (child := os.fork()):
        truncate(path, at)
        os._exit(0)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != -signal.SIGKILL:
        break
print(at)
"""


def test_st17_a_rewrite_killed_at_any_point_leaves_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    assert "kill -9" in case("ST17")["input"]["events"][1]
    folder = tmp_path / "s"
    folder.mkdir()
    rows = [user("a", None), assistant("b", "a"), user("c", "b"), compaction("p", "c", "c"), user("d", "p")]
    path = write(folder / "s.jsonl", rows)
    path.chmod(0o640)
    old = path.read_bytes()
    ran = python(KILLED, folder)
    points = int(ran.stdout or 0)
    assert points > 8, ran.stderr
    whole = {(Path(f"{folder}-{points}") / "s.jsonl").read_bytes(), old}
    seen = set()
    for at in range(1, points + 1):
        left = Path(f"{folder}-{at}") / "s.jsonl"
        assert left.stat().st_mode & 0o777 == 0o640
        assert shown(left) == ["p", "c", "d"]
        assert [item.entry for item in load(left).opened("b").items] == ["a", "b"]
        seen.add(left.read_bytes())
        retried(left)
    assert len(whole) == 2
    assert seen == whole


def retried(path: Path) -> None:
    """The next try completes it, and nothing is left beside the file."""
    from perdure.edges.session import rewrite, swap

    swap.finish(path, sync=False)
    rewrite.truncate(writing(path), lambda: "again", NOW, sync=False)
    assert len(list(path.parent.glob("*.segments/*"))) == 1
    assert {p.name for p in path.parent.iterdir()} == {"s.jsonl", "s.jsonl.segments"}
    assert load(path).node("a") is None


def test_st19_an_answer_stands_in_the_file_once_and_each_result_adds_its_own_line(tmp_path: Path) -> None:
    sizes: list[int] = []
    assert len(case("ST19")["input"]["events"]) == 3

    async def main(clock: VirtualClock) -> None:
        play = Play(calls("c", "c", "c", "c", text="a long answer " * 500), say("done"))
        async with hosted(tmp_path, play, clock, tools=[tells("c")]) as host:
            host.services.events.subscribe("t", lambda _: sizes.append(session_path(tmp_path).stat().st_size))
            await ask(host, "go")

    virtual(main)
    rows = [row for row in entries(session_path(tmp_path)) if row["type"] == "message"]
    assert [row["message"]["role"] for row in rows] == ["user", "assistant", *["toolResult"] * 4, "assistant"]
    assert len({row["id"] for row in rows}) == len(rows)
    assert all(len(json.dumps(row)) < 700 for row in rows if row["message"]["role"] == "toolResult")


def test_st19_repeated_lines_of_another_program_count_once_and_are_told(tmp_path: Path) -> None:
    rows = [user("a", None), assistant("b", "a"), assistant("b", "a"), assistant("b", "a"), user("c", "b")]
    path = write(tmp_path / "s.jsonl", rows)
    assert shown(path) == ["a", "b", "c"]
    assert load(path).count == 3
    assert len([p for p in examine(path).problems if p.kind == "repeated"]) == 2


def test_st19_a_redelivered_letter_is_written_once(tmp_path: Path) -> None:
    letter = Letter(KEY, "anna", "m1", (Text("hi"),))

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, Play(), clock) as host:
            for _ in range(3):
                await ask(host, "hi", sender=letter.sender, mid=letter.mid)

    virtual(main)
    assert said_by_users(session_path(tmp_path)) == ["hi"]

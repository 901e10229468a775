"""Retention: one plan for the dry run and the real one, archives first, nothing that is in use."""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from collections.abc import Collection
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers_cli import fingerprint, run
from helpers_host import Play, ask, hosted, virtual
from helpers_sessions import HEADER, assistant, compaction, off_chain, user, write
from perdure.edges import erasing
from perdure.edges.blobs import place
from perdure.edges.bundle import verify
from perdure.edges.placement import LocalPlacement
from perdure.edges.retention import DAY, MB, Found, plan
from perdure.edges.session import keys
from perdure.edges.settings import Settings
from perdure.edges.settings_hosting import RetentionSettings
from perdure.kernel.virtual import VirtualClock

NOW = 1_790_000_000_000
CANARY = "zq-canary-7361"


class Folder:
    """A state folder with old sessions: `s0` is the oldest."""

    def __init__(self, tmp_path: Path, rules: str, sessions: int = 4) -> None:
        self.state = tmp_path / "state"
        self.state.mkdir()
        LocalPlacement(self.state, wall_ms=1).close(clean=True)
        (self.state / "perdure.toml").write_text(f"[retention]\n{rules}\n")
        for n in range(sessions):
            self.has(f"agent:main:cli:dm:s{n}", n)

    def path(self, key: str) -> Path:
        return self.state / "sessions" / keys.relative_path(key)

    def has(self, key: str, age: int, *rows: object, **header: str) -> Path:
        path = self.path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path, rows or [user("a", None, key)], header=HEADER | {"id": key} | header)  # type: ignore[arg-type]
        os.utime(path, (1_700_000_000 + age, 1_700_000_000 + age))
        return path

    def clean(self, *words: str, code: int = 0) -> dict[str, object]:
        ran = run("cleanup", *words, "--state", self.state, "--json")
        assert ran.code == code, (ran.out, ran.err)
        return dict(ran.json)

    def left(self) -> list[str]:
        return sorted(path.name.split("+")[-1].split(".")[0] for path in self.state.rglob("*.jsonl"))


def names(rows: object) -> list[str]:
    return [row["name"].rpartition(":")[2] for row in rows]  # type: ignore[attr-defined]


def test_nothing_goes_by_default(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "")
    before = fingerprint(folder.state / "sessions")
    assert folder.clean()["plan"] == []
    assert "sets no limit" in run("cleanup", "--state", folder.state).out
    assert fingerprint(folder.state / "sessions") == before


def test_what_goes_is_in_a_verified_archive_and_evidence_with_it(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "max_sessions = 2")
    digest = hashlib.sha256(CANARY.encode()).hexdigest()
    blob = place(folder.state / "evidence", digest)
    blob.parent.mkdir(parents=True)
    blob.write_text(CANARY)
    kept = user("a", None) | {"perdure": {"v": 1, "e": 1, "evidence": [digest]}}
    path = folder.has("agent:main:cli:dm:s0", 0, kept)
    data = path.read_bytes()
    told = folder.clean()
    assert folder.left() == ["s2", "s3"]
    assert not blob.exists()
    archive = folder.state / str(told["archive"])
    assert verify(archive) == []
    with zipfile.ZipFile(archive) as bundle:
        assert bundle.read(path.relative_to(folder.state).as_posix()) == data
        assert bundle.read(blob.relative_to(folder.state).as_posix()) == CANARY.encode()
    assert archive.stat().st_mode & 0o077 == 0


def test_an_archive_that_cannot_be_written_removes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Folder(tmp_path, "max_sessions = 1")
    with monkeypatch.context() as full:
        full.setattr("perdure.edges.bundle.verify", lambda _path: ["x: damaged"])
        assert run("cleanup", "--state", folder.state).code == 2
    assert len(folder.left()) == 4
    assert not list((folder.state / "archive").glob("*"))


def test_sessions_in_use_and_their_subagents_are_refused_and_told(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "max_age_days = 1")
    held = folder.path("agent:main:cli:dm:s0")
    Path(f"{held}.lock").write_text(json.dumps({"pid": os.getppid(), "createdAt": "2999-01-01T00:00:00Z"}))
    child, letter = "agent:main:subagent:c", {"content": "hi", "session": "agent:main:cli:dm:s1"}
    folder.has(child, 0, parentSession=str(held))
    waits = off_chain("inbox", "w", "a", sender="x", mid="m", arrived=1, **letter)
    folder.has("agent:main:cli:dm:s1", 1, user("a", None), assistant("b", "a"), waits)
    told = folder.clean(code=1)
    assert sorted(names(told["refused"])) == ["c", "s0", "s1"]
    assert folder.left() == ["c", "s0", "s1"]
    assert not told["met"]


def test_segments_archives_logs_and_evidence_nobody_refers_to_go_by_their_rules(tmp_path: Path) -> None:
    rules = "segment_days = 1\nevidence_mb = 1\narchive_days = 1\nlog_days = 1"
    folder = Folder(tmp_path, rules, sessions=0)
    key = "agent:main:cli:dm:s0"
    rows = [user("a", None), assistant("b", "a"), compaction("c", "b", "c"), user("d", "c")]
    path = folder.has(key, 0, *rows)
    assert run("truncate", key, "--state", folder.state).code == 0
    segment = next(path.parent.glob("*.segments/*"))
    for n in range(3):
        data = bytes([n]) * MB
        blob = place(folder.state / "evidence", hashlib.sha256(data).hexdigest())
        blob.parent.mkdir(parents=True)
        blob.write_bytes(data)
        os.utime(blob, (n + 1, n + 1))
    (folder.state / "archive").mkdir(exist_ok=True)
    old = [folder.state / "archive" / "0.zip", folder.state / "runtime.log.1"]
    for each in (*old, segment):
        each.write_bytes(b"old") if each in old else None
        os.utime(each, (1, 1))
    told = folder.clean()
    assert sorted(row["kind"] for row in told["removed"]) == [  # type: ignore[attr-defined]
        *("archive", "evidence", "evidence", "log", "segment")
    ]
    assert not any(each.exists() for each in (*old, segment))
    assert [run("doctor", key, "--state", folder.state, "--json").json["healthy"]] == [True]
    assert len([each for each in (folder.state / "evidence").rglob("*") if each.is_file()]) == 1


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 5), st.booleans()), max_size=30),
    st.integers(0, 12), st.integers(0, 30), st.integers(0, 20),
)  # fmt: skip
def test_a_plan_holds_what_it_promises(
    rows: list[tuple[int, int, bool]], most: int, days: int, total: int
) -> None:
    found = [
        Found("session", f"s{n}", size * MB, NOW - age * DAY, "in use" if busy else "", "main")
        for n, (age, size, busy) in enumerate(rows)
    ]
    wanted = RetentionSettings(max_sessions=most, max_age_days=days, max_total_mb=total)
    made = plan(found, wanted, NOW)
    gone = {each.name for each in made.doomed}
    left = [each for each in found if each.name not in gone]
    assert not [each for each in found if each.busy and each.name in gone]
    assert plan(left, wanted, NOW).doomed == ()  # done once is done
    if not made.unmet:
        assert not most or len(left) <= most
        assert not days or all(NOW - each.changed_ms <= days * DAY for each in left)
        assert not total or sum(each.bytes for each in left) <= total * MB
    if not (most or days or total):
        assert left == found


def test_a_running_host_applies_the_same_rules_by_itself(tmp_path: Path) -> None:
    wanted = Settings(retention=RetentionSettings(max_sessions=2))

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, Play(), clock, settings=wanted, most_awake=1) as host:
            for n in range(4):
                await ask(host, f"hello {CANARY}", f"agent:main:cli:dm:s{n}")
                os.utime(host.files.path(f"agent:main:cli:dm:s{n}"), (n + 1, n + 1))
                await clock.sleep(1)
            await clock.sleep(24 * 3600)
            left = [host.files.exists(f"agent:main:cli:dm:s{n}") for n in range(4)]
            assert left == [False, False, True, True]
            assert host.retaining.removed == {"session": 2}
            assert (await ask(host, "anew", "agent:main:cli:dm:s0")).text.startswith("ok")
            assert host.files.exists("agent:main:cli:dm:s0")

    virtual(main)
    log = (tmp_path / "state" / "runtime.log").read_text()
    assert log.count('"retention.removed"') == 2
    assert CANARY not in log
    assert len(list((tmp_path / "state" / "archive").glob("*.zip"))) == 1


def test_many_sessions_with_evidence_cost_one_look_at_all_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Folder(tmp_path, "max_sessions = 2", sessions=6)
    kept: list[Path] = []
    for n in range(6):
        data = b"shared" if n in (3, 4) else f"{CANARY} {n}".encode()  # by one that goes and one that stays
        digest = hashlib.sha256(data).hexdigest()
        blob = place(folder.state / "evidence", digest)
        blob.parent.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(data)
        kept.append(blob)
        entry = user("a", None) | {"perdure": {"v": 1, "e": 1, "evidence": [digest]}}
        folder.has(f"agent:main:cli:dm:s{n}", n, entry)
    looks: list[int] = []
    real = erasing.Eraser.referred

    def referred(self: erasing.Eraser, without: Collection[Path] = ()) -> set[str]:
        looks.append(len(without))
        return real(self, without)

    monkeypatch.setattr(erasing.Eraser, "referred", referred)
    folder.clean()
    assert folder.left() == ["s4", "s5"]
    assert len(looks) == 1
    assert [blob.exists() for blob in kept] == [False, False, False, True, True, True]
    assert not list((folder.state / "sessions").rglob("*.deleted"))

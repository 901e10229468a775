"""Every kind of damage and note is found, at its byte; a healthy file has none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from helpers_sessions import HEADER, assistant, calls, compaction, entry, line, off_chain, result, user, write
from perdure.edges import segments
from perdure.edges.session.doctor import Report, examine, exit_status
from perdure.edges.session.lines import iso
from perdure.errors import UnreadableFile

TOP = len(line(HEADER)) + 1  # where the second line begins


def found(report: Report, severity: str = "damage") -> list[tuple[str, int, int]]:
    return [(p.kind, p.line, p.byte) for p in report.problems if p.severity == severity]


def notes(path: Path, **more: Any) -> list[str]:
    return [kind for kind, _, _ in found(examine(path, **more), "note")]


def start(*before: Any) -> int:
    """Where the line behind these begins."""
    return TOP + sum(len(row if isinstance(row, bytes) else line(row)) + 1 for row in before)


A, B = user("a", None), assistant("b", "a")


def test_a_healthy_file_has_nothing_to_report(tmp_path: Path) -> None:
    report = examine(
        write(tmp_path / "s", [A, B, calls("c", "b", "x", "y"), result("d", "c", "y"), result("e", "d", "x")])
    )
    assert report == Report(str(tmp_path / "s"), "session v3", 5)
    assert exit_status(report) == 0


STUB = line(user("z", "b"))[:40]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([A, B, STUB], [("torn", 4, start(A, B))]),
        ([A, STUB + line(B)], [("torn", 3, start(A))]),
        ([line(A) + line(B)], [("glued", 2, TOP + len(line(A)))]),
        ([A, b"\0" * 64, B], [("nul", 3, start(A))]),
        ([A, line(B)[:-1] + b',"x":"\xff"}'], [("undecodable", 3, start(A) + len(line(B)) + 5)]),
        ([A, B, b"null"], [("undecodable", 4, start(A, B))]),
        ([A, B, entry("message", "c", "b")], [("undecodable", 4, start(A, B))]),
        ([A, assistant("b", "lost")], [("missing_parent", 3, start(A))]),
        ([user("a", "b"), B], [("cycle", 2, TOP)]),
        ([user("a", "a"), B], [("cycle", 2, TOP)]),
        ([A, B, A, B], [("repeated", 2, TOP), ("repeated", 3, start(A))]),
        ([A, HEADER, B], [("repeated", 3, start(A))]),
        ([A, B, compaction("p", "b", "gone")], [("missing_anchor", 4, start(A, B))]),
        (
            [A, user("side", "a"), B, compaction("p", "b", "side")],
            [("missing_anchor", 5, start(A, user("side", "a"), B))],
        ),
        ([A, B, compaction("p", "b", "p")], []),
        ([A, B, compaction("p", "b", "b")], []),
        (
            [off_chain("owner", "o", None, e=9), A | {"perdure": {"e": 2}}, B | {"parentId": None}],
            [("stale_owner", 3, 0)],
        ),
    ],
)
def test_damage_is_found_at_its_byte(
    tmp_path: Path, rows: list[Any], expected: list[tuple[str, int, int]]
) -> None:
    report = examine(write(tmp_path / "s", rows))
    got = [(kind, at, byte if kind != "stale_owner" else 0) for kind, at, byte in found(report)]
    assert got == expected
    assert report.healthy is not bool(expected)
    assert exit_status(report) == (1 if expected else 0)


@pytest.mark.parametrize(
    "top",
    [[], [HEADER | {"id": 5}], [{"type": "session", "version": 3}], [user("a0", None), HEADER]],
    ids=["none", "id is a number", "no id", "not first"],
)
def test_a_bad_header_is_damage_of_a_file_that_can_still_be_read(tmp_path: Path, top: list[Any]) -> None:
    report = examine(write(tmp_path / "s", [*top, A, B], header=None))
    assert found(report) == [("bad_header", 1, 0)]


@pytest.mark.parametrize(
    ("rows", "kind"),
    [
        ([A, calls("b", "a", "x", "y"), result("c", "b", "x")], "unpaired_call"),
        ([A, B, result("c", "b", "x")], "orphan_result"),
        ([A, assistant("b", "a", content=[])], "empty_content"),
        ([A], "no_assistant"),
        ([A, B, compaction("p", "b", "b")], "foreign_compaction"),
    ],
)
def test_oddities_are_notes_and_leave_the_file_healthy(tmp_path: Path, rows: list[Any], kind: str) -> None:
    path = write(tmp_path / "s", rows)
    assert notes(path) == [kind]
    assert examine(path).healthy


def test_an_old_version_is_noted(tmp_path: Path) -> None:
    path = write(tmp_path / "s", [A, B], header=HEADER | {"version": 2})
    assert (examine(path).format, notes(path)) == ("session v2", ["old_version"])


def test_a_live_lock_of_another_program_is_noted_and_a_dead_ones_is_not(tmp_path: Path) -> None:
    path = write(tmp_path / "s", [A, B])
    lock = tmp_path / "s.lock"
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        lock.write_text(json.dumps({"pid": child.pid, "createdAt": iso(1_000)}))
        assert notes(path, now_ms=2_000) == ["locked"]
        assert notes(path, now_ms=2_000 + 3_600_000) == []
        child.communicate(b"\n")
    assert notes(path, now_ms=2_000) == []


def proof(**changes: Any) -> dict[str, Any]:
    spans = [{"first": "a", "last": "b", "count": 2, "how": "summarised"}]
    full = {
        "first": "a",
        "last": "b",
        "first_kept": "c",
        "entries": 2,
        "tokens_before": 90,
        "tokens_after": 9,
    }
    return {"perdure": {"v": 1, "e": 1, "proof": full | {"rung": "staged", "spans": spans} | changes}}


@pytest.mark.parametrize(
    ("details", "broken"),
    [
        (proof(), False),
        ({"perdure": {"v": 1, "e": 1}}, True),
        (proof(last="lost"), True),
        (proof(entries=3), True),
        (proof(tokens_after=90), True),
        (proof(spans="odd"), True),
    ],
    ids=["whole", "none", "covers what is nowhere", "counts differ", "did not shrink", "unreadable"],
)
def test_a_proof_that_does_not_hold_is_damage(tmp_path: Path, details: Any, broken: bool) -> None:
    rows = [A, B, user("c", "b"), compaction("p", "c", "c", details=details)]
    assert [kind for kind, _, _ in found(examine(write(tmp_path / "s", rows)))] == ["broken_proof"] * broken


def test_covered_entries_may_stand_in_a_segment_that_must_then_be_there(tmp_path: Path) -> None:
    moved = [segments.Moved("a", 0, line(A)), segments.Moved("b", 9, line(B))]
    path = tmp_path / "s"
    info = segments.write_segment(path, moved, session_id="s1", sync=False)
    rows = [
        user("c", None),
        assistant("d", "c"),
        compaction("p", "d", "c", details=proof()),
        off_chain("segment", "g", "p", segment=info.name, sha256=info.digest, entries=2),
    ]
    write(path, rows)
    assert examine(path).healthy
    os.unlink(segments.folder(path) / info.name)
    assert {kind for kind, _, _ in found(examine(path))} == {"missing_segment", "broken_proof"}


def test_evidence_is_looked_for_where_a_result_of_ours_names_it(tmp_path: Path) -> None:
    digest = "ab" * 32
    answer = result("c", "b", "x") | {"perdure": {"v": 1, "e": 1}}
    answer["message"]["content"] = [
        {"type": "text", "text": f"[whole output: evidence sha256:{digest}; more]"}
    ]
    path = write(tmp_path / "s", [A, calls("b", "a", "x"), answer])
    assert found(examine(path, has_evidence=lambda name: name == digest)) == []
    assert [kind for kind, _, _ in found(examine(path, has_evidence=lambda _: False))] == ["missing_evidence"]
    assert examine(path).healthy


def test_the_contract_of_the_json_output(tmp_path: Path) -> None:
    path = write(tmp_path / "s", [A, B, STUB])
    report = examine(path).builtins()
    assert list(report) == ["file", "format", "entries", "healthy", "problems", "fixed"]
    assert list(report["problems"][0]) == ["kind", "severity", "line", "byte", "detail", "fix"]
    assert json.loads(json.dumps(report)) == report
    assert (report["entries"], report["healthy"], report["fixed"]) == (2, False, [])


def test_what_is_no_session_is_an_error_not_a_report(tmp_path: Path) -> None:
    (tmp_path / "s").write_bytes(b"\x7fELF\0\0\0")
    with pytest.raises(UnreadableFile, match="binary data"):
        examine(tmp_path / "s")


def test_the_doctor_loads_no_vendor_and_no_tools() -> None:
    code = "import sys, perdure.edges.session.doctor as d; print([m for m in sys.modules"
    code += " if 'anthropic' in m or 'openai' in m or 'edges.tools' in m])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"

"""The day's note only grows: whoever writes, whatever breaks, and each text of a session is in it once."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.edges import daynote, disk
from perdure.edges.daynote import Origin

NOW = 1_767_600_000_000  # 2026-01-05
DAY = 86_400_000
TEXTS = ("- the dock closes at 18:00", "- 码头六点关门", "- a\n- b", "- the dock")


def note(root: Path, day: str = "2026-01-05") -> Path:
    return root / "memory" / f"{day}.md"


def test_a_text_stands_behind_what_was_there_under_where_it_is_from(tmp_path: Path) -> None:
    assert daynote.append(tmp_path, "- one", NOW) == len(b"- one\n")
    daynote.append(tmp_path, "- two", NOW, Origin("s1", ("e1", "e9"), "untrusted"))
    assert note(tmp_path).read_text() == "- one\n\n<!-- from: s1 e1 e9 trust: untrusted -->\n- two\n"


def test_the_same_text_of_the_same_session_is_noted_once_across_midnight(tmp_path: Path) -> None:
    assert daynote.append(tmp_path, "- one", NOW, Origin("s1"))
    assert not daynote.append(tmp_path, "- one", NOW, Origin("s1", ("e7",)))
    assert not daynote.append(tmp_path, "- one", NOW + DAY, Origin("s1"))
    assert daynote.append(tmp_path, "- one", NOW, Origin("s2"))
    assert daynote.append(tmp_path, "- on", NOW, Origin("s1"))
    assert daynote.append(tmp_path, "- one", NOW + 3 * DAY, Origin("s1"))
    assert note(tmp_path).read_text().count("- one\n") == 2


def test_many_threads_lose_no_line(tmp_path: Path) -> None:
    def write(who: int) -> None:
        for n in range(25):
            daynote.append(tmp_path, f"- {who}.{n} " + "x" * 300, NOW, Origin(f"s{who}"), sync=False)

    threads = [threading.Thread(target=write, args=(who,)) for who in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rows = note(tmp_path).read_text().splitlines()
    assert sorted(row for row in rows if row.startswith("- ")) == sorted(
        f"- {who}.{n} " + "x" * 300 for who in range(8) for n in range(25)
    )
    for who in range(8):
        assert [row for row in rows if row.startswith(f"- {who}.")] == [
            f"- {who}.{n} " + "x" * 300 for n in range(25)
        ]


Block = Callable[[Path, Path], object]
WAYS: dict[str, Block] = {
    "the folder is a link": lambda root, out: os.symlink(out, root / "memory"),
    "the folder is a file": lambda root, out: (root / "memory").write_text(""),
    "the note is a link": lambda root, out: os.symlink(out / "x", _made(root)),
    "the note is a hard link": lambda root, out: os.link(_file(out / "x"), _made(root)),
    "the note is a pipe": lambda root, out: os.mkfifo(_made(root)),
    "the note is a folder": lambda root, out: _made(root).mkdir(),
}


def _made(root: Path) -> Path:
    (root / "memory").mkdir()
    return note(root)


def _file(path: Path) -> Path:
    path.write_text("not yours\n")
    return path


@pytest.mark.parametrize("way", WAYS)
def test_nothing_leads_out_of_the_note(way: str, tmp_path: Path) -> None:
    root, out = tmp_path / "root", tmp_path / "out"
    root.mkdir()
    out.mkdir()
    WAYS[way](root, out)
    with pytest.raises(OSError):  # whatever the system says
        daynote.append(root, "- one", NOW, Origin("s1"))
    assert [path.read_text() for path in out.iterdir()] in ([], ["not yours\n"])
    assert bool(daynote.refusal(root)) is ("folder" in way and "note" not in way)


def test_a_workspace_that_is_not_there_is_told_and_looking_makes_nothing(tmp_path: Path) -> None:
    assert daynote.refusal(tmp_path / "none") == "there is no workspace"
    assert daynote.refusal(tmp_path) == ""
    assert not (tmp_path / "memory").exists()


def test_a_disk_that_is_full_is_an_error_and_never_a_note_that_shrank(tmp_path: Path) -> None:
    daynote.append(tmp_path, "- one", NOW, Origin("s1"))
    before = note(tmp_path).read_bytes()

    def full(op: str, path: str) -> None:
        if op == "write":
            raise disk.Torn(OSError(28, "No space left on device"))

    with disk.faults(full), pytest.raises(OSError, match="No space"):
        daynote.append(tmp_path, "- two and more", NOW, Origin("s1"))
    assert note(tmp_path).read_bytes().startswith(before)
    assert daynote.append(tmp_path, "- two and more", NOW, Origin("s1"))
    assert note(tmp_path).read_text().count("- two and more\n") == 1


@settings(max_examples=40)
@given(
    told=st.lists(
        st.tuples(st.sampled_from(("s1", "s2")), st.sampled_from(TEXTS), st.integers(0, 1)), max_size=12
    ),
    fault=st.integers(0, 30),
    torn=st.booleans(),
)
def test_any_history_of_writers_and_faults_only_adds(
    tmp_path_factory: pytest.TempPathFactory, told: list[tuple[str, str, int]], fault: int, torn: bool
) -> None:
    root = tmp_path_factory.mktemp("note")
    calls = 0

    def breaks(op: str, path: str) -> None:
        nonlocal calls
        calls += 1
        if calls == fault:
            error = OSError(5, "Input/output error")
            raise disk.Torn(error) if torn and op == "write" else error

    before = {0: b"", 1: b""}
    noted = set()
    with disk.faults(breaks):
        for who, text, days in told:
            try:
                daynote.append(root, text, NOW + days * DAY, Origin(who))
            except OSError:
                continue
            finally:
                for day, old in before.items():
                    path = note(root, f"2026-01-0{5 + day}")
                    before[day] = path.read_bytes() if path.exists() else b""
                    assert before[day].startswith(old)
            noted.add((who, text))
    for who, text in noted:
        found = sum(daynote.holds(each, who, text.encode() + b"\n") for each in before.values())
        whole = f"<!-- from: {who} trust: agent -->\n{text}\n".encode()
        assert sum(each.count(whole) for each in before.values()) >= found >= 1
    for who in ("s1", "s2"):
        for text in TEXTS:
            whole = f"<!-- from: {who} trust: agent -->\n{text}\n".encode()
            assert before[0].count(whole) <= 1
            assert before[1].count(whole) <= 1

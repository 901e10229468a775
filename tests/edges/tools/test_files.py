"""read, write and edit: what a model gets back, and that nothing outside the workspace is touched."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from helpers_tools import call, facts, images, said
from perdure.edges.tools.arguments import Checked
from perdure.edges.tools.confine import Refused, locate, open_file
from perdure.edges.tools.read import LINE_BYTES, ReadTool
from perdure.edges.tools.write import EditTool, WriteTool

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret").write_text("the secret")
    return folder


@pytest.fixture
def root(tmp_path: Path, outside: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def test_a_page_names_the_next_offset(root: Path) -> None:
    (root / "a.txt").write_text("".join(f"line {n}\n" for n in range(1, 11)))
    page = call(ReadTool(), root, path="a.txt", offset=3, limit=2)
    assert said(page) == "line 3\nline 4\n[Lines 3-4 shown; go on with offset=5.]"
    assert facts(page)["more"] is True
    last = call(ReadTool(), root, path="a.txt", offset=9)
    assert said(last) == "line 9\nline 10"


def test_an_offset_past_the_end_says_how_long_the_file_is(root: Path) -> None:
    (root / "a.txt").write_text("one\ntwo\n")
    assert said(call(ReadTool(), root, path="a.txt", offset=9)) == "[The file has only 2 lines.]"
    (root / "b.txt").write_text("")
    assert said(call(ReadTool(), root, path="b.txt")) == "[The file is empty.]"


def test_a_file_of_one_endless_line_costs_one_page(root: Path) -> None:
    with (root / "big").open("wb") as file:
        file.truncate(0)
        for _ in range(64):
            file.write(b"x" * (1 << 20))
    page = call(ReadTool(), root, path="big")
    assert len(said(page)) < LINE_BYTES + 300
    assert "cut at" in said(page)


def test_invalid_utf8_is_shown_with_replacement_characters(root: Path) -> None:
    (root / "a").write_bytes(b"ok \xff\xfe\xe2\x82 end\n")
    assert said(call(ReadTool(), root, path="a")).startswith("ok \ufffd")


def test_utf16_with_a_mark_is_read_as_text(root: Path) -> None:
    (root / "a").write_bytes("zeile eins\nzeile zwei\n".encode("utf-16"))
    assert said(call(ReadTool(), root, path="a")) == "zeile eins\nzeile zwei"


def test_binary_files_are_described_and_images_are_shown(root: Path) -> None:
    (root / "a.bin").write_bytes(b"\x7fELF\0\0\0")
    assert "binary file of 7 bytes" in said(call(ReadTool(), root, path="a.bin"))
    (root / "p.png").write_bytes(PNG)
    shown = images(call(ReadTool(), root, path="p.png"))
    assert [image.mime for image in shown] == ["image/png"]


def test_reads_of_folders_devices_and_missing_files_are_errors(root: Path) -> None:
    os.mkfifo(root / "pipe")
    for path, reason in (
        ("pipe", "not a regular file"),
        (".", "a folder"),
        ("none", "no such file"),
        ("\0", "path"),
    ):
        answer = call(ReadTool(), root, path=path)
        assert answer.is_error
        assert reason in said(answer)


@pytest.mark.parametrize(
    "path", ["../outside/secret", "link", "dir/secret", "a/../../outside/secret", "loop"]
)
def test_no_path_leads_out_of_the_workspace(root: Path, outside: Path, path: str) -> None:
    (root / "link").symlink_to(outside / "secret")
    (root / "dir").symlink_to(outside)
    (root / "loop").symlink_to("loop")
    for output in (
        call(ReadTool(), root, path=path),
        call(WriteTool(), root, path=path, content="x"),
        call(EditTool(), root, path=path, old_text="the secret", new_text="x"),
    ):
        assert output.is_error
        assert "secret" not in said(output).replace("outside/secret", "").replace("dir/secret", "")
    assert (outside / "secret").read_text() == "the secret"
    assert call(ReadTool(), root, path=str(outside / "secret")).is_error


def test_absolute_paths_and_links_that_stay_inside_are_fine(root: Path) -> None:
    (root / "real").write_text("hello")
    (root / "link").symlink_to("real")
    assert said(call(ReadTool(), root, path=str(root / "real"))) == "hello"
    assert not call(WriteTool(), root, path="link", content="new").is_error
    assert (root / "link").is_symlink()
    assert (root / "real").read_text() == "new"


def test_a_workspace_that_is_itself_a_link_works(root: Path, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(root)
    assert not call(WriteTool(), tmp_path / "alias", path="x/y.txt", content="1").is_error
    assert (root / "x/y.txt").read_text() == "1"


def test_a_folder_swapped_for_a_link_after_the_check_is_not_followed(root: Path, outside: Path) -> None:
    (root / "d").mkdir()
    (root / "d" / "secret").write_text("inner")
    checked = locate(root, "d/secret")
    assert checked == ("d", "secret")
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            os.rename(root / "d", root / "kept")
            os.symlink(outside, root / "d")
            os.unlink(root / "d")
            os.replace(root / "kept", root / "d")

    attacker = threading.Thread(target=swap)
    attacker.start()
    try:
        for _ in range(600):
            try:
                with open_file(root, "d/secret") as file:
                    assert file.read() == b"inner"
            except Refused:
                pass  # the link was there, and was not followed
    finally:
        stop.set()
        attacker.join()
    with open_file(root, "d/secret") as file:
        assert file.read() == b"inner"
    assert (outside / "secret").read_text() == "the secret"
    assert sorted(p.name for p in outside.iterdir()) == ["secret"]


def test_write_makes_folders_keeps_the_mode_and_leaves_no_temp_file(root: Path) -> None:
    assert "Created a/b/run.sh" in said(call(WriteTool(), root, path="a/b/run.sh", content="one\n"))
    (root / "a/b/run.sh").chmod(0o750)
    assert "Replaced" in said(call(WriteTool(), root, path="a/b/run.sh", content="two\nthree"))
    assert stat.S_IMODE((root / "a/b/run.sh").stat().st_mode) == 0o750
    assert [p.name for p in (root / "a/b").iterdir()] == ["run.sh"]


def test_a_lone_surrogate_is_refused_and_nothing_is_written(root: Path) -> None:
    answer = call(WriteTool(), root, path="x", content="a\ud800b")
    assert answer.is_error
    assert not (root / "x").exists()


def test_an_edit_replaces_the_one_occurrence_and_keeps_foreign_bytes(root: Path) -> None:
    (root / "a").write_bytes(b"\xff\xfe keep\nold line\ntail \xff")
    answer = call(EditTool(), root, path="a", old_text="old line", new_text="new\nlines")
    assert said(answer) == "Edited a at line 2 (-1 +2 lines)."
    assert (root / "a").read_bytes() == b"\xff\xfe keep\nnew\nlines\ntail \xff"


def test_an_edit_of_crlf_text_keeps_its_line_ends(root: Path) -> None:
    (root / "a").write_bytes(b"one\r\ntwo\r\nthree\r\n")
    assert not call(EditTool(), root, path="a", old_text="one\ntwo", new_text="1\n2").is_error
    assert (root / "a").read_bytes() == b"1\r\n2\r\nthree\r\n"


@pytest.mark.parametrize(
    ("body", "old", "reason"),
    [
        ("a\nb\n", "c", "was not found"),
        ("x\nx\ny\n", "x", "occurs 2 times (lines 1, 2)"),
        ("aaa", "aa", "occurs 2 times"),
        ("    indented(call)\n", "indented( call )", "Line 1 differs only in whitespace"),
    ],
)
def test_an_edit_that_is_not_unique_changes_nothing_and_says_why(
    root: Path, body: str, old: str, reason: str
) -> None:
    (root / "a").write_text(body)
    answer = call(EditTool(), root, path="a", old_text=old, new_text="z")
    assert answer.is_error
    assert reason in said(answer)
    assert (root / "a").read_text() == body


def test_parallel_edits_of_one_file_are_all_kept(root: Path) -> None:
    (root / "a").write_text("".join(f"<{n:02}>\n" for n in range(40)))

    def edit(n: int) -> None:
        assert not call(EditTool(), root, path="a", old_text=f"<{n:02}>", new_text=f"done {n}").is_error

    threads = [threading.Thread(target=edit, args=(n,)) for n in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (root / "a").read_text() == "".join(f"done {n}\n" for n in range(40))


def test_wrong_arguments_are_named_before_anything_runs(root: Path) -> None:
    answer = call(Checked(WriteTool()), root, path=3, contents="x")
    assert answer.is_error
    for part in (
        "path: must be string, not a number",
        "content: missing (required)",
        "'contents': unknown parameter",
    ):
        assert part in said(answer)
    (root / "a").write_text("1\n2\n3\n")
    assert said(call(Checked(ReadTool()), root, path="a", offset="2", limit=1.0)).startswith("2\n")

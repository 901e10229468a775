"""Reading a workspace: what gets in, what is left out, and when it is read again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from perdure.context.prompt.skills import Skill
from perdure.edges.workspace import MAX_FILE_BYTES, MAX_NOTES, WorkspaceReader


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    (folder / "skills/deploy").mkdir(parents=True)
    (folder / "memory").mkdir()
    (folder / "AGENTS.md").write_text("rules")
    (folder / "MEMORY.md").write_text("facts")
    (folder / "memory/2026-01-05.md").write_text("today")
    (folder / "memory/other.md").write_text("not a daily note")
    (folder / "skills/deploy/SKILL.md").write_text("---\nname: deploy\ndescription: Ships\n---\n")
    return folder


def text_of(root: Path, name: str) -> str | None:
    return next(f.text for f in WorkspaceReader().read(root).files if f.name == name)


def test_files_skills_and_notes_become_records(root: Path) -> None:
    found = WorkspaceReader().read(root)
    assert [(f.name, f.text) for f in found.files if f.text is not None] == [("AGENTS.md", "rules")]
    assert len(found.files) == 7
    assert found.skills == (Skill("deploy", "Ships", "skills/deploy/SKILL.md"),)
    assert [(n.path, n.text) for n in found.notes] == [
        ("MEMORY.md", "facts"),
        ("memory/2026-01-05.md", "today"),
    ]
    assert found.problems == ()


def test_links_out_hard_links_devices_and_giants_are_left_out_and_named(root: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("the secret")
    (root / "SOUL.md").symlink_to(tmp_path / "secret")
    os.link(tmp_path / "secret", root / "USER.md")
    os.mkfifo(root / "TOOLS.md")
    with (root / "IDENTITY.md").open("wb") as file:
        file.truncate(MAX_FILE_BYTES + 1)
    (root / "HEARTBEAT.md").mkdir()
    found = WorkspaceReader().read(root)
    assert [f.name for f in found.files if f.text is not None] == ["AGENTS.md"]
    assert len(found.problems) == 5
    assert "the secret" not in str(found)


def test_skill_and_memory_folders_that_are_links_are_not_read(root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "deploy").mkdir(parents=True)
    (outside / "deploy/SKILL.md").write_text("---\nname: evil\ndescription: x\n---\n")
    (root / "skills").rename(root / "kept")
    (root / "skills").symlink_to(outside)
    assert WorkspaceReader().read(root).skills == ()
    (root / "skills").unlink()
    (root / "skills").mkdir()
    (root / "skills/deploy").symlink_to(outside / "deploy")
    assert WorkspaceReader().read(root).skills == ()


def test_bytes_that_are_no_utf8_and_a_bom_are_read(root: Path) -> None:
    (root / "AGENTS.md").write_bytes(b"\xef\xbb\xbfa\xffb")
    assert text_of(root, "AGENTS.md") == "a\ufffdb"


def test_a_missing_workspace_is_an_empty_one_with_a_problem(tmp_path: Path) -> None:
    found = WorkspaceReader().read(tmp_path / "none")
    assert all(f.text is None for f in found.files)
    assert found.problems


def test_only_the_newest_daily_notes_are_read(root: Path) -> None:
    for n in range(MAX_NOTES + 10):
        (root / f"memory/20{n:02}-01-01.md").write_text(str(n))
    notes = WorkspaceReader().read(root).notes
    assert len(notes) == MAX_NOTES + 1
    assert notes[1].path == f"memory/20{MAX_NOTES + 9}-01-01.md"


def test_unchanged_workspaces_share_one_object(root: Path) -> None:
    reader = WorkspaceReader()
    assert reader.read(root) is reader.read(root)


def test_a_link_put_in_place_of_a_file_that_was_read_is_not_followed_out(root: Path, tmp_path: Path) -> None:
    reader = WorkspaceReader()
    reader.read(root)
    (tmp_path / "secret").write_text("elsewhere")
    (root / "AGENTS.md").unlink()
    (root / "AGENTS.md").symlink_to(tmp_path / "secret")
    assert reader.read(root).files[0].text is None


def test_a_file_replaced_by_one_of_equal_size_is_seen(root: Path) -> None:
    reader = WorkspaceReader()
    assert reader.read(root).files[0].text == "rules"
    (root / "temp").write_text("RULES")
    os.replace(root / "temp", root / "AGENTS.md")
    assert reader.read(root).files[0].text == "RULES"

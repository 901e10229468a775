"""grep and find: sorted, bounded, stoppable, confined."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers_tools import LOOPS, call, facts, said
from perdure.edges.tools.scan import glob_matcher, lines_of
from perdure.edges.tools.search import FindTool, GrepTool


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "src/deep").mkdir(parents=True)
    (tmp_path / ".git").mkdir()
    (tmp_path / "src/a.py").write_text("import os\n\ndef alpha():\n    return 1\n")
    (tmp_path / "src/deep/b.py").write_text("def beta():\n    return alpha()\n")
    (tmp_path / "notes.md").write_text("Alpha and beta\n")
    (tmp_path / ".git/config").write_text("alpha\n")
    (tmp_path / "data.bin").write_bytes(b"alpha\0alpha")
    return tmp_path


@pytest.mark.parametrize("loop", LOOPS)
def test_matches_come_sorted_by_path_with_line_numbers(root: Path, loop: str) -> None:
    found = call(GrepTool(), root, loop, pattern=r"alpha\(")
    assert said(found) == "src/a.py:3:def alpha():\nsrc/deep/b.py:2:    return alpha()"
    assert facts(found)["matches"] == 2


def test_a_child_process_and_a_search_in_place_agree(root: Path) -> None:
    for arguments in (
        {"pattern": "alpha", "ignore_case": True, "context": 1},
        {"pattern": "alpha()", "literal": True},
        {"pattern": "return", "path": "src/deep"},
        {"pattern": "def", "path": "src/a.py"},
        {"pattern": "a", "glob": "src/**/*.py", "limit": 2},
    ):
        assert call(GrepTool(), root, **arguments) == call(GrepTool(), root, virtual=True, **arguments)


def test_context_lines_and_groups_are_marked(root: Path) -> None:
    (root / "long").write_text("".join(f"{n}\n" for n in range(1, 30)))
    assert said(call(GrepTool(), root, pattern="^(5|7|20)$", path="long", context=1)).split("\n") == [
        "long-4-4", "long:5:5", "long-6-6", "long:7:7", "long-8-8",
        "--", "long-19-19", "long:20:20", "long-21-21",
    ]  # fmt: skip


def test_a_pattern_that_never_ends_is_stopped_and_what_was_found_is_kept(root: Path) -> None:
    (root / "0").write_text("aab\n")
    (root / "1").write_text("a" * 60 + "!\n")
    found = call(GrepTool(seconds=2.0), root, pattern="^(a+)+b$")
    assert "0:1:aab" in said(found)
    assert "took too long" in said(found)


def test_the_limit_is_said(root: Path) -> None:
    (root / "many").write_text("x\n" * 500)
    found = call(GrepTool(), root, pattern="x", path="many", limit=3)
    assert facts(found)["matches"] == 3
    assert "Stopped at 3 matches" in said(found)


def test_long_lines_are_cut_around_the_match(root: Path) -> None:
    (root / "min.js").write_text("y" * 3_000 + "needle" + "z" * 3_000)
    line = said(call(GrepTool(), root, pattern="needle", path="min.js"))
    assert "needle" in line
    assert len(line) < 600


@pytest.mark.parametrize(
    ("pattern", "reason"), [("(", "not a regular expression"), ("nothing here", "No matches")]
)
def test_bad_and_fruitless_patterns_say_so(root: Path, pattern: str, reason: str) -> None:
    assert reason in said(call(GrepTool(), root, pattern=pattern))


def test_neither_search_follows_links_out(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "secret.txt").write_text("alpha secret")
    (root / "link").symlink_to(outside)
    (root / "file").symlink_to(outside / "secret.txt")
    assert "secret" not in said(call(GrepTool(), root, pattern="alpha", ignore_case=True))
    assert "secret" not in said(call(FindTool(), root))
    for tool, arguments in ((GrepTool(), {"pattern": "a"}), (FindTool(), {})):
        assert call(tool, root, path="link", **arguments).is_error
        assert call(tool, root, path="../", **arguments).is_error


def test_find_lists_folders_with_a_slash_and_says_when_there_is_more(root: Path) -> None:
    assert said(call(FindTool(), root, pattern="src/**")) == "src/\nsrc/a.py\nsrc/deep/\nsrc/deep/b.py"
    assert said(call(FindTool(), root, pattern="*.{py,md}")) == "notes.md\nsrc/a.py\nsrc/deep/b.py"
    assert "More than 1 entries" in said(call(FindTool(), root, pattern="**", limit=1))
    assert "Nothing fits" in said(call(FindTool(), root, pattern="*.rs"))


@pytest.mark.parametrize(
    ("pattern", "path", "fits"),
    [
        ("*.py", "a/b/c.py", True), ("*.py", "c.pyc", False), ("src/*.py", "src/a.py", True),
        ("src/*.py", "src/x/a.py", False), ("src/**/*.py", "src/a.py", True), ("**/x", "a/b/x", True),
        ("a/**", "a/b/c", True), ("a[0-9]", "a5", True), ("./a", "a", True), ("{a,b{c,d}}", "bd", True),
    ],
)  # fmt: skip
def test_globs_mean_what_people_expect(pattern: str, path: str, fits: bool) -> None:
    assert glob_matcher(pattern)(path) is fits


def test_a_hostile_glob_is_matched_at_once() -> None:
    assert glob_matcher("**/" * 40 + "*a*a*a*a*a*a*a*a*b")("/".join(["a" * 100] * 60)) is False


@given(st.text(alphabet="ab*?[]{},!/-", max_size=30), st.text(alphabet="ab/", max_size=20))
def test_no_glob_makes_the_matcher_fail(pattern: str, path: str) -> None:
    assert glob_matcher(pattern)(path) in (True, False)


@given(st.lists(st.binary(max_size=40), max_size=8), st.integers(1, 30))
def test_lines_lose_nothing_but_what_is_too_long(parts: list[bytes], longest: int) -> None:
    import io

    data = b"\n".join(parts)
    for line, whole in lines_of(io.BytesIO(data), longest):
        assert len(line) <= longest + 1
        assert whole or len(line) == longest
    if all(len(line) <= longest for line in data.split(b"\n")):
        joined = b"".join(line for line, _ in lines_of(io.BytesIO(data), longest))
        assert joined in (data, data + b"\n")

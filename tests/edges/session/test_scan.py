r"""One splitter for every reader: `\n` bytes only, forwards and backwards, in blocks of any size."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perdure.edges.session import scan
from perdure.errors import UnreadableFile

PIECES = st.lists(st.sampled_from([b"\n", b"\r\n", b"a", b"\r", b"\x00", "\u2028\u0085".encode(), b"{}" * 9]))
ANY = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "FIRST_BLOCK", 3)
    monkeypatch.setattr(scan, "LARGEST_BLOCK", 7)


def expected(data: bytes) -> list[tuple[int, int, bytes]]:
    at, found = 0, []
    for number, line in enumerate(data.split(b"\n"), 1):
        found.append((number, at, line.removesuffix(b"\r")))
        at += len(line) + 1
    return found[:-1] if data.endswith(b"\n") or not data else found


@ANY
@given(pieces=PIECES)
@pytest.mark.usefixtures("small_blocks")
def test_forwards_and_backwards_see_the_same_lines_at_the_same_bytes(
    tmp_path: Path, pieces: list[bytes]
) -> None:
    data = b"".join(pieces)
    path = tmp_path / "f"
    path.write_bytes(data)
    fd = os.open(path, os.O_RDONLY)
    try:
        ahead = [(line.number, line.start, line.data) for line in scan.forward(fd, 0, len(data))]
        back = [(line.start, line.data) for line in scan.backward(fd, len(data))]
    finally:
        os.close(fd)
    assert ahead == expected(data)
    assert [(start, line) for _, start, line in ahead if line] == [pair for pair in reversed(back) if pair[1]]


def test_only_newlines_split_whatever_unicode_says() -> None:
    text = "a\u2028b\u2029c\u0085d\x0be\x0cf".encode()
    assert [line.data for line in scan.split(text + b"\r\nnext")] == [text, b"next"]


def test_a_file_that_shrinks_while_it_is_read_is_an_error_not_a_crash(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"abc")
    fd = os.open(path, os.O_RDONLY)
    try:
        with pytest.raises(UnreadableFile, match="became shorter"):
            scan.read(fd, 10, 0)
    finally:
        os.close(fd)


@pytest.fixture
def little_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in (("FIRST_BLOCK", 2), ("LARGEST_BLOCK", 4), ("BLANK", 4), ("LONGEST", 16)):
        monkeypatch.setattr(scan, name, size)


def _covered(data: bytes, lines: list[scan.Line]) -> bytes:
    """The file put together from lines; what was passed over is taken from the file, and judged."""
    found = bytearray(b"\n" * len(data))
    for line in lines:
        piece = data[line.start : line.end] if line.lost else line.data
        assert not line.nul or not piece.strip(b"\0")
        assert line.nul or line.lost == 0 or (len(piece) > scan.LONGEST and b"\n" not in piece)
        found[line.start : line.start + len(piece)] = piece
    return bytes(found)


LONG = st.lists(st.sampled_from([b"\n", b"a", b"{}", b"\0", b"\0" * 9, b"b" * 23]))


@ANY
@given(pieces=LONG)
@pytest.mark.usefixtures("little_is_kept")
def test_what_is_passed_over_is_told_with_its_place_and_the_rest_is_read(
    tmp_path: Path, pieces: list[bytes]
) -> None:
    data = b"".join(pieces)
    path = tmp_path / "f"
    path.write_bytes(data)
    fd = os.open(path, os.O_RDONLY)
    try:
        forwards = list(scan.forward(fd, 0, len(data)))
        backwards = list(scan.backward(fd, len(data)))
    finally:
        os.close(fd)
    assert _covered(data, forwards) == data
    assert _covered(data, backwards) == data
    assert all(line.number == data.count(b"\n", 0, line.start) + 1 for line in forwards)
    assert [line.start for line in backwards] == sorted((line.start for line in backwards), reverse=True)
    assert max((len(line.data) for line in forwards + backwards), default=0) <= scan.LONGEST

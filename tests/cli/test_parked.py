"""`perdure parked` on the state folder of a stopped host."""

from __future__ import annotations

from pathlib import Path

from helpers_cli import run
from perdure.contracts import Letter
from perdure.edges.parked import ParkedLetter, ParkedLetters
from perdure.records import Image, Text

KEY = "agent:main:cli:dm:local"


def park(state: Path, number: int, text: str = "private words") -> ParkedLetter:
    content = (Text(text), Image("aGk=", "image/png"))
    parked = ParkedLetter(Letter(KEY, "user", f"m{number}", content, 5), "KeyError('x')", 1_767_600_000_000)
    ParkedLetters(state / "parked").put(number, parked)
    return parked


def test_parked_letters_come_back_as_they_were(tmp_path: Path) -> None:
    parked = park(tmp_path, 7)
    (tmp_path / "parked" / "8.json").write_bytes(b'{"torn')
    letters = ParkedLetters(tmp_path / "parked")
    assert letters.all() == [(7, parked)]
    assert letters.forget_session("agent:main:cli:dm:other") == 0
    assert letters.forget_session(KEY) == 1
    assert letters.all() == []


def test_the_list_shows_what_and_why_and_never_the_text(tmp_path: Path) -> None:
    assert run("parked", "list", "--state", tmp_path).code == 0
    park(tmp_path, 1)
    shown = run("parked", "list", "--state", tmp_path)
    assert shown.code == 1
    assert "KeyError" in shown.out
    assert "private" not in shown.out
    (line,) = run("parked", "list", "--state", tmp_path, "--json").json["parked"]
    assert (line["number"], line["session"], line["mail"]) == (1, KEY, "deliver")


def test_drop_forgets_one_and_says_so_where_there_is_none(tmp_path: Path) -> None:
    park(tmp_path, 1)
    park(tmp_path, 2)
    assert run("parked", "drop", "1", "--state", tmp_path).code == 0
    assert [n for n, _ in ParkedLetters(tmp_path / "parked").all()] == [2]
    assert run("parked", "drop", "1", "--state", tmp_path, "--json").json["done"] is False
    assert run("parked", "drop", "one", "--state", tmp_path).code == 2


def test_retry_without_a_host_is_not_done_and_keeps_the_letter(tmp_path: Path) -> None:
    park(tmp_path, 1)
    told = run("parked", "retry", "1", "--state", tmp_path)
    assert told.code == 1
    assert "start one" in told.out
    assert ParkedLetters(tmp_path / "parked").all()

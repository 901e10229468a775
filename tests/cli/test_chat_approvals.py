"""Approvals on a terminal: the question stands beside the conversation, and pipes are asked nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers_chat import on_pipes, on_terminal
from helpers_host import messages, session_path, text_of


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder whose `find` needs approval."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "perdure.toml").write_text("[tools]\napprove = ['find']\n")
    return tmp_path / "state"


def results(state: Path) -> list[bool]:
    return [e["message"]["isError"] for e in messages(session_path(state.parent), "toolResult")]


def test_a_person_allows_one_call_and_denies_the_next(state: Path) -> None:
    with on_terminal("looks", "--state", state) as chat:
        chat.until("> ")
        chat.type("look\n")
        assert '"pattern":"*"' in chat.until("y/N/a") + chat.until("]")
        chat.until("> ")
        chat.type("y\n")
        chat.until("[find: allowed]")
        chat.until('"pattern":"a*"')
        chat.until("> ")
        chat.type("\n")
        chat.until("[find: denied]")
        chat.until("the answer")
        chat.until("> ")
        chat.type("/quit\n")
        assert chat.ended() == 0
    assert sorted(results(state)) == [False, True]
    (denied,) = (e for e in messages(session_path(state.parent), "toolResult") if e["message"]["isError"])
    assert "did not allow" in text_of(denied["message"])


def test_an_answer_for_the_session_is_asked_for_once(state: Path) -> None:
    with on_terminal("looks", "--state", state) as chat:
        chat.until("> ")
        chat.type("look\n")
        chat.until("y/N/a")
        chat.until("> ")
        chat.type("a\n")
        chat.until("[find: allowed]")
        chat.until("y/N/a")  # of the same batch: it was asked before the answer
        chat.until("> ")
        chat.type("y\n")
        chat.until("the answer")
        chat.until("> ")
        chat.type("\x04")
        assert chat.ended() == 0
    assert results(state) == [False, False]


def test_input_that_nobody_types_is_asked_nothing(state: Path) -> None:
    with on_pipes("looks", "--state", state) as chat:
        chat.type("look\n/quit\n")
        chat.until("the answer")
        assert chat.ended() == 0
        assert "y/N" not in chat.shown
    assert results(state) == [True, True]

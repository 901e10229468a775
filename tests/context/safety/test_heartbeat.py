"""Heartbeats: the pair goes when nothing was said, and stays when something was."""

from __future__ import annotations

import pytest

from helpers_messages import call, items, says, user
from perdure.context.safety.heartbeat import QUIET, drop_silent_heartbeats

ASK = "Look at HEARTBEAT.md. If nothing needs attention, reply HEARTBEAT_OK."


@pytest.mark.parametrize(
    "ack",
    ["HEARTBEAT_OK", " **HEARTBEAT_OK** ", "`HEARTBEAT_OK`.", "HEARTBEAT_OK all calm", "Fine. HEARTBEAT_OK"],
)
def test_a_heartbeat_that_was_only_acknowledged_is_left_out_as_a_pair(ack: str) -> None:
    view = items(user("q"), says("a"), user(ASK), says(ack), user("next"))
    done = drop_silent_heartbeats(view)
    assert [item.entry for item in done.items] == ["e1", "e2", "e5"]
    assert [(line.entry, line.rule) for line in done.lines] == [("e3", QUIET), ("e4", QUIET)]


@pytest.mark.parametrize(
    "answer",
    [
        says("The disk is full."),
        says("HEARTBEAT_OK " + "but " * 100),
        says("HEARTBEAT_OK", call("c")),
        says("I replied HEARTBEAT_OK to it before the disk was full"),
        says("HEARTBEAT_OK", stop="aborted"),
    ],
)
def test_an_answer_that_said_something_stays_with_its_question(answer: object) -> None:
    view = items(user(ASK), answer)  # type: ignore[arg-type]
    assert drop_silent_heartbeats(view).items is view


def test_the_configured_prompt_is_known_by_how_it_begins() -> None:
    view = items(user("Tick: 10:00"), says("HEARTBEAT_OK"))
    assert drop_silent_heartbeats(view).items is view
    assert drop_silent_heartbeats(view, "Tick:").items == ()


def test_a_user_who_speaks_of_heartbeats_is_no_heartbeat() -> None:
    view = items(user("what does HEARTBEAT_OK mean?"), says("HEARTBEAT_OK"))
    assert drop_silent_heartbeats(view).items is view

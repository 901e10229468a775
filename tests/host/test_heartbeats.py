"""Heartbeats look aside: what says nothing leaves nothing, what says something enters the conversation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from helpers_host import (
    INFO,
    KEY,
    Gate,
    Play,
    ask,
    calls,
    hosted,
    messages,
    session_path,
    tells,
    text_of,
    virtual,
)
from perdure.edges.models.reply import fail, say
from perdure.edges.settings import ModelSettings, Settings
from perdure.edges.settings_timers import HeartbeatSettings
from perdure.events import Reply
from perdure.kernel.run import Backend
from perdure.kernel.virtual import VirtualClock

HOUR = 3_600.0
ASIDE = f"{KEY}#heartbeat"


def beating(**more: Any) -> Settings:
    return Settings(heartbeat=HeartbeatSettings(**({"every": "30m", "sessions": (KEY,)} | more)))


def log(folder: Path, event: str) -> list[dict[str, Any]]:
    rows = (folder / "state" / "runtime.log").read_text().splitlines()
    return [row for row in map(json.loads, rows) if row["event"] == event]


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_a_heartbeat_that_says_nothing_changes_no_byte_of_the_session(tmp_path: Path, loop: Backend) -> None:
    play = Play()
    play.then(say("HEARTBEAT_OK"), say("**heartbeat_ok** all quiet"), say("`HEARTBEAT_OK`."), key=ASIDE)
    dear = replace(INFO, price_input=3.0, price_output=15.0)

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, play, clock, settings=beating(), info=dear) as host:
            await ask(host, "hello")
            before = session_path(tmp_path).read_bytes()
            await clock.sleep(1.5 * HOUR)
            assert session_path(tmp_path).read_bytes() == before
            told = host.status()["timers"]
            spent = sum(row["cost_usd"] for row in log(tmp_path, "heartbeat.silent"))
            assert told["heartbeats_done"] == 3
            assert told["heartbeats_cost_usd"] == pytest.approx(spent, abs=1e-5) != 0
            assert (await ask(host, "still there?")).text == "ok 2"

    virtual(main, loop)
    assert len(log(tmp_path, "heartbeat.silent")) == 3
    assert len(play.summaries) == 3  # requests with a purpose of their own
    assert "heartbeat" not in play.bodies[KEY][-1].decode().lower()


def test_a_heartbeat_sees_little_and_may_use_tools(tmp_path: Path) -> None:
    look = tells("look", "the post is here")
    play = Play(*(say(f"answer {n}") for n in range(9)))
    play.then(calls("look"), say("Mail has come."), key=ASIDE)
    (tmp_path / "workspace").mkdir()
    (tmp_path / "workspace" / "HEARTBEAT.md").write_text("# Watch\n- the mail box\n")
    (tmp_path / "workspace" / "AGENTS.md").write_text("A LONG STORY\n" * 50)
    heard: list[tuple[str, str, Reply]] = []

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, play, clock, settings=beating(history=2), tools=[look]) as host:
            host.timers.on_result = lambda *told: heard.append(told)
            for n in range(9):
                await ask(host, f"question {n}")
            await clock.sleep(0.5 * HOUR)
            await ask(host, "what did you say?")

    virtual(main)
    first = json.loads(play.summaries[0])
    asked = json.dumps(first["messages"])
    assert "question 8" in asked
    assert "question 7" not in asked
    system = "".join(block["text"] for block in first["system"])
    assert "the mail box" in system
    assert "A LONG STORY" not in system
    assert look.runs == 1
    texts = [text_of(entry["message"]) for entry in messages(session_path(tmp_path))]
    assert texts[-3] == "Mail has come."
    assert not any("the post is here" in text for text in texts)
    assert "Mail has come." in play.bodies[KEY][-1].decode()
    assert [(key, source, reply.text) for key, source, reply in heard] == [
        (KEY, "heartbeat", "Mail has come.")
    ]


@pytest.mark.parametrize("text", ["", "# Heading\n\n", "<!-- nothing -->\n- [ ]\n*\n"])
def test_an_empty_list_costs_no_model_call(tmp_path: Path, text: str) -> None:
    play = Play()
    (tmp_path / "workspace").mkdir()
    (tmp_path / "workspace" / "HEARTBEAT.md").write_text(text)

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, play, clock, settings=beating()):
            await clock.sleep(2 * HOUR)

    virtual(main)
    assert play.summaries == []
    assert len(log(tmp_path, "heartbeat.skipped")) == 4


def test_a_heartbeat_is_skipped_while_a_turn_runs_and_what_one_says_waits_for_its_end(tmp_path: Path) -> None:
    play = Play()
    settings = replace(beating(timeout_seconds=86_000.0), models=ModelSettings(idle_timeout_seconds=86_000.0))

    async def main(clock: VirtualClock) -> None:
        turn, aside = Gate(clock, say("done")), Gate(clock, say("The cellar is wet."))
        play.then(turn)
        play.then(aside, key=ASIDE)
        async with hosted(tmp_path, play, clock, settings=settings) as host:
            sent = await host.send(KEY, "long work")
            await clock.sleep(HOUR)
            assert host.timers.skipped == 2
            turn.open()
            await sent.reply()
            await aside.arrived()
            await clock.sleep(HOUR)  # never two at once
            again = Gate(clock, say("done, too"))
            play.then(again)
            sent = await host.send(KEY, "more work")
            await again.arrived()
            aside.open()
            await clock.sleep(1)
            again.open()
            await sent.reply()
            await clock.sleep(1)

    virtual(main)
    texts = [text_of(entry["message"]) for entry in messages(session_path(tmp_path))]
    assert texts[-1] == "The cellar is wet."
    assert texts[-3] == "done, too"
    assert {row["why"] for row in log(tmp_path, "heartbeat.skipped")} == {
        "a turn is running",
        "the one before is not over",
    }


def test_a_failing_heartbeat_comes_less_and_less_often(tmp_path: Path) -> None:
    play = Play()
    play.then(*(fail("auth") for _ in range(20)), key=ASIDE)

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, play, clock, settings=beating()):
            await clock.sleep(24 * HOUR)

    virtual(main)
    assert 4 <= len(log(tmp_path, "heartbeat.failed")) <= 6  # not 48
    assert not session_path(tmp_path).exists() or not messages(session_path(tmp_path))


def test_hours_and_off_switch_heartbeats_off(tmp_path: Path) -> None:
    play = Play()
    settings = beating(active_hours="22:00-06:00", timezone="America/New_York")  # 3:00 to 11:00 UTC

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, play, clock, settings=settings) as host:
            await clock.sleep(24 * HOUR)  # from 8:00
            assert 14 <= len(play.summaries) <= 18
            host.timers.reload(Settings())
            before = len(play.summaries)
            await clock.sleep(24 * HOUR)
            assert len(play.summaries) == before

    virtual(main)

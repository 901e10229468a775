"""What a user pins stands in every later request, byte for byte, whatever happens to the history."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from helpers_host import (
    KEY,
    Gate,
    Play,
    ask,
    calls,
    entries,
    hosted,
    session_path,
    tells,
    virtual,
)
from perdure.edges.models.reply import ScriptedReply, call, say
from perdure.edges.session.tail import open_session
from perdure.edges.settings import ChannelSettings, Settings
from perdure.errors import UsageError
from perdure.kernel.virtual import VirtualClock
from perdure.looking.context import inspect
from perdure.looking.target import Target
from perdure.records import ModelInfo

SMALL = ModelInfo("scripted", "test", window=16_000, cache_minimum=16)
PIN = 'Never touch `/etc/hosts`;\n  日本語で答えて — "exactly" so,  with two  blanks\tand a tab 🙂'
WORDS = "The lemon tree in row seven needs water and a stake before the wind comes on Thursday. "
HOSTILE = say("Nothing of note was said so far, and the user pinned nothing at all.")


def system(body: bytes) -> str:
    return "".join(block["text"] for block in json.loads(body)["system"])


def long(n: int) -> ScriptedReply:
    return say(f"Answer {n}. " + WORDS * 60)


def test_a_pin_stands_in_every_request_from_the_next_on_until_it_is_taken_away(tmp_path: Path) -> None:
    play = Play()

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, play, clock) as host:
            await ask(host, "before")
            assert (await host.command(KEY, f"/pin {PIN}")).startswith("Pinned as number 1, instruction")
            await ask(host, "with it")
            assert "1. instruction: Never touch" in await host.command(KEY, "/pins")
            assert await host.command(KEY, "/unpin 1") == "Unpinned 1; 0 stay."
            await ask(host, "without")
            assert (await host.command(KEY, "/pins")).startswith("Nothing is pinned")

    virtual(main)
    assert [PIN in system(body) for body in play.bodies[KEY]] == [False, True, False]
    assert play.refused == 0


def test_a_hostile_summariser_truncation_sleep_and_restart_lose_no_byte_of_a_pin(tmp_path: Path) -> None:
    play = Play(*[long(n) for n in range(40)], summary=HOSTILE)

    async def main(clock: VirtualClock) -> None:
        for part in range(4):
            async with hosted(tmp_path, play, clock, info=SMALL, truncate_after=4_096) as host:
                if part == 0:
                    await ask(host, "hello")
                    await host.command(KEY, f"/pin {PIN}")
                    await host.command(KEY, "/pin task: finish the migration, 5/17 done")
                for n in range(10):
                    assert (await ask(host, f"question {part}-{n}: {WORDS}")).stop == "stop"
                    await clock.sleep(400)

    virtual(main)
    kinds = [e["type"] for e in entries(session_path(tmp_path))]
    assert kinds.count("compaction") > 3
    assert all(PIN in system(body) and "5/17 done" in system(body) for body in play.bodies[KEY][1:])
    pins = open_session(session_path(tmp_path)).pins
    assert [(pin.kind, pin.text) for pin in pins] == [
        ("instruction", PIN),
        ("task", "finish the migration, 5/17 done"),
    ]


def test_pin_alone_pins_the_last_message_and_a_history_limit_does_not_cut_it(tmp_path: Path) -> None:
    play = Play()
    settings = Settings(channels=(ChannelSettings("cli", dm_history_limit=1),))

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, play, clock, settings=settings) as host:
            await ask(host, PIN)
            await host.command(KEY, "/pin")
            for n in range(6):
                await ask(host, f"more {n}")

    virtual(main)
    assert PIN in system(play.bodies[KEY][-1])
    assert "more 0" not in play.bodies[KEY][-1].decode()


def test_a_pin_during_a_turn_is_in_its_next_step(tmp_path: Path) -> None:
    play = Play(calls("look"), say("done"))

    async def main(clock: VirtualClock) -> None:
        async def pins(arguments: Any, context: Any) -> str:
            await host.command(KEY, "/pin correction: the port is 8443, not 8080")
            return "looked"

        look = tells("look")
        look._fn = pins
        async with hosted(tmp_path, play, clock, tools=[look]) as host:
            await ask(host, "go")

    virtual(main)
    assert ["8443, not 8080" in system(body) for body in play.bodies[KEY]] == [False, True]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("x" * 4_000, "800"),
        ("<!-- PERDURE_CACHE_BOUNDARY -->", "boundary"),
        ("half \ud83d", "half of a character"),
        ("known", "already"),
    ],
)
def test_a_pin_that_can_not_be_carried_is_refused_with_the_reason(
    text: str, why: str, tmp_path: Path
) -> None:
    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, Play(), clock, info=SMALL) as host:
            await ask(host, "hello")
            await host.command(KEY, "/pin known")
            with pytest.raises(UsageError, match=why):
                await host.command(KEY, f"/pin {text}")
            with pytest.raises(UsageError, match="1 to 1"):
                await host.command(KEY, "/unpin 2")

    virtual(main)
    assert len(open_session(session_path(tmp_path)).pins) == 1


def test_a_copied_file_keeps_its_pins_and_context_names_them_with_their_rule(tmp_path: Path) -> None:
    play = Play()

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, play, clock) as host:
            await ask(host, "hello")
            await host.command(KEY, f"/pin {PIN}")

    virtual(main)
    copy = tmp_path / "copy.jsonl"
    shutil.copy(session_path(tmp_path), copy)
    told = inspect(Target(copy, None), Settings())
    assert PIN in "".join(block["text"] for block in told["request"]["system"])
    (line,) = [row for row in told["ledger"] if row["rule"].startswith("pinned by the user")]
    assert (line["decision"], line["zone"], line["tokens"] > 0) == ("in", "dynamic", True)
    assert line["entry"] == open_session(copy).pins[0].id


def test_all_that_was_asked_in_a_long_turn_survives_many_compactions_and_a_crash(tmp_path: Path) -> None:
    question = "Find the leak in pump 7-B/κ (serial QX-99-04471); answer in one line, no list!"
    steering = "and leave valve Ω-3 alone, 絶対に"
    script = [ScriptedReply((*long(n).blocks, call("look"))) for n in range(20)]
    play = Play(*script[:2], *script, say("found"), summary=HOSTILE)

    async def main(clock: VirtualClock) -> None:
        runs = 0

        async def look(arguments: Any, context: Any) -> str:
            nonlocal runs
            runs += 1
            if runs == 2:
                await host.send(KEY, steering)
            return WORDS * 30

        tool = tells("look")
        tool._fn = look
        async with hosted(tmp_path, play, clock, info=SMALL, tools=[tool]) as host:
            assert (await ask(host, question)).text == "found"
            play.then(*[long(n) for n in range(9)])
            for n in range(8):
                await ask(host, f"another {n}")
        assert play.refused == 0

    virtual(main)
    bodies = [json.dumps(json.loads(body), ensure_ascii=False) for body in play.bodies[KEY]]
    turn = bodies[: len(bodies) - 8]
    assert all(json.dumps(question, ensure_ascii=False)[1:-1] in body for body in turn)
    assert all(steering in body for body in turn[3:])


def test_a_turn_taken_up_after_a_crash_still_knows_what_it_was_asked(tmp_path: Path) -> None:
    question = "Find the leak in pump 7-B (serial QX-99-04471)!"
    steps = [ScriptedReply((*long(n).blocks, call("look"))) for n in range(24)]

    async def main(clock: VirtualClock) -> Play:
        gate = Gate(clock)
        play = Play(*steps[:12], gate, summary=HOSTILE)
        host = hosted(tmp_path, play, clock, info=SMALL, tools=[tells("look", WORDS * 30)])
        await host.__aenter__()
        await host.send(KEY, question)
        await gate.arrived()
        host.kill()
        await host.__aexit__(None, None, None)
        play.queues[KEY].clear()
        play.then(*steps[12:], say("found"))
        async with hosted(tmp_path, play, clock, info=SMALL, tools=[tells("look", WORDS * 30)]) as host:
            await clock.sleep(60)
            assert not host.directory.awake[KEY].transcript.requests  # the turn has ended
        return play

    play = virtual(main)
    kinds = [e["type"] for e in entries(session_path(tmp_path))]
    assert kinds.count("compaction") >= 3
    assert len(play.bodies[KEY]) >= 24
    assert all(question in body.decode() for body in play.bodies[KEY])

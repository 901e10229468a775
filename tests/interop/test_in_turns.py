"""The reference program and our host on one file, awake at the same time, crashed, or with copies of it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import helpers_pi as hp
from helpers_cli import run
from helpers_host import (
    KEY,
    Gate,
    Play,
    accepted,
    ask,
    calls,
    entries,
    hosted,
    messages,
    said_by_users,
    session_path,
    tells,
    virtual,
)
from helpers_pi import Pi, ours, theirs
from perdure.edges.models.reply import say
from perdure.edges.session.tail import open_session
from perdure.kernel.virtual import VirtualClock

WORDS = "The lemon tree in row seven needs water and a stake before the wind comes on Thursday. "
THEIRS = hp.assistant(f"pi says so {WORDS}", model="test", provider="scripted")


async def killed(folder: Path, clock: VirtualClock, *, waiting: int = 0) -> None:
    """A host that dies in its second turn, with letters waiting."""
    gate = Gate(clock, say("too late"))
    host = hosted(folder, Play(say(f"one {WORDS}"), calls("fast"), gate), clock, tools=[tells("fast")])
    await host.__aenter__()
    await ask(host, f"first {WORDS}")
    await host.send(KEY, f"go {WORDS}", mid="go")
    await gate.arrived()
    for n in range(waiting):
        await host.send(KEY, f"waits {n}", mid=f"w{n}")
    host.kill()
    await host.__aexit__(None, None, None)


async def rested(folder: Path, play: Play, clock: VirtualClock) -> None:
    """A host takes up what there is."""
    async with hosted(folder, play, clock, tools=[tells("fast")]) as host:
        await clock.sleep(30)
        await ask(host, "and on")
    assert play.refused == 0
    accepted(play.bodies[KEY])


def compaction_of(pi: Pi, path: Path, keep: int) -> list[Any]:
    """The compaction that pi's planner wants."""
    plan = pi.look(path, keep=[keep])["plans"][0]
    return ["appendCompaction", "Summed up by pi.", plan["firstKeptEntryId"], plan["tokensBefore"]]


# --- while a host is awake ------------------------------------------------------------------------


@pytest.mark.parametrize("keep", [1, 40, 100_000])
def test_a_compaction_by_pi_while_our_session_is_awake_becomes_our_view(
    keep: int, tmp_path: Path, pi: Pi
) -> None:
    async def main(clock: VirtualClock) -> None:
        play = Play(*[say(f"answer {n} {WORDS}") for n in range(6)])
        async with hosted(tmp_path, play, clock) as host:
            for n in range(4):
                await ask(host, f"question {n} {WORDS}")
            path = session_path(tmp_path)
            pi.append(path, hp.user(f"to pi {WORDS}"), THEIRS)
            pi.append(path, compaction_of(pi, path, keep))
            seen = ours(path)
            assert theirs(pi.look(path)) == seen
            await ask(host, "who spoke?")
            assert ours(path)["ids"][: len(seen["ids"])] == seen["ids"]
            sent = json.dumps(play.last()["messages"])
            assert "Summed up by pi." in sent
            assert ("question 0" in sent) == (keep == 100_000)
            await ask(host, "and on")
            assert theirs(pi.look(path)) == ours(path)
        assert play.refused == 0

    virtual(main)
    assert run("doctor", session_path(tmp_path)).code == 0


def test_what_pi_appends_in_the_middle_of_our_turn_stands_in_the_view_of_both(tmp_path: Path, pi: Pi) -> None:
    async def main(clock: VirtualClock) -> None:
        gate = Gate(clock)
        play = Play(say("one"), calls("slow"), say("after it"), say("next"))
        async with hosted(tmp_path, play, clock, tools=[gate.tool("slow")]) as host:
            await ask(host, "first")
            sent = await host.send(KEY, "go")
            await gate.arrived()
            await host.send(KEY, "waits")
            path = session_path(tmp_path)
            pi.append(path, hp.user("to pi"), THEIRS)
            gate.open()
            await sent.reply()
            assert theirs(pi.look(path)) == ours(path)
            await ask(host, "next")
            assert theirs(pi.look(path)) == ours(path)
        assert play.refused == 0
        accepted(play.bodies[KEY])
        assert "pi says so" in json.dumps(play.last()["messages"])

    virtual(main)


@pytest.mark.parametrize("keep", [1, 40])
def test_a_compaction_by_pi_in_the_middle_of_our_tool_batch_costs_no_refusal(
    keep: int, tmp_path: Path, pi: Pi
) -> None:
    async def main(clock: VirtualClock) -> None:
        gate = Gate(clock)
        play = Play(say(f"one {WORDS}"), calls("fast", "slow"), say("after it"), say("next"))
        async with hosted(tmp_path, play, clock, tools=[tells("fast"), gate.tool("slow")]) as host:
            await ask(host, f"first {WORDS}")
            sent = await host.send(KEY, f"go {WORDS}")
            await gate.arrived()
            path = session_path(tmp_path)
            pi.append(path, hp.user("to pi"), THEIRS)
            pi.append(path, compaction_of(pi, path, keep))
            gate.open()
            assert (await sent.reply()).text == "after it"
            assert theirs(pi.look(path)) == ours(path)
            await ask(host, "next")
            assert theirs(pi.look(path)) == ours(path)
        assert play.refused == 0
        accepted(play.bodies[KEY])
        assert "Summed up by pi." in json.dumps(play.last()["messages"])

    virtual(main)


def test_a_branch_that_pi_begins_elsewhere_does_not_take_our_session_along(tmp_path: Path, pi: Pi) -> None:
    async def main(clock: VirtualClock) -> None:
        play = Play()
        async with hosted(tmp_path, play, clock) as host:
            await ask(host, "first")
            await ask(host, "second")
            path = session_path(tmp_path)
            pi.append(path, ["branch", messages(path)[1]["id"]], hp.user("to pi"), THEIRS)
            await ask(host, "third")
            assert theirs(pi.look(path)) == ours(path)
            assert "pi says so" not in json.dumps(play.last()["messages"])
            assert said_by_users(path) == ["first", "second", "to pi", "third"]

    virtual(main)


# --- after a crash --------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", [None, 1, 40])
def test_letters_that_waited_when_we_died_are_answered_once_after_pi_went_on_and_compacted(
    keep: int | None, tmp_path: Path, pi: Pi
) -> None:
    async def main(clock: VirtualClock) -> None:
        await killed(tmp_path, clock, waiting=2)
        path = session_path(tmp_path)
        pi.append(path, hp.user(f"to pi {WORDS}"), THEIRS)
        if keep is not None:
            pi.append(path, compaction_of(pi, path, keep))
            pi.append(path, hp.user("and after"), THEIRS)
        assert theirs(pi.look(path)) == ours(path)
        play = Play()
        await rested(tmp_path, play, clock)
        await rested(tmp_path, play, clock)
        assert theirs(pi.look(path)) == ours(path)
        told = said_by_users(path)
        assert [told.count(f"waits {n}") for n in range(2)] == [1, 1]
        assert run("doctor", path).code == 0

    virtual(main)


def test_a_first_message_without_an_answer_survives_pi_which_writes_all_entries_again(
    tmp_path: Path, pi: Pi
) -> None:
    async def main(clock: VirtualClock) -> None:
        gate = Gate(clock)
        host = hosted(tmp_path, Play(gate), clock)
        await host.__aenter__()
        await host.send(KEY, "first", mid="m")
        await gate.arrived()
        await host.send(KEY, "waits", mid="w")
        host.kill()
        await host.__aexit__(None, None, None)
        path = session_path(tmp_path)
        pi.append(path, hp.user("to pi"), THEIRS)
        assert sum(entry["type"] == "session" for entry in entries(path)) == 2
        assert theirs(pi.look(path)) == ours(path)
        told = run("doctor", path, "--json").json
        assert {p["kind"] for p in told["problems"] if p["severity"] == "damage"} == {"repeated"}
        play = Play()
        async with hosted(tmp_path, play, clock) as host:
            await clock.sleep(30)
            assert (await host.send(KEY, "first", mid="m")).receipt.repeated
            assert (await host.send(KEY, "waits", mid="w")).receipt.repeated
            await ask(host, "and on")
        assert play.refused == 0
        asked = [m["content"] for m in play.last()["messages"] if m["role"] == "user"]
        assert [json.dumps(asked).count(f'"{text}"') for text in ("first", "waits", "to pi")] == [1, 1, 1]
        assert theirs(pi.look(path)) == ours(path)

    virtual(main)


# --- copies ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["fork", "branched"])
def test_a_copy_that_pi_makes_has_our_context_and_answers_no_letter_again(
    how: str, tmp_path: Path, pi: Pi
) -> None:
    virtual(lambda clock: killed(tmp_path, clock, waiting=2))
    path = session_path(tmp_path)
    if how == "fork":
        copy = pi.fork(path, tmp_path / "copies")
    else:
        leaf = ours(path)["ids"][-1]
        (made,) = pi.append(path, ["createBranchedSession", leaf])
        copy = Path(made)
    assert open_session(path).pending
    before, after = ours(path), ours(copy)
    assert (after["ids"], after["messages"]) == (before["ids"], before["messages"])
    assert theirs(pi.look(copy)) == after
    assert open_session(copy).pending == ()
    assert run("doctor", copy).code == 0

    there = tmp_path / "there"
    home = session_path(there)
    home.parent.mkdir(parents=True)
    shutil.move(copy, home)
    virtual(lambda clock: rested(there, Play(), clock))
    assert said_by_users(home)[-1] == "and on"
    assert not [text for text in said_by_users(home) if text.startswith("waits")]

"""Files that our host writes, opened, planned and continued by the reference program, and again by us."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import cache
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
    notices,
    session_path,
    tells,
    virtual,
)
from helpers_pi import Pi, ours, theirs, without_ours
from perdure.actors import transcript
from perdure.edges.models.reply import ScriptedReply, fail, say
from perdure.edges.session import lines
from perdure.kernel.virtual import VirtualClock
from perdure.records import Bash, Image, ModelInfo, Text, Thinking

SMALL = ModelInfo("scripted", "test", window=16_000, cache_minimum=16)
OTHER = ModelInfo("scripted", "other", window=100_000, cache_minimum=16)
WORDS = "The lemon tree in row seven needs water and a stake before the wind comes on Thursday. "
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
CJK = "把柠檬树浇水，然后在星期四之前立一根桩。レモンの木に水をやる。레몬나무에 물을 주세요 😀"


def long(n: int) -> ScriptedReply:
    return say(f"Answer {n}. " + WORDS * 80)


# --- what a host may have written -----------------------------------------------------------------


def plain_turns(folder: Path) -> None:
    play = Play(calls("look", "list", text="I look"), say("seen"), say("two"), calls("look"), say("again"))

    async def main(clock: VirtualClock) -> None:
        async with hosted(folder, play, clock, tools=[tells("look", "x" * 900), tells("list")]) as host:
            for n in range(4):
                await ask(host, f"turn {n} {WORDS}")

    virtual(main)


def texts_of_all_kinds(folder: Path) -> None:
    thought = ScriptedReply(
        (Thinking("hm \ud83d", "c2lnbmVk"), Text("cut \udc00 here"), *calls("look").blocks)
    )
    play = Play(thought, say(CJK), say("seen"), say("\u2028 \u0000 \x85 naïve ✓"))

    async def main(clock: VirtualClock) -> None:
        async with hosted(folder, play, clock, tools=[tells("look", f"half \ud800 {CJK}")]) as host:
            await ask(host, f"half a pair \ud83d, {CJK}")
            await ask(host, "", attachments=[Image(PIXEL, "image/png")])
            await ask(host, "a picture", attachments=[Image(PIXEL, "image/png"), Text("\udfff")])
            await host.note(KEY, Bash("echo \ud83d", "\ud83d\n", 1, timestamp=clock.wall_ms()))

    virtual(main)


def messages_that_waited(folder: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        gate = Gate(clock)
        play = Play(calls("slow", "fast"), say("taken"), say("more"))
        async with hosted(folder, play, clock, tools=[gate.tool("slow"), tells("fast")]) as host:
            sent = await host.send(KEY, f"go {WORDS}")
            await gate.arrived()
            await host.send(KEY, f"waits {WORDS}")
            await host.send(KEY, f"waits too {WORDS}")
            gate.open()
            await sent.reply()
            await ask(host, "and on")

    virtual(main)
    assert sum(e.get("customType") == "perdure.inbox" for e in entries(session_path(folder))) == 2


def killed_while_messages_wait(folder: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        gate = Gate(clock)
        play = Play(say("one"), calls("fast", "slow"))
        host = hosted(folder, play, clock, tools=[gate.tool("slow"), tells("fast")])
        await host.__aenter__()
        await ask(host, f"first {WORDS}")
        await host.send(KEY, "go")
        await gate.arrived()
        await host.send(KEY, "waits")
        await host.send(KEY, "waits too")
        host.kill()
        await host.__aexit__(None, None, None)

    virtual(main)
    assert entries(session_path(folder))[-1]["customType"] == "perdure.inbox"


def taken_up_after_a_crash(folder: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        gate = Gate(clock)
        play = Play(say("one"), calls("fast", "slow"), say("taken up"), say("and on"))
        tools = [tells("fast"), gate.tool("slow")]
        host = hosted(folder, play, clock, tools=tools)
        await host.__aenter__()
        await ask(host, f"first {WORDS}")
        await host.send(KEY, "go")
        await gate.arrived()
        host.kill()
        await host.__aexit__(None, None, None)
        async with hosted(folder, play, clock, tools=tools) as host:
            await clock.sleep(5)
            await ask(host, "next")

    virtual(main)
    made = [e.get("customType") for e in entries(session_path(folder))]
    assert {"perdure.owner", "perdure.resume"} <= set(made)


def checkpoints_before_sleep(folder: Path) -> None:
    kept, transcript.LONG_TAIL = transcript.LONG_TAIL, 100

    async def main(clock: VirtualClock) -> None:
        for n in range(4):
            async with hosted(folder, Play(say(f"{n} {WORDS}")), clock) as host:
                await ask(host, f"turn {n} {WORDS}")

    try:
        virtual(main)
    finally:
        transcript.LONG_TAIL = kept
    made = [e.get("customType") for e in entries(session_path(folder))]
    assert made.count("perdure.checkpoint") == 4
    assert made[-1] == "perdure.checkpoint"


def compacted(folder: Path) -> None:
    play = Play(*[long(n) for n in range(8)])

    async def main(clock: VirtualClock) -> None:
        async with hosted(folder, play, clock) as host:
            await host.command(KEY, "/think high")
            for n in range(6):
                await ask(host, f"question {n} {WORDS}")
            assert (await host.command(KEY, "/compact")).startswith("Compacted")
            for n in range(2):
                await ask(host, f"later {n} {WORDS}")

    virtual(main)


def compacted_just_now(folder: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        play = Play(*[long(n) for n in range(8)])
        async with hosted(folder, play, clock) as host:
            for n in range(6):
                await ask(host, f"question {n} {WORDS}")
            assert (await host.command(KEY, "/compact")).startswith("Compacted")
        async with hosted(folder, play, clock) as host:
            await host.command(KEY, "/status")

    virtual(main)
    assert entries(session_path(folder))[-1]["type"] == "compaction"


def overflowed_in_a_turn(folder: Path) -> None:
    script = [ScriptedReply((*long(n).blocks, *calls("look").blocks)) for n in range(20)]

    async def main(clock: VirtualClock) -> None:
        play = Play(*script, say("found"))
        async with hosted(folder, play, clock, info=SMALL, tools=[tells("look", WORDS * 30)]) as host:
            await ask(host, f"find it {WORDS}")
            await ask(host, f"and on {WORDS}")

    virtual(main)
    assert sum(e["type"] == "compaction" for e in entries(session_path(folder))) >= 2


def truncated(folder: Path) -> None:
    play = Play(*[long(n) for n in range(30)])

    async def main(clock: VirtualClock) -> None:
        async with hosted(folder, play, clock, info=SMALL, truncate_after=4_096) as host:
            seen = notices(host)
            await host.command(KEY, "/think low")
            await host.command(KEY, "/name lemons")
            for n in range(24):
                await ask(host, f"question {n} {WORDS}")
                await clock.sleep(10)
            assert sum(n.kind == "truncation" for n in seen) >= 2

    virtual(main)


def another_branch(folder: Path) -> None:
    _branches(folder)


def another_branch_goes_on(folder: Path) -> None:
    _branches(folder)

    async def main(clock: VirtualClock) -> None:
        async with hosted(folder, Play(say("over there")), clock) as host:
            await ask(host, f"elsewhere {WORDS}")

    virtual(main)


def _branches(folder: Path) -> None:
    plain_turns(folder)
    path = session_path(folder)
    target = messages(path)[3]["id"]
    with path.open("ab") as file:
        file.write(lines.branch_line("b" * 16, target, 1_767_700_000_000, 1))


def settings_and_notes(folder: Path) -> None:
    play = Play(say("one"), say("two"), fail("auth"))

    async def main(clock: VirtualClock) -> None:
        more = {"scripted/other": OTHER}
        async with hosted(folder, play, clock, models=more) as host:
            await ask(host, f"first {WORDS}")
            await host.note(KEY, Bash("ls -l", "total 0\n", 0, timestamp=clock.wall_ms()))
            await host.command(KEY, "/name Lemons 柠檬")
            await host.command(KEY, "/think medium")
            await ask(host, f"second {WORDS}")
            await host.note(KEY, Bash("pwd", "/w\n", 0, excluded=True, timestamp=clock.wall_ms()))
            await host.command(KEY, "/model scripted/other")

    virtual(main)


def failed_and_aborted_turns(folder: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        gate = Gate(clock)
        play = Play(fail("auth"), gate, calls("slow"), say("fine"))
        tool = Gate(clock)
        async with hosted(folder, play, clock, tools=[tool.tool("slow")]) as host:
            assert (await ask(host, f"fails {WORDS}")).stop == "error"
            for waits in (gate, tool):
                sent = await host.send(KEY, f"is stopped {WORDS}")
                await waits.arrived()
                await host.abort(KEY)
                assert (await sent.reply()).stop == "aborted"
            await ask(host, "and on")

    virtual(main)


def a_new_session(folder: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        async with hosted(folder, Play(), clock) as host:
            await ask(host, "old")
            await host.command(KEY, "/new")
            await ask(host, "new")

    virtual(main)
    assert "parentSession" in entries(session_path(folder))[0]


STORIES: list[Callable[[Path], None]] = [
    plain_turns,
    texts_of_all_kinds,
    messages_that_waited,
    killed_while_messages_wait,
    taken_up_after_a_crash,
    checkpoints_before_sleep,
    compacted,
    compacted_just_now,
    overflowed_in_a_turn,
    truncated,
    another_branch,
    another_branch_goes_on,
    settings_and_notes,
    failed_and_aborted_turns,
    a_new_session,
]
each_story = pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)


@pytest.fixture(scope="session")
def _told(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Callable[[Path], None]], Path]:
    @cache
    def folder(story: Callable[[Path], None]) -> Path:
        made = tmp_path_factory.mktemp(story.__name__)
        story(made)
        return made

    return folder


@pytest.fixture
def path(
    story: Callable[[Path], None], _told: Callable[[Callable[[Path], None]], Path], tmp_path: Path
) -> Path:
    """The session file of a story, in a folder of this test's own."""
    shutil.copytree(_told(story), tmp_path, dirs_exist_ok=True)
    return session_path(tmp_path)


# --- what must hold for each ----------------------------------------------------------------------


@each_story
def test_pi_opens_a_file_of_ours_with_our_context_and_plans_as_if_we_left_no_facts(
    story: Callable[[Path], None], path: Path, tmp_path: Path, pi: Pi
) -> None:
    mine, seen = ours(path), pi.look(path)
    assert theirs(seen) == mine
    assert len(seen["footer"]) == 2
    bare = without_ours(path, tmp_path / "bare.jsonl")
    leaf = mine["ids"][-1] if story is another_branch else None
    alone = pi.look(bare, leaf=leaf)
    assert theirs(alone) == mine
    assert seen["plans"] == alone["plans"]
    assert seen["llm"] == alone["llm"]


@each_story
def test_what_pi_appends_continues_our_view_and_ours_goes_behind_it(
    path: Path, tmp_path: Path, pi: Pi
) -> None:
    before = ours(path)
    made = pi.append(
        path, hp.user(f"from pi {CJK}"), hp.assistant("pi says so", model="test", provider="scripted")
    )
    after = ours(path)
    assert after["ids"] == [*before["ids"], *made]
    assert after["messages"][:-2] == before["messages"]
    assert theirs(pi.look(path)) == after
    assert run("doctor", path).code == 0

    play = Play(say("ours again"), *[say("more")] * 3)

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, play, clock) as host:
            assert (await ask(host, "who spoke?")).stop == "stop"

    virtual(main)
    assert play.refused == 0
    accepted(play.bodies[KEY])
    assert "pi says so" in json.dumps(play.last()["messages"])
    last = ours(path)
    assert last["ids"][: len(after["ids"])] == after["ids"]
    assert theirs(pi.look(path)) == last
    assert run("doctor", path).code == 0


@each_story
def test_a_line_of_ours_that_pi_goes_on_behind_costs_it_one_summary_call_at_most(
    path: Path, tmp_path: Path, pi: Pi
) -> None:
    pi.append(path, hp.user(f"from pi {WORDS}"), hp.assistant(f"pi says so {WORDS}"))
    keep = (1, 30, 60, 100, 200, 400, 4_000)
    seen = pi.look(path, keep=keep)["plans"]
    alone = pi.look(without_ours(path, tmp_path / "bare.jsonl"), keep=keep)["plans"]
    own = {e["id"] for e in entries(path) if str(e.get("customType")).startswith("perdure.")}
    for one, other in zip(seen, alone, strict=True):
        if one != other:  # the cut stands at our line, which pi takes for the middle of a turn
            assert one["firstKeptEntryId"] in own
            assert summed_up(one) == summed_up(other)
            assert (one["isSplitTurn"], other["isSplitTurn"]) == (True, False)


def summed_up(plan: dict[str, Any]) -> list[str]:
    return [*plan["messagesToSummarize"], *plan["turnPrefixMessages"]]


def planned(seen: dict[str, Any]) -> list[Any]:
    return [plan and plan["firstKeptEntryId"] for plan in seen["plans"]]


def test_the_planner_has_something_to_plan_in_these_stories(tmp_path: Path, pi: Pi) -> None:
    plain_turns(tmp_path)
    assert len(set(planned(pi.look(session_path(tmp_path))))) == 3


def test_pi_sees_that_we_have_just_compacted(tmp_path: Path, pi: Pi) -> None:
    compacted_just_now(tmp_path)
    assert planned(pi.look(session_path(tmp_path))) == [None] * 3

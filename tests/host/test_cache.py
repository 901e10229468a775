"""The prompt cache as a contract: what is not disturbed is read whole, call after call, for weeks."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from helpers_cache import INFO, KEY, LONG, Lab, Meddler, events, in_lab
from helpers_host import ask, calls, tells
from perdure.edges.models.reply import fail, say
from perdure.edges.settings import CacheSettings, GuardSettings, PruningSettings, Settings

OTHER_KEY = "agent:main:cli:dm:other"
TURNS = 500


def answers(path: Path) -> list[dict[str, Any]]:
    """Each answer of a session's file: tokens it read and left cached, when, and behind which summary."""
    found, summaries, asked = [], 0, 0
    for row in map(json.loads, path.read_bytes().splitlines()):
        summaries += row["type"] == "compaction"
        if row["type"] != "message":
            continue
        message = row["message"]
        if message["role"] == "assistant" and message["stopReason"] not in ("error", "aborted"):
            usage = message["usage"]
            found.append(
                {
                    "read": usage["cacheRead"],
                    "left": usage["cacheRead"] + usage["cacheWrite"],
                    "asked": asked,
                    "summaries": summaries,
                }
            )
        asked = message["timestamp"]
    return found


def unread(path: Path) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Neighbouring calls, no summary between them and less than five minutes apart, of which the second did
    not read all that the first had left in the cache.
    """
    told = answers(path)
    return [
        (a, b)
        for a, b in pairwise(told)
        if a["summaries"] == b["summaries"] and b["asked"] - a["asked"] < 299_000 and b["read"] != a["left"]
    ]


def test_five_hundred_turns_break_the_cache_by_compactions_and_rests_alone(tmp_path: Path) -> None:
    (tmp_path / "workspace").mkdir()
    tools = [tells(name, LONG[:240]) for name in ("look", "peek", "read_all")]

    async def main(lab: Lab) -> None:
        unguarded = Settings(guard=GuardSettings(total=1.0, overflow=1.0))
        await lab.start(tools=tools, info=replace(INFO, window=24_000), most_awake=1, settings=unguarded)
        rests = 0
        for n in range(TURNS):
            if n % 7 == 3:
                lab.play.then(calls("look", "peek"), calls(*["read_all"] * (n % 26 + 1)), say("done"))
            if n % 50 == 20:  # the other session takes its place: it sleeps and wakes
                await ask(lab.host, "hello", OTHER_KEY)
            if n % 125 == 60:
                await lab.start()
            if n % 100 == 90:
                await lab.clock.sleep(400)
                rests += 1
            reply = await lab.say(LONG[: 200 + 37 * (n % 11)])
            assert reply.stop == "stop"
        told = [event for event in lab.breaks if event["session"] == KEY]
        assert {event["cause"] for event in told} == {"compaction", "expired"}
        assert sum(event["cause"] == "expired" for event in told) == rests
        compactions = sum(event["cause"] == "compaction" for event in told)
        assert compactions <= answers(lab.path)[-1]["summaries"]

    in_lab(tmp_path, main)
    assert len(answers(tmp_path / "state/sessions/main/agent+main+cli+dm+local.jsonl")) > TURNS
    assert unread(tmp_path / "state/sessions/main/agent+main+cli+dm+local.jsonl") == []


# --- keeping it alive -----------------------------------------------------------------------------

KEEPING = Settings(cache=CacheSettings(keep_alive="auto"))
PAUSE = 800.0  # seconds; two refreshes cover them


async def with_a_rhythm(lab: Lab, turns: int = 5) -> None:
    for _ in range(turns):
        await lab.clock.sleep(PAUSE)
        await lab.say()


def test_a_session_with_a_rhythm_is_kept_warm_and_nothing_of_it_is_in_the_transcript(tmp_path: Path) -> None:
    (tmp_path / "workspace").mkdir()

    async def main(lab: Lab) -> None:
        await lab.start(settings=KEEPING)
        await with_a_rhythm(lab)
        assert {event["cause"] for event in lab.breaks} == {"expired"}  # until there is a rhythm
        told, kept = len(lab.breaks), len(events(lab.folder, "cache.kept"))
        assert kept >= 2
        await with_a_rhythm(lab)
        assert len(lab.breaks) == told
        assert len(events(lab.folder, "cache.kept")) == kept + 10
        assert all(
            event["read"] > 1_000 and not event["written"] for event in events(lab.folder, "cache.kept")
        )
        (row,) = lab.host.status(deep=True)["sessions"]
        assert row["cache"]["keep_alive"]["refreshes"] == kept + 10
        assert row["cache"]["keep_alive"]["cost_usd"] > 0
        assert row["cache"]["keep_alive"]["keep_usd"] < row["cache"]["keep_alive"]["rewrite_usd"]
        assert row["cache"]["calls"] == 10
        refreshes = lab.play.bodies[f"{KEY}"]
        assert len(refreshes) == 10, "a refresh is no request of the session's"

    in_lab(tmp_path, main)
    assert len(answers(tmp_path / "state/sessions/main/agent+main+cli+dm+local.jsonl")) == 10


def test_refreshes_end_when_the_next_message_is_overdue(tmp_path: Path) -> None:
    (tmp_path / "workspace").mkdir()

    async def main(lab: Lab) -> None:
        await lab.start(settings=KEEPING)
        await with_a_rhythm(lab)
        before = len(events(lab.folder, "cache.kept"))
        await lab.clock.sleep(86_400)
        assert len(events(lab.folder, "cache.kept")) == before + 2

    in_lab(tmp_path, main)


@pytest.mark.parametrize(("away", "refreshes"), [(30.0, 2), (3_600.0, 0)])
def test_after_a_restart_a_cache_is_kept_if_there_is_still_one(
    tmp_path: Path, away: float, refreshes: int
) -> None:
    (tmp_path / "workspace").mkdir()

    async def main(lab: Lab) -> None:
        await lab.start(settings=KEEPING)
        await with_a_rhythm(lab)
        before = len(events(lab.folder, "cache.kept"))
        await lab.stop()
        await lab.clock.sleep(away)
        await lab.start(settings=KEEPING)
        await lab.host.command(KEY, "/status")
        await lab.clock.sleep(86_400)
        assert len(events(lab.folder, "cache.kept")) == before + refreshes

    in_lab(tmp_path, main)


def test_a_refresh_that_can_not_be_the_same_bytes_is_not_sent(tmp_path: Path) -> None:
    (tmp_path / "workspace").mkdir()

    async def main(lab: Lab) -> None:
        engine = Meddler()
        await lab.start(settings=KEEPING, engine=engine)
        await with_a_rhythm(lab)
        before = len(events(lab.folder, "cache.kept"))
        engine.addition = "Something else."
        await lab.clock.sleep(PAUSE)
        assert len(events(lab.folder, "cache.kept")) == before
        assert "byte for byte" in events(lab.folder, "cache.not_kept")[-1]["why"]

    in_lab(tmp_path, main)


def test_a_refresh_that_fails_is_told_and_is_the_last_of_its_rest(tmp_path: Path) -> None:
    (tmp_path / "workspace").mkdir()

    async def main(lab: Lab) -> None:
        await lab.start(settings=KEEPING)
        await with_a_rhythm(lab)
        before = len(events(lab.folder, "cache.kept"))
        lab.play.then(fail("overloaded"), key=f"{KEY}#keep")
        await lab.clock.sleep(PAUSE)
        assert len(events(lab.folder, "cache.kept")) == before
        assert "verloaded" in events(lab.folder, "cache.not_kept")[-1]["why"]
        assert (await lab.say()).stop == "stop"

    in_lab(tmp_path, main)


def test_a_cache_is_let_go_where_nobody_asked_to_keep_it(tmp_path: Path) -> None:
    (tmp_path / "workspace").mkdir()

    async def main(lab: Lab) -> None:
        await lab.start()
        await with_a_rhythm(lab)
        assert events(lab.folder, "cache.kept") == events(lab.folder, "cache.not_kept") == []
        (row,) = lab.host.status(deep=True)["sessions"]
        assert (row["cache"]["keep_alive"]["on"], row["cache"]["keep_alive"]["worth_it"]) == (False, True)

    in_lab(tmp_path, main)


def test_a_watch_that_is_off_costs_and_tells_nothing(tmp_path: Path) -> None:
    (tmp_path / "workspace").mkdir()

    async def main(lab: Lab) -> None:
        engine = Meddler()
        await lab.start(settings=Settings(cache=CacheSettings(watch=False)), engine=engine)
        for n in range(5):
            engine.addition = f"It is 10:0{n}."
            await lab.say()
        assert lab.breaks == []
        (row,) = lab.host.status(deep=True)["sessions"]
        assert row["cache"] == {}
        assert b'"sent"' not in lab.path.read_bytes()

    in_lab(tmp_path, main)


# --- what is shortened is told --------------------------------------------------------------------


def test_pruning_and_guard_tell_once_what_they_did_and_how_to_read_it_again(tmp_path: Path) -> None:
    (tmp_path / "workspace").mkdir()
    eager = PruningSettings(
        soft_trim_ratio=0.01, hard_clear=False, keep_last_assistants=1, deny_tools=("p*",), allow_tools=("*",)
    )

    async def main(lab: Lab) -> None:
        tools = [tells("look", LONG * 2), tells("peek", LONG * 2)]
        await lab.start(settings=Settings(pruning=eager), tools=tools, info=replace(INFO, window=40_000))
        lab.play.then(calls("look", "peek"), say("seen"))
        await lab.say()
        await lab.say()
        await lab.clock.sleep(400)
        await lab.say()
        await lab.say()
        (told,) = events(lab.folder, "context.pruned")
        assert (told["results"], told["rules"]) == (1, {"prune.soft": 1})
        look, peek = lab.play.last()["messages"][2]["content"]
        assert f"`recall {told['entries'][0]}` reads them" in look["content"][0]["text"]
        assert peek["content"][0]["text"] == LONG * 2
        assert events(lab.folder, "context.shortened") == []

    in_lab(tmp_path, main)


def test_the_guard_tells_how_many_results_it_shortened_in_a_request(tmp_path: Path) -> None:
    (tmp_path / "workspace").mkdir()

    async def main(lab: Lab) -> None:
        await lab.start(tools=[tells("dump", "line\n" * 9_000)], info=replace(INFO, window=24_000))
        lab.play.then(calls("dump", "dump", "dump"), say("read"))
        await lab.say("go")
        (told,) = events(lab.folder, "context.shortened")
        assert told["results"] == len(told["entries"]) == 3
        assert sum(told["rules"].values()) == 3
        for result in lab.play.last()["messages"][2]["content"]:
            assert "`recall " in result["content"][0]["text"]
        await lab.say("and on")
        assert sum(event["turn"] == told["turn"] for event in events(lab.folder, "context.shortened")) == 1

    in_lab(tmp_path, main)


def test_a_result_counts_as_old_by_the_time_of_its_answer_asleep_or_awake(tmp_path: Path) -> None:
    """A view must not depend on whether the session slept meanwhile."""
    eager = Settings(pruning=PruningSettings(soft_trim_ratio=0.01, hard_clear=False, keep_last_assistants=1))

    def sent(folder: Path, *, sleeps: bool) -> list[bytes]:
        (folder / "workspace").mkdir(parents=True)
        bodies: list[bytes] = []

        async def main(lab: Lab) -> None:
            tools = [tells("look", LONG * 2)]
            await lab.start(settings=eager, tools=tools, info=replace(INFO, window=40_000), most_awake=1)
            lab.play.then(calls("look"), say("seen"))
            await lab.say()
            await lab.say()
            if sleeps:
                await ask(lab.host, "hello", OTHER_KEY)
            await lab.clock.sleep(400)
            await lab.say()
            bodies.extend(lab.play.bodies[KEY])

        in_lab(folder, main)
        return bodies

    awake, asleep = sent(tmp_path / "a", sleeps=False), sent(tmp_path / "b", sleeps=True)
    assert b"Tool result trimmed" in awake[-1] or b"more characters truncated" in awake[-1]
    assert [json.loads(a)["messages"][1:2] for a in awake] == [json.loads(b)["messages"][1:2] for b in asleep]
    one, other = (json.dumps(json.loads(body[-1])["messages"][2]) for body in (awake, asleep))
    assert len(one) == len(other) < len(LONG)

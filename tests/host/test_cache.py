"""The prompt cache as a contract: what is not disturbed is read whole, call after call, for weeks."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from helpers_cache import INFO, KEY, LONG, Lab, in_lab
from helpers_host import ask, calls, tells
from perdure.edges.models.reply import say
from perdure.edges.settings import GuardSettings, Settings

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

"""Reported faults of prompt caches, each as a running session that must not have it."""

from __future__ import annotations

import json
from hashlib import sha256
from itertools import pairwise, permutations
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from helpers_cache import INFO, KEY, LONG, Lab, Meddler, events, in_lab
from helpers_cases import case
from helpers_host import calls, tells
from helpers_messages import SONNET, call, items, result, says, user
from perdure.context.cache.contract import MAX_MARKS
from perdure.context.environment import resolve
from perdure.context.numbers import CLEARED_PLACEHOLDER, limits
from perdure.context.policy import policy_for
from perdure.context.prompt.boundary import BOUNDARY
from perdure.context.wire import render
from perdure.edges.models.reply import fail, say
from perdure.edges.settings import PruningSettings, Settings
from perdure.records import ToolSpec

MINUTE, DAY = 60.0, 86_400.0


def bodies(lab: Lab) -> list[dict[str, Any]]:
    """The session's requests, cache marks left out."""
    found = []
    for raw in lab.play.bodies[KEY]:
        body = json.loads(raw)
        for block in [*body["system"], *(b for m in body["messages"] for b in m["content"])]:
            block.pop("cache_control", None)
        found.append(body)
    return found


def goes_on(before: dict[str, Any], after: dict[str, Any]) -> bool:
    """Whether the second request begins with the first, tools and system included."""
    same = all(before[part] == after[part] for part in ("model", "tools", "system"))
    return same and after["messages"][: len(before["messages"])] == before["messages"]


def run(tmp_path: Path, main: Any) -> None:
    (tmp_path / "workspace").mkdir()
    in_lab(tmp_path, main)


def test_ca01_the_clock_stands_in_no_prompt_and_in_no_earlier_message(tmp_path: Path) -> None:
    assert "Clock text" in case("CA01")["symptom"]

    async def main(lab: Lab) -> None:
        await lab.start()
        for pause in (0.0, MINUTE, DAY):
            await lab.clock.sleep(pause)
            await lab.say("What is new?")
        one, two, three = bodies(lab)
        assert goes_on(one, two)
        assert goes_on(two, three)
        assert "2026" not in json.dumps(three)

    run(tmp_path, main)


def test_ca02_no_figure_that_changes_by_the_turn_is_sent_and_status_shows_them(tmp_path: Path) -> None:
    assert "Usage/cost" in case("CA02")["symptom"]

    async def main(lab: Lab) -> None:
        await lab.start()
        await lab.say()
        lab.play.then(fail("overloaded"), calls("look"), say("seen"))
        await lab.say()
        await lab.say()
        told = bodies(lab)
        assert all(goes_on(a, b) for a, b in pairwise(told))
        assert "context " in await lab.host.command(KEY, "/status")
        (row,) = lab.host.status(deep=True)["sessions"]
        assert 0 < row["cache"]["read"] < row["cache"]["prompt"]
        assert row["view_tokens"] > 0

    run(tmp_path, main)


def test_ca03_tools_have_one_order_and_one_schema_however_their_servers_connect() -> None:
    assert "connection completion" in case("CA03")["symptom"]
    schemas = (
        b'{"type":"object","properties":{"b":{},"a":{}}}',
        b'{"properties":{"a":{},"b":{}},"type":"object"}',
    )
    names = ("mcp__a__z", "mcp__a__a", "mcp__b__m", "read", "exec")
    seen = set()
    for n, order in enumerate(permutations(names)):
        tools = tuple(ToolSpec(name, "Does it.", schemas[n % 2]) for name in order)
        env = resolve("s", SONNET, f"system\n{BOUNDARY}\n", tools, limits(200_000))
        body = render(
            items(user("go")), system=env.system, tools=env.tools, model=SONNET, policy=policy_for(SONNET),
            max_tokens=9,
        )  # fmt: skip
        seen.add(sha256(json.dumps(json.loads(body)["tools"]).encode()).hexdigest())
    assert len(seen) == 1


@pytest.mark.parametrize("tools", [0, 1, 30])
def test_ca04_marks_are_four_at_most_with_the_boundary_first_and_the_newest_last(tools: int) -> None:
    assert "add up to five" in case("CA04")["symptom"]
    specs = tuple(ToolSpec(f"t{n}", "Does it.", b'{"type":"object"}') for n in range(tools))
    plugin = user("A plugin's note.")
    steps = [m for n in range(30) for m in (says(call(f"c{n}", "t0"), stop="toolUse"), result(f"c{n}"))]
    view = items(user("go"), *steps, says("on"), plugin, says("yes"), user("and on"))
    bodies = [
        render(
            view, system=f"stable\n{BOUNDARY}\ndynamic", tools=specs, model=SONNET, policy=policy_for(SONNET),
            max_tokens=9,
        )
        for _ in range(2)
    ]  # fmt: skip
    assert bodies[0] == bodies[1]
    body = json.loads(bodies[0])
    assert bodies[0].count(b"cache_control") == MAX_MARKS
    assert "cache_control" in body["system"][0]
    assert "cache_control" in body["messages"][-1]["content"][-1]


def test_ca06_what_a_cold_cache_let_prune_stays_pruned_byte_for_byte(tmp_path: Path) -> None:
    assert "prefix flips twice" in case("CA06")["symptom"]

    async def main(lab: Lab) -> None:
        eager = PruningSettings(
            soft_trim_ratio=0.01, hard_clear_ratio=0.01, min_chars=0, keep_last_assistants=1
        )
        tools = [tells("look", LONG * 2)]
        await lab.start(settings=Settings(pruning=eager), tools=tools, info=replace(INFO, window=40_000))
        lab.play.then(calls("look"), say("seen"))
        await lab.say("look")
        await lab.say("and?")
        await lab.clock.sleep(6 * MINUTE)
        lab.play.then(calls("look"), say("seen"))
        await lab.say("again")  # two requests of one turn: the first prunes, the second is warm
        await lab.start()
        await lab.say("after a restart")
        sent = [json.dumps(body["messages"][2]) for body in bodies(lab)[1:]]
        whole, pruned = sent[:2], sent[2:]
        assert len({*whole}) == len({*pruned}) == 1
        assert CLEARED_PLACEHOLDER not in whole[0]
        assert CLEARED_PLACEHOLDER in pruned[0]
        assert "recall" in pruned[0]
        second = [json.dumps(body["messages"][8]) for body in bodies(lab)[4:]]
        assert len({*second}) == 1, "nothing more is pruned while the cache is warm"
        (event,) = events(lab.folder, "context.pruned")
        assert (event["results"], event["blanked"], event["placeholder"]) == (1, 1, CLEARED_PLACEHOLDER)
        log = (lab.folder / "state" / "runtime.log").read_text()
        assert sum(CLEARED_PLACEHOLDER in row for row in log.splitlines()) == 1

    run(tmp_path, main)


@pytest.mark.parametrize("name", ["MEMORY.md", "AGENTS.md", "skills/trees/SKILL.md"])
def test_ca08_an_edited_file_shows_when_the_cache_is_cold_or_after_a_compaction(
    name: str, tmp_path: Path
) -> None:
    assert "edited mid-session" in case("CA08")["symptom"]

    async def main(lab: Lab) -> None:
        file = lab.workspace / name
        file.parent.mkdir(parents=True, exist_ok=True)

        def write(word: str) -> None:
            file.write_text(f"---\nname: trees\ndescription: {word}\n---\n{word}\n")

        def shown() -> str:
            return json.dumps(bodies(lab)[-1]["system"])

        write("lemons")
        await lab.start(most_awake=1)
        await lab.say()
        write("quinces")
        await lab.clock.sleep(MINUTE)
        await lab.say()
        await lab.host.command(KEY, "/think off")
        await lab.host.send("agent:main:cli:dm:other", "hello")  # puts ours to sleep
        await lab.say()
        assert "lemons" in shown()
        assert "quinces" not in shown()
        await lab.clock.sleep(6 * MINUTE)
        await lab.say()
        assert "quinces" in shown()
        write("medlars")
        for _ in range(5):
            await lab.say()
        assert "quinces" in shown()
        assert (await lab.host.command(KEY, "/compact")).startswith("Compacted")
        await lab.say()
        assert "medlars" in shown()
        refreshed = [event["why"] for event in events(lab.folder, "context.refreshed")]
        assert refreshed == ["cold", "compaction"]
        told = [event["cause"] for event in lab.breaks if event["session"] == KEY]
        assert told == ["expired", "compaction"]

    run(tmp_path, main)


def test_an_engine_that_writes_the_time_into_the_prompt_is_told_each_turn(tmp_path: Path) -> None:
    """The kind of CA01 that a plugin brings: it can't be kept from it, but it can't hide it."""

    async def main(lab: Lab) -> None:
        engine = Meddler()
        await lab.start(engine=engine)
        for minute in (0, 0, 1, 2, 3):
            engine.addition = f"It is 10:0{minute}."
            await lab.say()
        assert [event["cause"] for event in lab.breaks] == ["clock"] * 3
        assert all("engine" in event["rule"] for event in lab.breaks)

    run(tmp_path, main)

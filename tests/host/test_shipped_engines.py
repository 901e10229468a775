"""Engines that ship, in a host for long: killed, compacted many times, exchanged for each other."""

from __future__ import annotations

import json
import random
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from helpers_crash import Machine
from helpers_engines import agrees, id_of, in_lossless, slot
from helpers_host import (
    KEY,
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
    text_of,
    virtual,
)
from helpers_lossless import lose
from perdure.actors.messages import Sleep
from perdure.contracts import Request
from perdure.edges import disk
from perdure.edges.models.reply import ScriptedReply, say
from perdure.errors import PerdureError
from perdure.host import Host
from perdure.kernel.errors import DeadlineExceeded
from perdure.kernel.virtual import VirtualClock
from perdure.plugins.engines.lossless.store import NAME
from perdure.plugins.shipped import ENGINES
from perdure.records import ModelInfo, ToolCall

TURNS = 102
SMALL = ModelInfo("scripted", "test", window=16_000, cache_minimum=16)
WORDS = "The lemon tree in row seven needs water and a stake before the wind comes on Thursday. "


# --- kills ----------------------------------------------------------------------------------------


def lived(folder: Path, engine: str, at: int | None) -> Machine:
    """A life that ends at call number `at` of those that change the disk, and the next one."""
    folder.mkdir()
    machine = Machine(folder / "state", at)
    asked: list[str] = []

    async def work(host: Host) -> None:
        for n in range(7):
            asked.append(f"blue heron {n}")
            await ask(host, asked[-1])
        await host.command(KEY, "/compact")
        await ask(host, "and now?")

    async def main(clock: VirtualClock) -> None:
        play = Play(*[say(f"Answer {n}. " + WORDS * 30) for n in range(7)])
        with disk.faults(machine):
            try:
                async with hosted(folder, play, clock, info=SMALL, settings=slot(engine)) as host:
                    try:
                        await work(host)
                    except (PerdureError, DeadlineExceeded):
                        assert machine.dead
                    if machine.dead:
                        host.kill()
            except (PerdureError, OSError):
                assert machine.dead
        if machine.dead:
            machine.buried(clock.wall_ms())
        machine.dead = False
        async with hosted(folder, play, clock, info=SMALL, settings=slot(engine)) as host:
            assert (await ask(host, "the blue heron again")).stop == "stop"
            await clock.sleep(5)
            assert (await ask(host, "the last")).stop == "stop"
            await clock.sleep(5)
            assert host.status()["engines"][0]["failures"] == 0
            await agrees(host, folder, engine)
        assert play.refused == 0
        accepted(play.bodies[KEY], SMALL)
        ids = [entry["id"] for entry in entries(session_path(folder)) if "id" in entry]
        assert len(ids) == len(set(ids))
        said = [text for text in said_by_users(session_path(folder)) if text in asked]
        assert said == asked[: len(said)]
        assert len(said) >= len(asked) - 1  # the last may not have been acknowledged

    virtual(main)
    return machine


@pytest.mark.parametrize("engine", ["lossless", "retrieval"])
def test_a_kill_before_any_write_of_an_engine_leaves_each_entry_once_and_a_valid_view(
    tmp_path: Path, engine: str
) -> None:
    seen = lived(tmp_path / "whole", engine, None).seen
    mine = [n for n, what in enumerate(seen, 1) if re.search(r"sqlite|summar|[0-9a-f]{32}\.jsonl", what)]
    assert len(mine) > 20
    rare = [at for at in mine if not seen[at - 1].startswith("write") or ".jsonl" in seen[at - 1]]
    for at in sorted({*random.Random(1).sample(mine, 6), *rare}):
        lived(tmp_path / str(at), engine, at)


# --- compactions ----------------------------------------------------------------------------------


class Reader:
    """A model that reads back what it no longer sees: by words, then by opening every summary it is shown."""

    def __init__(self, words: list[str]) -> None:
        self._left, self._asked = words, ""
        self.found: dict[str, str] = {}  # what the search answered, by word
        self.opened: list[str] = []  # all that summaries stand for, as text
        self._closed: list[tuple[str, str]] | None = None  # summaries to open, and behind which part

    def __call__(self, body: dict[str, Any], request: Request) -> ScriptedReply:
        self._hear(body["messages"][-1])
        if self._left:
            self._asked = self._left.pop()
            return self._call(request, "history_grep", pattern=self._asked, scope="messages", limit=2)
        if self._closed is None:
            self._asked = ""
            shown = re.findall(r'<summary id=\\?"(sum_\w+)', json.dumps(body["messages"]))
            self._closed = [(id, "") for id in dict.fromkeys(shown)]
        if self._closed:
            id, after = self._closed.pop()
            more = {"after": after} if after else {}
            return self._call(request, "history_expand", id=id, depth=32, tokens=1_500, **more)
        return say("I have read all of it.")

    def _hear(self, message: dict[str, Any]) -> None:
        blocks = [block for block in message["content"] if block["type"] == "tool_result"]
        for block in blocks:
            text = text_of(block)
            if self._asked:
                self.found[self._asked] = text
                continue
            self.opened.append(text)
            more = re.search(r'\[more: history_expand id="(\w+)" after="(\w+)"\]', text)
            if more and self._closed is not None:
                self._closed.append((more[1], more[2]))

    def _call(self, request: Request, name: str, **arguments: Any) -> ScriptedReply:
        self._calls = getattr(self, "_calls", 0) + 1
        return ScriptedReply((ToolCall(f"toolu_{self._calls}", name, json.dumps(arguments).encode()),))


class Reading(Play):
    """Answers as a reader does, once there is one."""

    reader: Reader | None = None

    async def __call__(self, body: dict[str, Any], request: Request) -> ScriptedReply:
        if self.reader is not None and not request.session.endswith("#plugin"):
            return self.reader(body, request)
        return await super().__call__(body, request)


def test_after_fifty_compactions_the_model_reads_every_message_and_a_lost_database_changes_no_byte(
    tmp_path: Path,
) -> None:
    folder, compactions = tmp_path / "one", 0
    folder.mkdir()
    words = [f"{who}{n:03}" for n in range(TURNS) for who in ("asked", "answered")]

    async def grown(clock: VirtualClock) -> None:
        nonlocal compactions
        play = Play(*[say(f"answered{n:03} {WORDS * 6}") for n in range(TURNS)])
        async with hosted(folder, play, clock, info=SMALL, settings=slot("lossless")) as host:
            for n in range(TURNS):
                assert (await ask(host, f"asked{n:03} {WORDS * 2}")).stop == "stop"
                if n > 1 and n % 2:
                    told = await host.command(KEY, "/compact")
                    compactions += "has compacted" in told or told.startswith("Compacted")
            await clock.sleep(10)
        assert play.refused == 0

    async def read(clock: VirtualClock) -> None:
        play = Reading()
        async with hosted(folder, play, clock, info=SMALL, settings=slot("lossless")) as host:
            for start in range(0, len(words), 20):
                play.reader = Reader(words[start : start + 20])
                play.reader._closed = []
                assert (await ask(host, "Search, please.")).stop == "stop"
                assert len(play.reader.found) == len(words[start : start + 20])
                for word, text in play.reader.found.items():
                    assert f"{word} The lemon tree" in text, (word, text)
            play.reader = reader = Reader([])
            assert (await ask(host, "Now open all summaries.")).stop == "stop"
            assert len(reader.opened) > 3
            shown = json.dumps(play.last()["messages"])
            opened = "".join(reader.opened)
            assert [word for word in words if f"{word} The" not in opened + shown] == []
        assert play.refused == 0

    async def asked(clock: VirtualClock, lost: bool) -> list[bytes]:
        if lost:
            lose(folder / "state" / "plugins" / "lossless", f"{NAME}*")
        play = Play()
        async with hosted(folder, play, clock, info=SMALL, settings=slot("lossless")) as host:
            assert (await ask(host, "And now?")).stop == "stop"
            await clock.sleep(10)
            assert await in_lossless(host, id_of(folder)) == [
                entry["id"] for entry in messages(session_path(folder))
            ]
        return play.bodies[KEY]

    virtual(grown)
    assert compactions == 50
    shutil.copytree(folder, tmp_path / "two")
    kept = virtual(lambda clock: asked(clock, lost=False))
    shutil.rmtree(folder)
    shutil.copytree(tmp_path / "two", folder)
    assert virtual(lambda clock: asked(clock, lost=True)) == kept
    virtual(read)


# --- exchanged for each other ---------------------------------------------------------------------

ACTS = st.sampled_from([*ENGINES, "turn", "long turn", "compact", "sleep", "kill"])


TWICE = ["long turn", "lossless", "legacy"]  # the host carries more than the engine sends


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(ACTS, min_size=3, max_size=14))
@example(["retrieval", "legacy", *TWICE, "long turn", "lossless", "long turn"])
def test_engines_are_exchanged_in_any_order_and_each_is_told_everything(
    tmp_path_factory: pytest.TempPathFactory, acts: list[str]
) -> None:
    """Under `strict`, so that none of them can hide behind legacy."""
    folder = tmp_path_factory.mktemp("exchanged")
    play, tools = Play(), [tells("look", WORDS * 20)]
    asked: list[str] = []

    async def turn(host: Host, *answers: ScriptedReply) -> None:
        play.then(*answers)
        asked.append(f"blue heron {len(asked)}")
        reply = await ask(host, asked[-1])
        assert (reply.stop, reply.errors) == ("stop", ())

    def opened(clock: VirtualClock) -> Host:
        return hosted(folder, play, clock, info=SMALL, settings=slot("legacy", strict=True), tools=tools)

    async def main(clock: VirtualClock) -> None:
        host = opened(clock)
        await host.__aenter__()
        for act in acts:
            if act in ENGINES:
                assert act in await host.command(KEY, f"/engine {act}")
            elif act == "turn":
                await turn(host, calls("look"), say(WORDS * 30))
            elif act == "long turn":
                await turn(host, *(calls("look", text=WORDS * 5) for _ in range(12)), say("looked"))
            elif act == "compact":
                await host.command(KEY, "/compact")
            elif act == "sleep":
                host.directory.ref(KEY).post(Sleep())
                await clock.sleep(1)
            else:
                host.kill()
                await host.__aexit__(None, None, None)
                host = opened(clock)
                await host.__aenter__()
        for engine in ENGINES:
            await host.command(KEY, f"/engine {engine}")
            await turn(host, calls("look"), say("seen"))
            await clock.sleep(5)
            (line,) = (each for each in host.status()["engines"] if each["id"] == engine)
            assert (line["failures"], line["behind"]) == (0, [])
            await agrees(host, folder, engine)
        await host.__aexit__(None, None, None)

    virtual(main)
    assert said_by_users(session_path(folder)) == asked
    assert play.refused == 0
    accepted(play.bodies[KEY], SMALL)

"""Entries that an engine rewrites: a branch, whatever the view is made of; the same view after a restart."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from helpers_host import KEY, Fn, Play, accepted, ask, calls, hosted, session_path, virtual
from perdure.contracts import EngineInfo, Maintained, Replacement, Rewritten, TurnReport
from perdure.edges.models.reply import say
from perdure.edges.session.doctor import examine
from perdure.edges.session.history import History
from perdure.edges.session.tail import open_session
from perdure.kernel.virtual import VirtualClock
from perdure.plugins.base import Engine
from perdure.records import Item, ModelInfo, Summary, Text, ToolResult, User

SMALL = ModelInfo("scripted", "test", window=16_000, cache_minimum=16)
WORDS = "The pump in hall seven leaks when the pressure is above four bar. "


class Shortening(Engine):
    """When it is told to, replaces the messages at these places of the view."""

    info = EngineInfo("shortening", "Shortening")

    def __init__(self) -> None:
        self.places: list[int] = []
        self.view: tuple[Item, ...] = ()
        self.done: list[Rewritten] = []

    async def after_turn(self, context: Any, report: TurnReport) -> None:
        self.view = report.view

    async def maintain(self, context: Any, moment: str) -> Maintained:
        if moment != "turn" or not self.places:
            return Maintained()
        places, self.places = self.places, []
        chosen = [self.view[at % len(self.view)] for at in places]
        new = tuple(Replacement(item.entry, short(item)) for item in chosen if short(item) is not None)
        self.done.append(await context.runtime.rewrite_transcript_entries(new))
        return Maintained(True, len(new))


def short(item: Item) -> Any:
    """The same message with a few words for its text; its calls stay."""
    message = item.message
    if isinstance(message, ToolResult):
        return ToolResult(message.call_id, message.tool, (Text("(short)"),), message.is_error)
    if isinstance(message, User):
        return User((Text("(short)"),), message.timestamp)
    return None


async def looks(arguments: Any, context: Any) -> str:
    return WORDS * 20


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    turns=st.integers(2, 9),
    places=st.lists(st.integers(0, 30), min_size=1, max_size=4),
    compacts=st.booleans(),
)
def test_the_view_is_what_it_was_but_for_what_was_replaced_here_and_after_a_restart(
    tmp_path_factory: pytest.TempPathFactory, turns: int, places: list[int], compacts: bool
) -> None:
    folder, engine = tmp_path_factory.mktemp("rewriting"), Shortening()
    play = Play()
    for n in range(turns):
        play.then(calls("look"), say(f"answer {n}. {WORDS * 25}"))

    async def main(clock: VirtualClock) -> None:
        tools = [Fn("look", looks)]
        async with hosted(folder, play, clock, engine=engine, info=SMALL, tools=tools) as host:
            for n in range(turns - 1):
                await ask(host, f"question {n}: {WORDS * 5}")
            if compacts:
                await host.command(KEY, "/compact")
            await clock.sleep(10)
            engine.places = places
            await ask(host, "the last")
            await clock.sleep(10)
            path = session_path(folder)
            before = engine.view
            after = open_session(path).items
            replaced = {before[at % len(before)].entry for at in places}
            assert len(after) == len(before)
            for old, new in zip(before, after, strict=True):
                if old.entry in replaced and short(old) is not None and engine.done[0].changed:
                    assert isinstance(old.message, User | ToolResult)
                    assert new.message.content == (Text("(short)"),)  # type: ignore[union-attr]
                else:
                    assert new.message == old.message
            assert examine(path).healthy
            said = [i.entry for i in host.directory.awake[KEY].transcript.items]
            assert said == [item.entry for item in after]
            everything = {item.entry for item in History(path).messages("", 10_000)}
            assert {i.entry for i in after if not isinstance(i.message, Summary)} <= everything
        async with hosted(folder, play, clock, engine=engine, info=SMALL, tools=tools) as host:
            assert (await ask(host, "and now?")).stop == "stop"
            items = tuple(host.directory.awake[KEY].transcript.items)
            assert items[: len(after)] == after or isinstance(items[0].message, Summary)
        assert play.refused == 0
        accepted(play.bodies[KEY][-1:], SMALL)

    virtual(main)

"""The engine `similarity`: where not everything fits, what is near to the question stays, not what is new."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers_host import KEY, Play, ask, calls, hosted, tells, virtual
from helpers_messages import call, items, result, says, user
from perdure.context.safety.repair import repair
from perdure.contracts import EngineCompaction
from perdure.edges.models.reply import say
from perdure.errors import ConfigError
from perdure.kernel.virtual import VirtualClock
from perdure.plugins.engines import views
from perdure.plugins.engines.similarity import Similarity
from perdure.records import Item, Items, Message, Summary, ToolCall, ToolResult, User
from perdure.testing.lending import FakeRuntime, engine_context

TOPICS = ("the pump in row seven leaks water", "invoices of the dentist in Lyon", "recipes for lemon cake")


def turn(n: int, about: str, size: int = 40) -> list[Message]:
    return [user(f"{about} {n}"), says(f"{about}. " * size)]


def kept(view: Items, budget: int, folder: Path, prompt: str = "") -> Items:
    runtime = FakeRuntime(folder / "store")
    engine = Similarity(runtime)
    return anyio.run(engine.assemble, engine_context(runtime, budget=budget, prompt=prompt), view).messages


def long_view(turns: int = 30, *, question: str = "what about the pump in row seven?") -> Items:
    said = [message for n in range(turns) for message in turn(n, TOPICS[n % 3])]
    return items(*said, user(question))


def test_what_fits_passes_untouched(tmp_path: Path) -> None:
    view = long_view(3)
    assert kept(view, 24_000, tmp_path) is view


def test_turns_near_to_the_question_stay_and_newer_ones_go(tmp_path: Path) -> None:
    found = kept(long_view(), 6_144, tmp_path)
    asked = [views.said(item.message) for item in found if isinstance(item.message, User)][:-1]
    pump = sum("pump" in text for text in asked)
    assert pump >= 0.7 * len(asked)
    assert len(asked) >= 5


def test_summaries_and_the_newest_turn_always_stay(tmp_path: Path) -> None:
    said = [Summary("What came before: nothing about pumps."), *(item.message for item in long_view())]
    newest = [says("thinking"), user("and now?")]
    found = kept(items(*said, *newest), 4_096, tmp_path)
    assert isinstance(found[0].message, Summary)
    assert found[-1].message == newest[-1]


def test_a_single_turn_that_is_too_large_stays_whole(tmp_path: Path) -> None:
    batch = [m for n in range(20) for m in (says(call(f"c{n}")), result(f"c{n}", "x" * 4_000))]
    view = items(*turn(0, TOPICS[0]), user("go"), *batch)
    assert kept(view, 4_096, tmp_path)[-41:] == view[-41:]


def test_every_request_begins_with_the_one_before_it_until_turns_go(tmp_path: Path) -> None:
    view, before, jumps = long_view(40), (), 0
    for end in range(1, len(view) + 1, 2):
        found = kept(view[:end], 8_192, tmp_path)
        jumps += found[: len(before)] != before
        before = found
    assert 1 <= jumps <= 12


def test_a_tool_loop_that_grows_does_not_choose_anew_at_each_step(tmp_path: Path) -> None:
    batch = [m for n in range(40) for m in (says(call(f"c{n}")), result(f"c{n}", f"{n} " * 100))]
    view, before, jumps = items(*(i.message for i in long_view()), *batch), (), 0
    for end in range(62, len(view) + 1, 2):
        found = kept(view[:end], 8_192, tmp_path)
        jumps += found[: len(before)] != before
        before = found
    assert jumps <= 4


PIECES = st.sampled_from(["user", "answer", "batch", "summary"])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(PIECES, st.integers(0, 6_000)), max_size=40), st.integers(0, 9_000))
def test_any_view_stays_in_order_paired_and_the_same_each_time(
    tmp_path_factory: pytest.TempPathFactory, shape: list[tuple[str, int]], budget: int
) -> None:
    said: list[Message] = []
    for n, (kind, size) in enumerate(shape):
        if kind == "user":
            said.append(user(f"{n} " + "水" * (size // 3)))
        elif kind == "answer":
            said.append(says(f"{n} " + "w " * (size // 2)))
        elif kind == "summary":
            said.append(Summary("s" * size))
        else:
            said += [says(call(f"a{n}"), call(f"b{n}")), result(f"b{n}", "r" * size), result(f"a{n}", "q")]
    view, folder = items(*said), tmp_path_factory.getbasetemp()
    found = kept(view, budget, folder)
    places = [view.index(item) for item in found]
    assert places == sorted(set(places))
    assert found == kept(view, budget, folder)
    assert [i for i in view if isinstance(i.message, Summary)] == [
        i for i in found if isinstance(i.message, Summary)
    ]
    assert unpaired(found) == unpaired(view) == 0
    if repair(view).items == view:
        assert repair(found).items == found


def unpaired(view: Items) -> int:
    asked = {b.id for i in view for b in getattr(i.message, "content", ()) if isinstance(b, ToolCall)}
    return len(asked ^ {i.message.call_id for i in view if isinstance(i.message, ToolResult)})


def test_compaction_is_the_runtimes_where_somebody_asks_and_else_not_needed(tmp_path: Path) -> None:
    async def delegate() -> EngineCompaction:
        return EngineCompaction(True, True, "done")

    async def run(force: bool) -> EngineCompaction:
        runtime = FakeRuntime(tmp_path)
        return await Similarity(runtime).compact(
            engine_context(runtime), delegate, force=force, instructions=""
        )

    assert anyio.run(run, True).compacted
    assert not anyio.run(run, False).compacted


def test_a_wrong_setting_is_told_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"plugins\.config\.similarity\.keep"):
        Similarity(FakeRuntime(tmp_path, {"keep": 2}))


def test_sizes_are_near_those_of_the_estimator() -> None:
    runtime = FakeRuntime(Path("/tmp"))
    for message in (user("plain words " * 200), user("水泵漏水了" * 200), result("c", "line\n" * 500)):
        told = runtime.estimate((Item("", message),))
        assert 0.7 * told <= views.tokens(message) <= 1.5 * told


def test_a_host_goes_on_for_many_windows_without_a_summary(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        play = Play()
        for n in range(30):
            play.then(calls("look", text=TOPICS[n % 3]), say(f"{TOPICS[n % 3]} {n} " * 40))
        environ = {"PERDURE_PLUGINS__SLOTS__CONTEXT_ENGINE": "similarity"}
        tools = [tells("look", "found it " * 500)]
        async with hosted(tmp_path, play, clock, environ=environ, tools=tools, window=16_384) as host:
            for n in range(30):
                reply = await ask(host, f"{TOPICS[n % 3]}, please {n}")
                assert reply.stop == "stop", reply
        assert play.refused == 0
        assert not play.summaries
        assert len(play.bodies[KEY]) == 60

    virtual(main)

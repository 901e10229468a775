"""The engine in a host: long conversations in a small window, lost stores, what the host takes over."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from helpers_host import KEY, Play, ask, calls, entries, hosted, session_path, tells, virtual
from helpers_kernel import each_loop
from helpers_lossless import lose
from perdure.edges.models.reply import ScriptedReply, say
from perdure.edges.settings import PluginOptions, PluginSettings, Settings, SlotSettings
from perdure.host import Host
from perdure.kernel.run import Backend
from perdure.kernel.virtual import VirtualClock
from perdure.plugins.engines.lossless.engine import Lossless
from perdure.plugins.engines.lossless.pieces import Node, View
from perdure.records import ModelInfo, ToolCall

SMALL = ModelInfo("scripted", "test", window=16_000, cache_minimum=16)
WORDS = "The lemon tree in row seven needs water and a stake before the wind comes on Thursday. "
LOSSLESS = Settings(plugins=PluginSettings(slots=SlotSettings(context_engine="lossless")))


def long(n: int, words: int = 400) -> ScriptedReply:
    return say(f"Answer {n}. " + WORDS * (words // 16))


def engine_of(host: Host) -> Lossless:
    found = host.services.engines.of("lossless").engine
    assert isinstance(found, Lossless)
    return found


async def grow(host: Host, turns: int, start: int = 0, key: str = KEY) -> None:
    for n in range(start, start + turns):
        reply = await ask(host, f"question {n}", key)
        assert reply.stop == "stop", reply


def shown(body: dict[str, Any]) -> str:
    return json.dumps(body["messages"], ensure_ascii=False)


@each_loop
def test_a_conversation_of_many_windows_goes_on_and_is_kept_whole(loop: Backend, tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        play = Play(*[long(n) for n in range(80)])
        async with hosted(tmp_path, play, clock, info=SMALL, settings=LOSSLESS) as host:
            await grow(host, 80)
            assert play.refused == 0
            assert "<summary id=" in shown(play.last())
            engine = engine_of(host)
            id = header(tmp_path)["id"]
            await clock.sleep(1)  # the hooks of the last turn
            assert not await engine.check(id)
            store = await engine.sessions.store()
            loaded = store.load(id)
            assert loaded is not None
            assert any(isinstance(piece, Node) for piece in loaded.view)
            said = [e["id"] for e in entries(session_path(tmp_path)) if e["type"] == "message"]
            assert loaded.cursor == said[-1]
        assert len(play.summaries) > 0

    virtual(main, loop)


def header(folder: Path) -> dict[str, Any]:
    with session_path(folder).open() as file:
        return dict(json.loads(file.readline()))


def test_one_turn_of_many_calls_in_a_small_window_is_answered(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        turn = [calls("look") for _ in range(80)]
        play = Play(*turn, say("all looked at"))
        tool = tells("look", "what was seen: " + WORDS * 20)
        async with hosted(tmp_path, play, clock, info=SMALL, settings=LOSSLESS, tools=[tool]) as host:
            reply = await ask(host, "Look eighty times; the word is heron-7731.")
            assert (reply.stop, reply.text) == ("stop", "all looked at")
            assert play.refused == 0
            assert "heron-7731" in shown(play.last())
            assert not await engine_of(host).check(header(tmp_path)["id"])

    virtual(main)


def test_the_model_reads_back_what_it_no_longer_sees(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        def search(body: dict[str, Any], request: Any) -> ScriptedReply:
            assert "history_grep" in {tool["name"] for tool in body["tools"]}
            arguments = json.dumps({"pattern": "密码词 苍鹭"}, ensure_ascii=False).encode()
            return ScriptedReply((ToolCall("toolu_grep", "history_grep", arguments),))

        play = Play(say("noted"), *[long(n) for n in range(40)], search, say("found it"))
        async with hosted(tmp_path, play, clock, info=SMALL, settings=LOSSLESS) as host:
            await ask(host, "记住：密码词是苍鹭七七三一。密码词 苍鹭")
            await grow(host, 40)
            reply = await ask(host, "what was the word?")
            assert reply.text == "found it"
            last = shown({"messages": play.last()["messages"][-1:]})
            assert "苍鹭七七三一" in last

    virtual(main)


def test_a_store_that_was_deleted_while_the_host_was_down_comes_back_the_same(tmp_path: Path) -> None:
    quiet = PluginOptions("lossless", b'{"background": false}')
    plugins = PluginSettings(slots=SlotSettings(context_engine="lossless"), config=(quiet,))

    async def main(clock: VirtualClock) -> None:
        play = Play(*[long(n) for n in range(60)])
        async with hosted(tmp_path, play, clock, info=SMALL, settings=Settings(plugins=plugins)) as host:
            await grow(host, 40)
            await host.command(KEY, "/compact")
            await clock.sleep(10)
            before = await view_of(host, header(tmp_path)["id"])
        assert any(isinstance(piece, Node) for piece in before)
        lose(tmp_path / "state" / "plugins" / "lossless")
        async with hosted(tmp_path, play, clock, info=SMALL, settings=Settings(plugins=plugins)) as host:
            await grow(host, 1, 40)
            await clock.sleep(10)
            after = await view_of(host, header(tmp_path)["id"])
            assert after[: len(before)] == before
            assert not await engine_of(host).check(header(tmp_path)["id"])

    virtual(main)


async def view_of(host: Host, id: str) -> View:
    store = await engine_of(host).sessions.store()
    loaded = store.load(id)
    assert loaded is not None
    return loaded.view


def test_a_commanded_compaction_shrinks_the_request_and_says_so(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        play = Play(*[long(n) for n in range(30)])
        async with hosted(tmp_path, play, clock, info=SMALL, settings=LOSSLESS) as host:
            await grow(host, 10)
            large = len(play.bodies[KEY][-1])
            assert "compacted" in (await host.command(KEY, "/compact")).lower()
            await grow(host, 1, 10)
            assert len(play.bodies[KEY][-1]) < large

    virtual(main)


def test_what_the_host_carries_is_bounded_by_what_the_engine_offers(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        play = Play(*[long(n, 1_600) for n in range(70)])
        async with hosted(tmp_path, play, clock, info=SMALL, settings=LOSSLESS) as host:
            await grow(host, 60)
            await host.command(KEY, "/compact")
            kinds = [e["type"] for e in entries(session_path(tmp_path))]
            assert kinds.count("compaction") >= 1
            await grow(host, 1, 60)
            first = shown({"messages": play.last()["messages"][:1]})
            assert first.count("<summary id=") >= 1
            assert "question 0" not in shown(play.last())
            await grow(host, 8, 61)
            assert play.refused == 0
            assert not host.services.engines.of("lossless").failures
            assert not await engine_of(host).check(header(tmp_path)["id"])

    virtual(main)


def test_a_session_that_was_compacted_under_legacy_goes_on_here(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        play = Play(*[long(n) for n in range(90)])
        async with hosted(tmp_path, play, clock, info=SMALL) as host:
            await grow(host, 40)
        assert any(e["type"] == "compaction" for e in entries(session_path(tmp_path)))
        async with hosted(tmp_path, play, clock, info=SMALL, settings=LOSSLESS) as host:
            await grow(host, 40, 40)
            assert play.refused == 0
            assert not host.services.engines.of("lossless").failures
            assert not await engine_of(host).check(header(tmp_path)["id"])

    virtual(main)


def test_an_undo_of_what_the_host_took_over_is_no_loss(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        play = Play(*[long(n, 1_600) for n in range(60)])
        async with hosted(tmp_path, play, clock, info=SMALL, settings=LOSSLESS) as host:
            await grow(host, 50)
            await host.command(KEY, "/compact")
            await clock.sleep(10)
            assert [e["type"] for e in entries(session_path(tmp_path))].count("compaction") >= 1
            await host.command(KEY, "/undo")
            await grow(host, 4, 50)
            assert play.refused == 0
            assert not host.services.engines.of("lossless").failures
            assert not await engine_of(host).check(header(tmp_path)["id"])

    virtual(main)


def test_its_settings_come_from_the_configuration(tmp_path: Path) -> None:
    options = PluginOptions("lossless", b'{"fresh_count": 4, "background": false}')
    plugins = PluginSettings(slots=SlotSettings(context_engine="lossless"), config=(options,))

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, Play(), clock, settings=Settings(plugins=plugins)) as host:
            await ask(host, "hello")
            assert engine_of(host).settings.fresh_count == 4

    virtual(main)

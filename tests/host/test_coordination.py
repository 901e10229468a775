"""The coordinator in a host: triggers, flush, aborts, notices, and the floor that nothing makes smaller."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from helpers_host import KEY, Gate, Play, ask, calls, entries, hosted, notices, session_path, tells, virtual
from helpers_kernel import each_loop
from perdure.actors.services import Timing
from perdure.contracts import EngineContext, EngineInfo, Pressure
from perdure.edges.models.reply import ScriptedReply, fail, say
from perdure.edges.settings import CompactionSettings, PluginSettings, PromptSettings, Settings, SlotSettings
from perdure.errors import PerdureError, UsageError
from perdure.host import Host
from perdure.kernel.run import Backend
from perdure.kernel.virtual import VirtualClock
from perdure.plugins.engines.legacy import LegacyEngine
from perdure.plugins.registry import Registry
from perdure.records import Items, ModelInfo, ToolResult, User

SMALL = ModelInfo("scripted", "test", window=16_000, cache_minimum=16)
LARGE = ModelInfo("scripted", "test", window=64_000, cache_minimum=16)
TINY = ModelInfo("small", "tiny", window=8_000, cache_minimum=16)
OTHER = "agent:main:cli:dm:other"
WORDS = "The lemon tree in row seven needs water and a stake before the wind comes on Thursday. "
GIST = "The lemon tree was discussed at length, over and over."


def long(n: int, words: int = 550) -> ScriptedReply:
    return say(f"Answer {n}. " + WORDS * (words // 6))


def compactions(path: Path) -> list[dict[str, Any]]:
    return [e for e in entries(path) if e["type"] == "compaction"]


def tiny(play: Play, clock: VirtualClock) -> dict[str, Any]:
    """A host's options for a second, small model."""
    return {"models": {TINY.ref: TINY}, "factories": {"small": lambda info: play.model(clock, info)}}


async def grow(host: Host, turns: int = 8, key: str = KEY) -> None:
    """So many turns; with `long` answers, a view that is worth compacting."""
    for n in range(turns):
        await ask(host, f"question {n}", key)


MANUAL = Settings(compaction=CompactionSettings(trigger="manual"))


# --- an abort aborts ------------------------------------------------------------------------------


@each_loop
def test_an_abort_stops_a_commanded_compaction_at_once_and_leaves_nothing_of_it(
    loop: Backend, tmp_path: Path
) -> None:
    async def main(clock: VirtualClock) -> None:
        gate = Gate(clock, say(GIST))
        play = Play(*[long(n) for n in range(8)], summary=gate)
        async with hosted(tmp_path, play, clock, settings=MANUAL) as host:
            await grow(host)
            before = session_path(tmp_path).read_bytes()
            told = clock.waiter("the answer to /compact")
            host.kernel.start("asker", _command, host, "/compact", told)
            await gate.arrived()
            began = clock.now()
            assert await host.abort(KEY)
            answer = await clock.wait(told, 10)
            assert (answer, clock.now()) == (
                "Nothing was compacted: it was stopped, and nothing was changed.",
                began,
            )
            gate.open()
            await clock.sleep(1000)
            assert session_path(tmp_path).read_bytes() == before
            assert not await host.abort(KEY)
            play.summary = say(GIST)
            assert (await host.command(KEY, "/compact")).startswith("Compacted")
            assert (await ask(host, "on")).stop == "stop"

    virtual(main, loop)


async def _command(host: Host, line: str, told: Any) -> None:
    told.set(await host.command(KEY, line))


def test_an_abort_ends_a_turn_that_waits_for_a_smaller_view_and_the_compaction_with_it(
    tmp_path: Path,
) -> None:
    async def main(clock: VirtualClock) -> None:
        gate = Gate(clock, say(GIST))
        play = Play(*[long(n) for n in range(8)], fail("overflow"), summary=gate)
        async with hosted(tmp_path, play, clock) as host:
            await grow(host)
            sent = await host.send(KEY, "too much")
            await gate.arrived()
            assert "Stopping" in await host.command(KEY, "/abort")
            reply = await sent.reply(10)
            assert (reply.stop, reply.overflow) == ("aborted", None)
            gate.open()
            await clock.sleep(10)
            assert not compactions(session_path(tmp_path))
            assert (await ask(host, "on")).stop == "stop"

    virtual(main)


def test_an_abort_of_a_turn_lets_a_background_compaction_go_on(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        gate, slow = Gate(clock, say(GIST)), Gate(clock)
        play = Play(*[long(n) for n in range(20)], summary=gate)
        async with hosted(tmp_path, play, clock, info=SMALL) as host:
            while not gate.begun.done:
                await ask(host, "more")
                await clock.sleep(0.1)
            play.queues[KEY].clear()
            play.then(slow)
            sent = await host.send(KEY, "slowly")
            await slow.arrived()
            assert await host.abort(KEY)
            assert (await sent.reply(20)).stop == "aborted"
            gate.open()
            await clock.sleep(1)
            assert len(compactions(session_path(tmp_path))) == 1

    virtual(main)


def test_a_summariser_that_ignores_the_abort_holds_nobody_up_and_commits_nothing(tmp_path: Path) -> None:
    class Stubborn(LegacyEngine):
        info = EngineInfo("stubborn", "Ignores its end", owns_compaction=True)

        async def compact(self, context: Any, delegate: Any, *, force: bool, instructions: str) -> Any:
            for _ in range(40):
                try:
                    await clock_of.sleep(1)
                except BaseException:
                    continue
            return await delegate()

    clock_of: Any = None

    async def main(clock: VirtualClock) -> None:
        nonlocal clock_of
        clock_of = clock
        play = Play(*[long(n) for n in range(8)])
        async with hosted(tmp_path, play, clock, settings=MANUAL, engine=Stubborn()) as host:
            await grow(host)
            told = clock.waiter("the answer to /compact")
            host.kernel.start("asker", _command, host, "/compact", told)
            await clock.sleep(2)
            assert await host.abort(KEY)
            assert "stopped" in await clock.wait(told, 1)
            assert (await ask(host, "on")).stop == "stop"
            await clock.sleep(200)
            assert not compactions(session_path(tmp_path))

    virtual(main)


# --- failures that say what they are --------------------------------------------------------------


def test_a_slow_summariser_is_overtaken_by_a_digest_where_a_turn_waits(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        slow = say(GIST, chunks=50, pace=10.0)
        play = Play(*[long(n) for n in range(8)], fail("overflow"), say("went on"), summary=slow)
        timing = Timing(model_idle=60, summary=90)
        async with hosted(tmp_path, play, clock, timing=timing) as host:
            await grow(host)
            began = clock.now()
            assert (await ask(host, "one more")).text == "went on"
            assert clock.now() - began <= 95

    virtual(main)
    assert [e["details"]["perdure"]["proof"]["rung"] for e in compactions(session_path(tmp_path))] == [
        "digest"
    ]


def test_a_turn_that_overflows_while_nothing_can_compact_says_so_and_who_takes_what(tmp_path: Path) -> None:
    class Broken(LegacyEngine):
        info = EngineInfo("broken", "Broken", owns_compaction=True)

        async def compact(self, context: Any, delegate: Any, *, force: bool, instructions: str) -> Any:
            raise ZeroDivisionError("a bug")

    play = Play(*[long(n) for n in range(8)], fail("overflow"), say("later"))
    strict = Settings(plugins=PluginSettings(strict=True))

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, play, clock, engine=Broken(), settings=strict) as host:
            await grow(host)
            reply = await ask(host, "one more")
            assert (reply.stop, reply.overflow.cause) == ("overflow", "summariser")
            assert sum(tokens for _, tokens in reply.overflow.owners) == reply.overflow.tokens
            assert "broken.compact: ZeroDivisionError: a bug" in reply.errors[-1]
            assert "\n" not in reply.errors[-1]
            assert (await ask(host, "again")).text == "later"

    virtual(main)


def test_a_crashing_compaction_of_one_session_holds_no_other_up(tmp_path: Path, monkeypatch: Any) -> None:
    from perdure.actors import compaction

    real = compaction.planned

    def planned(view: Any, reason: Any) -> Any:
        if view.key == KEY:
            raise MemoryError("ill")
        return real(view, reason)

    monkeypatch.setattr(compaction, "planned", planned)

    async def main(clock: VirtualClock) -> None:
        play = Play(*[long(n) for n in range(8)])
        play.then(*[long(n) for n in range(8)], key=OTHER)
        async with hosted(tmp_path, play, clock) as host:
            await grow(host)
            await grow(host, key=OTHER)
            for _ in range(20):
                assert "MemoryError" in await host.command(KEY, "/compact")
            began = clock.now()
            assert (await host.command(OTHER, "/compact")).startswith("Compacted")
            assert clock.now() - began < 1

    virtual(main)


# --- the floor ------------------------------------------------------------------------------------


def test_what_nothing_makes_smaller_is_told_with_both_numbers_by_owner_and_what_to_do(tmp_path: Path) -> None:
    """A message that was taken for a large window, while its turn goes on in a small one."""

    async def main(clock: VirtualClock) -> None:
        slow = Gate(clock)
        play = Play(calls("slow"), say("never said"))
        tools = [slow.tool("slow")]
        async with hosted(tmp_path, play, clock, info=LARGE, tools=tools, **tiny(play, clock)) as host:
            sent = await host.send(KEY, "a line of a log, word by word\n" * 1_200)
            await slow.arrived()
            await host.command(KEY, "/model small/tiny")
            slow.open()
            reply = await sent.reply(100)
            told = reply.overflow
            assert (reply.stop, told.cause) == ("overflow", "floor")
            owners = dict(told.owners)
            assert list(owners) == ["system", "tools", "pinned", "history", "newest turn"]
            assert sum(owners.values()) == told.tokens > told.limit == 7_200
            assert owners["newest turn"] > 7_200
            assert owners["tools"] > 0
            line = reply.errors[-1]
            assert all(word in line for word in (f"{told.tokens:,}", "7,200", "newest turn", "larger model"))
            assert "\n" not in line
            assert not play.summaries
            assert not compactions(session_path(tmp_path))
            play.queues[KEY].clear()
            assert (await ask(host, "only this")).stop == "stop"
            assert len(compactions(session_path(tmp_path))) == 1

    virtual(main)


# --- notices --------------------------------------------------------------------------------------


def test_a_failure_is_told_once_however_often_it_comes_and_the_status_shows_it(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        play = Play(*[long(n, 1_200) for n in range(11)], summary=fail("auth"))
        async with hosted(tmp_path, play, clock, info=LARGE) as host:
            seen = notices(host)
            for _ in range(18):
                assert (await ask(host, "more")).stop == "stop"
                await clock.sleep(1)
            told = [n.text for n in seen if n.kind == "compaction"]
            assert len(told) == 1
            assert "can't be used (auth)" in told[0]
            (line,) = host.status(deep=True)["sessions"]
            assert line["compaction"]["failures"] >= 3
            assert line["compaction"]["told"]
            assert not compactions(session_path(tmp_path))

    virtual(main)


def test_a_threshold_below_the_prompt_itself_is_told_once_and_compacts_no_turn_for_nothing(
    tmp_path: Path,
) -> None:
    settings = Settings(
        compaction=CompactionSettings(threshold_tokens=4_000, keep_tokens=2_000),
        prompt=PromptSettings(override="You tend a garden. " * 1_300),
    )

    async def main(clock: VirtualClock) -> None:
        play = Play()
        async with hosted(tmp_path, play, clock, info=SMALL, settings=settings) as host:
            seen = notices(host)
            await grow(host, 5)
            await clock.sleep(1_000)
            assert not play.summaries
            (told,) = [n.text for n in seen if n.kind == "compaction"]
            assert "system 6," in told
            assert "the threshold is 4,000" in told
            (line,) = host.status(deep=True)["sessions"]
            assert line["compaction"]["told"]
            assert line["compaction"]["owners"]["system"] > line["compaction"]["threshold"] == 4_000

    virtual(main)


def test_results_that_are_pruned_are_told_once(tmp_path: Path) -> None:
    play = Play()
    for n in range(7):
        play.then(calls("dump"), say(f"read {n}"))
    play.then(say("back again"), say("and on"))

    async def main(clock: VirtualClock) -> None:
        tools, settings = [tells("dump", WORDS * 140)], Settings(compaction=CompactionSettings(idle=False))
        async with hosted(tmp_path, play, clock, info=LARGE, tools=tools, settings=settings) as host:
            seen = notices(host)
            await grow(host, 7)
            assert not [n for n in seen if n.kind == "pruning"]
            await clock.sleep(400)
            await ask(host, "back")
            await ask(host, "on")
            (told,) = [n.text for n in seen if n.kind == "pruning"]
            assert "recall" in told

    virtual(main)


# --- what wants a compaction ----------------------------------------------------------------------


class Six:
    """A trigger of a plugin: by its own numbers, and on no overflow."""

    def __init__(self) -> None:
        self.asked: list[Pressure] = []

    def wants(self, pressure: Pressure) -> Any:
        self.asked.append(pressure)
        return "size" if pressure.moment == "rest" and pressure.entries >= 6 else None


def slot(name: str, **options: Any) -> Settings:
    return Settings(plugins=PluginSettings(slots=SlotSettings(compaction_trigger=name), **options))


def test_a_plugin_that_fills_the_slot_decides_when_to_compact(tmp_path: Path) -> None:
    trigger = Six()
    play = Play(*[long(n, 3_000) for n in range(3)])

    async def main(clock: VirtualClock) -> None:
        host = hosted(tmp_path, play, clock, info=LARGE, settings=slot("six"))
        host.registry.register_trigger("six", lambda: trigger, "plugin:test")
        async with host:
            for n in range(3):
                await ask(host, f"question {n}")
                await clock.sleep(1)
                assert len(compactions(session_path(tmp_path))) == (n >= 2)
            play.then(fail("overflow"))
            reply = await ask(host, "too much")
            assert (reply.stop, reply.overflow.cause) == ("overflow", "trigger")
            assert (await host.command(KEY, "/compact")).startswith("Compacted")

    virtual(main)
    assert {p.moment for p in trigger.asked} == {"step", "rest", "overflow"}
    assert all(p.window == 64_000 and p.threshold == 48_000 for p in trigger.asked)


@pytest.mark.parametrize("answer", ["manual", "overflow", "nonsense", None])
def test_a_trigger_that_breaks_is_told_once_and_auto_decides(answer: str | None, tmp_path: Path) -> None:
    class Broken:
        def wants(self, pressure: Pressure) -> Any:
            if answer is None:
                raise ZeroDivisionError("a bug")
            return answer

    play = Play(*[long(n) for n in range(12)])

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, play, clock, info=SMALL, trigger=Broken()) as host:
            seen = notices(host)
            await grow(host, 12)
            assert [n.kind for n in seen].count("trigger") == 1
            assert len(compactions(session_path(tmp_path))) >= 1

    virtual(main)


def test_a_trigger_nobody_registered_is_auto_aloud_or_refused_if_strict(tmp_path: Path) -> None:
    play = Play(*[long(n) for n in range(12)])

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, play, clock, info=SMALL, settings=slot("none-such")) as host:
            assert "none-such" in host.resolver.replaced
            await grow(host, 12)
            assert compactions(session_path(tmp_path))
        with pytest.raises(PerdureError, match="auto, manual"):
            async with hosted(tmp_path, play, clock, settings=slot("none-such", strict=True)):
                pass

    virtual(main)


def test_triggers_have_owners_and_those_of_the_core_are_reserved() -> None:
    registry = Registry()
    registry.register_trigger("mine", Six, "plugin:mine")
    registry.register_trigger("mine", Six, "plugin:mine")
    assert isinstance(registry.trigger("mine"), Six)
    for id, owner in (("mine", "plugin:other"), ("auto", "plugin:mine"), ("manual", "plugin:mine")):
        with pytest.raises(PerdureError, match="belongs to"):
            registry.register_trigger(id, Six, owner)
    registry.register_trigger("empty", object, "plugin:mine")  # type: ignore[arg-type]
    with pytest.raises(PerdureError, match="lacks wants"):
        registry.trigger("empty")


def test_manual_never_fires_by_itself_not_even_for_a_smaller_window(tmp_path: Path) -> None:
    play = Play(*[long(n) for n in range(14)])

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, play, clock, info=LARGE, settings=MANUAL, **tiny(play, clock)) as host:
            await grow(host, 8)
            assert "send /compact" in await host.command(KEY, "/model small/tiny")
            await clock.sleep(1_000)
            assert (await ask(host, "now")).overflow.cause == "trigger"
            assert not play.summaries
            assert (await host.command(KEY, "/compact")).startswith("Compacted")
            assert (await ask(host, "now")).stop == "stop"

    virtual(main)


def test_under_a_manual_trigger_a_commanded_compaction_that_fails_begins_no_other(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        gate = Gate(clock, fail("auth"))
        play = Play(*[long(n) for n in range(8)], fail("overflow"), summary=gate)
        async with hosted(tmp_path, play, clock, settings=MANUAL) as host:
            await grow(host)
            told = clock.waiter("the answer to /compact")
            host.kernel.start("asker", _command, host, "/compact", told)
            await gate.arrived()
            sent = await host.send(KEY, "too much")
            await clock.sleep(1)
            gate.open()
            assert "auth" in await clock.wait(told, 10)
            reply = await sent.reply(10)
            assert (reply.stop, reply.overflow.cause) == ("overflow", "trigger")
            assert len(play.summaries) == 1

    virtual(main)


def test_a_smaller_window_is_compacted_for_before_the_next_request(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        gate = Gate(clock, say(GIST))
        play = Play(*[long(n) for n in range(8)], summary=gate)
        async with hosted(tmp_path, play, clock, info=LARGE, **tiny(play, clock)) as host:
            await grow(host, 8)
            assert "is compacted for it" in await host.command(KEY, "/model small/tiny")
            sent = await host.send(KEY, "and now?")
            await clock.sleep(5)
            asked = len(play.bodies[KEY])
            gate.open()
            assert (await sent.reply(10)).stop == "stop"
            assert len(play.bodies[KEY]) == asked + 1 == 9
            assert len(compactions(session_path(tmp_path))) == 1

    virtual(main)


# --- memory is flushed first ----------------------------------------------------------------------


class Notes:
    """A memory: notes what users said, and remembers when it was asked."""

    def __init__(self, host_path: Path) -> None:
        self.asked: list[tuple[int, Items]] = []
        self.path = host_path

    async def __call__(self, context: EngineContext, items: Items) -> str:
        self.asked.append((len(compactions(self.path)), items))
        said = [item.message.content[0].text for item in items if isinstance(item.message, User)]
        return "\n".join(f"- {text}" for text in said)


def day_note(folder: Path) -> str:
    return (folder / "workspace" / "memory" / "2026-01-05.md").read_text()


def test_memory_is_flushed_once_a_cycle_before_anything_is_lost_and_only_appends(tmp_path: Path) -> None:
    notes = Notes(session_path(tmp_path))
    play = Play(*[long(n) for n in range(40)])
    (tmp_path / "workspace" / "memory").mkdir(parents=True)
    (tmp_path / "workspace" / "memory" / "2026-01-05.md").write_text("- was here before\n")

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, play, clock, info=SMALL, flush=notes) as host:
            for n in range(40):
                await ask(host, f"question {n}")
                await clock.sleep(1)

    virtual(main)
    done = len(compactions(session_path(tmp_path)))
    assert done > 3
    told = day_note(tmp_path)
    assert told.startswith("- was here before\n\n- question 0\n")
    cycles = [cycle for cycle, _ in notes.asked]
    assert set(cycles) >= set(range(done))
    assert sorted(cycles) == cycles
    first = next(items for cycle, items in notes.asked if cycle == 1)
    assert not any(isinstance(item.message, ToolResult) for item in first)


def test_a_hard_overflow_flushes_what_would_be_covered_in_parts_and_without_details(tmp_path: Path) -> None:
    notes = Notes(session_path(tmp_path))
    play = Play(*[long(n, 1_200) for n in range(8)], fail("overflow"), say("went on"))

    async def main(clock: VirtualClock) -> None:
        info = ModelInfo("scripted", "test", window=60_000, cache_minimum=16)
        async with hosted(tmp_path, play, clock, info=info, flush=notes) as host:
            await grow(host)
            assert not notes.asked
            assert (await ask(host, "one more")).text == "went on"

    virtual(main)
    assert [cycle for cycle, _ in notes.asked] == [0] * len(notes.asked)
    (done,) = compactions(session_path(tmp_path))
    covered = [item.entry for _, part in notes.asked for item in part]
    assert len(covered) == done["details"]["perdure"]["proof"]["entries"]
    assert done["firstKeptEntryId"] not in covered


@pytest.mark.parametrize("fault", ["raises", "hangs", "lies", "no disk"])
def test_a_flush_that_fails_is_logged_and_holds_no_compaction_up(fault: str, tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        async def flush(context: EngineContext, items: Items) -> Any:
            match fault:
                case "raises":
                    raise ZeroDivisionError("a bug")
                case "hangs":
                    await clock.sleep(10_000)
                case "lies":
                    return 7
            return "- noted"

        if fault == "no disk":
            (tmp_path / "workspace").mkdir()
            (tmp_path / "workspace" / "memory").write_text("a file where the folder would be")
        play = Play(*[long(n) for n in range(8)], fail("overflow"), say("went on"))
        async with hosted(tmp_path, play, clock, flush=flush, timing=Timing(flush=30)) as host:
            await grow(host)
            began = clock.now()
            assert (await ask(host, "one more")).text == "went on"
            assert clock.now() - began <= 31
        assert "flush.failed" in (tmp_path / "state" / "runtime.log").read_text()

    virtual(main)


def test_an_abort_during_the_flush_stops_what_would_follow(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        async def flush(context: EngineContext, items: Items) -> str:
            await clock.sleep(50)
            return "- noted"

        play = Play(*[long(n) for n in range(8)])
        async with hosted(tmp_path, play, clock, flush=flush, settings=MANUAL) as host:
            await grow(host)
            told = clock.waiter("the answer to /compact")
            host.kernel.start("asker", _command, host, "/compact", told)
            await clock.sleep(5)
            assert await host.abort(KEY)
            assert "stopped" in await clock.wait(told, 1)
            await clock.sleep(200)
            assert not compactions(session_path(tmp_path))
            assert (await host.command(KEY, "/compact")).startswith("Compacted")
            assert day_note(tmp_path) == "- noted\n"

    virtual(main)


@pytest.mark.parametrize("wrong", [{"trigger": object()}, {"flush": "notes"}])
def test_what_is_no_trigger_and_no_flush_is_one_line(wrong: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="give an"):
        Host(tmp_path, environ={}, **wrong)


# --- a second /compact, and estimates that are too low --------------------------------------------


def test_a_second_command_waits_for_the_compaction_that_is_under_way(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        gate = Gate(clock, say(GIST))
        play = Play(*[long(n) for n in range(8)], summary=gate)
        async with hosted(tmp_path, play, clock, settings=MANUAL) as host:
            await grow(host)
            answers = [clock.waiter(f"answer {n}") for n in range(2)]
            for answer in answers:
                host.kernel.start("asker", _command, host, "/compact", answer)
            await gate.arrived()
            assert "again" in await host.command(KEY, "/compact about the tree")
            await clock.sleep(1)
            gate.open()
            told = [await clock.wait(answer, 10) for answer in answers]
            assert told[0] == told[1]
            assert told[0].startswith("Compacted")
            assert len(compactions(session_path(tmp_path))) == 1

    virtual(main)


@pytest.mark.parametrize(
    ("dense", "size"), [("9f$}", 4_500), ("ﷺ𒐫", 500), ("\u2603\ufe0f", 1_800), ("₷₸₹", 1_500), ("ꙮ;", 2_000)]
)
def test_text_far_denser_than_the_first_estimate_overflows_and_the_turn_goes_on(
    dense: str, size: int, tmp_path: Path
) -> None:
    """Nothing is calibrated before the first usage: then the provider's own refusal must lead on."""
    info = ModelInfo("scripted", "test", window=8_000, cache_minimum=16)

    async def main(clock: VirtualClock) -> None:
        play = Play(*[say("noted")] * 9)
        async with hosted(tmp_path, play, clock, info=info) as host:
            for n in range(4):
                reply = await ask(host, f"{n}: " + dense * (size // len(dense)))
                assert (reply.stop, reply.overflow) == ("stop", None)
            assert play.models[0].errors.get("overflow", 0) <= 2

    virtual(main)


def test_a_plain_record_of_an_overflow_is_json(tmp_path: Path) -> None:
    from perdure.actors.reporting import reply_line as report

    play = Play(fail("overflow"), fail("overflow"))

    async def main(clock: VirtualClock) -> Any:
        async with hosted(tmp_path, play, clock) as host:
            return await ask(host, "only this")

    told = json.loads(json.dumps(report(virtual(main))))["overflow"]
    assert told["cause"] == "floor"
    assert sum(told["owners"].values()) == told["tokens"]

"""Engines as actors: choice and swap, what they are told and may change, what their faults can't do."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

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
    text_of,
    virtual,
)
from perdure.actors.messages import Sleep
from perdure.actors.services import Timing
from perdure.contracts import (
    Assembled,
    Bootstrapped,
    EngineCompaction,
    EngineInfo,
    Maintained,
    Replacement,
    TurnReport,
)
from perdure.edges.blobs import LocalBlobs
from perdure.edges.erasing import Eraser
from perdure.edges.models.reply import fail, say
from perdure.edges.session.history import History
from perdure.edges.settings import PluginSettings, Settings, SlotSettings
from perdure.errors import DamagedStore, UsageError
from perdure.host import Host
from perdure.kernel.io import IoPolicy
from perdure.kernel.virtual import VirtualClock
from perdure.looking.context import inspect
from perdure.looking.target import find
from perdure.plugins.engines.legacy import LegacyEngine
from perdure.records import Assistant, Item, Items, Text, ToolCall, User

OTHER = "agent:main:cli:dm:other"
WORDS = "The pump in hall seven leaks when the pressure is above four bar. "


class Noting(LegacyEngine):
    """Notes everything it is told."""

    info = EngineInfo("noting", "Noting")

    def __init__(self) -> None:
        self.log: list[str] = []
        self.entries: list[str] = []
        self.reports: list[TurnReport] = []
        self.at_bootstrap: Callable[[Any], Bootstrapped] = lambda _context: Bootstrapped()

    async def bootstrap(self, context: Any) -> Bootstrapped:
        self.log.append("bootstrap")
        return self.at_bootstrap(context)

    async def ingest_batch(self, context: Any, items: Items) -> int:
        self.log.append("ingest")
        self.entries += [item.entry for item in items]
        return len(items)

    async def assemble(self, context: Any, messages: Items) -> Assembled:
        self.log.append("assemble")
        self.context = context
        return Assembled(messages)

    async def after_turn(self, context: Any, report: TurnReport) -> None:
        self.log.append("after_turn")
        self.reports.append(report)

    async def maintain(self, context: Any, moment: str) -> Maintained:
        self.log.append(f"maintain {moment}")
        return Maintained()

    async def dispose(self) -> None:
        self.log.append("dispose")


def stored(folder: Path, key: str = KEY) -> list[str]:
    return [entry["id"] for entry in messages(session_path(folder, key))]


# --- when what is called --------------------------------------------------------------------------


def test_the_methods_are_called_at_the_moments_that_the_contract_names(tmp_path: Path) -> None:
    engine, play = Noting(), Play(calls("look"), say("done"))

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, play, clock, engine=engine, tools=[tells("look")]) as host:
            await ask(host, "hello")
            await clock.sleep(1)
            once = ["bootstrap", "maintain bootstrap"]
            step = ["ingest", "assemble"]
            assert engine.log == [*once, *step, *step, "ingest", "after_turn", "maintain turn"]
            assert (engine.context.prompt, engine.context.tools) == ("hello", ("look",))
            assert engine.context.token_budget > 0
            assert engine.entries == stored(tmp_path)
            (report,) = engine.reports
            assert [item.entry for item in report.items] == stored(tmp_path)
            assert (report.stop, bool(report.tokens)) == ("stop", True)
            await host.command(KEY, "/compact")
            await clock.sleep(1)
            await ask(host, "again")
            await clock.sleep(1)
            assert engine.log.count("bootstrap") == 1
            assert engine.entries == stored(tmp_path)
        assert engine.log[-1] == "dispose"

    virtual(main)


def test_a_turn_that_failed_is_reported_and_not_maintained(tmp_path: Path) -> None:
    engine, play = Noting(), Play(fail("auth"))

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, play, clock, engine=engine) as host:
            await ask(host, "hello")
            await clock.sleep(1)
        assert engine.reports[0].stop == "error"
        assert "maintain turn" not in engine.log

    virtual(main)


def test_an_engine_hears_of_a_compaction_and_each_entry_once_all_the_same(tmp_path: Path) -> None:
    engine, play = Noting(), Play(*[say(WORDS * 300) for _ in range(6)])

    async def main(clock: VirtualClock) -> None:
        small = Timing()
        async with hosted(tmp_path, play, clock, engine=engine, window=20_000, timing=small) as host:
            for n in range(6):
                await ask(host, f"{n}: {WORDS * 40}")
            await clock.sleep(10)
        assert "maintain compaction" in engine.log
        everything = [item.entry for item in History(session_path(tmp_path)).messages("", 10_000)]
        assert engine.entries == everything

    virtual(main)


# --- the session's own choice ---------------------------------------------------------------------


def test_a_session_chooses_its_engine_at_a_turn_boundary_and_keeps_it(tmp_path: Path) -> None:
    engine = Noting()

    async def main(clock: VirtualClock) -> None:
        host = hosted(tmp_path, Play(), clock)
        host.registry.register("noting", lambda: engine, "plugin:test")
        async with host:
            await ask(host, "one")
            assert await host.command(KEY, "/engine") == "The context engine is legacy."
            assert await host.command(KEY, "/engine noting") == "The context engine is now noting."
            with pytest.raises(UsageError, match=r"'nope' is not known: one of .*noting"):
                await host.command(KEY, "/engine nope")
            await ask(host, "two")
            await ask(host, "elsewhere", OTHER)
            await clock.sleep(1)
            assert engine.entries == stored(tmp_path)  # what came before it, too
            host.directory.ref(KEY).post(Sleep())
            await clock.sleep(1)
        again = hosted(tmp_path, Play(), clock)
        again.registry.register("noting", lambda: engine, "plugin:test")
        async with again as host:
            await ask(host, "three")
            assert await host.command(KEY, "/engine") == "The context engine is noting."
            await clock.sleep(1)
            assert engine.entries == stored(tmp_path)
            assert await host.command(KEY, "/engine default") == "The context engine is now legacy."

    virtual(main)


def test_the_context_command_says_which_engine_it_does_not_show(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        host = hosted(tmp_path, Play(), clock)
        host.registry.register("noting", Noting, "plugin:test")
        async with host:
            await ask(host, "one")
            await host.command(KEY, "/engine noting")

    virtual(main)
    target = find(KEY, tmp_path / "state")
    told = inspect(target, Settings(), state=tmp_path / "state")["problems"]
    told = [problem for problem in told if problem["kind"] == "engine"]
    assert len(told) == 1
    assert "noting" in told[0]["detail"]


def test_an_engine_that_offers_tools_offers_them_to_its_sessions_alone(tmp_path: Path) -> None:
    class Offering(Noting):
        info = EngineInfo("offering", "Offering")

        def tools(self) -> tuple[Any, ...]:
            return (tells("dig", "found"),)

    play = Play(say("plain"), calls("dig"), say("done"))

    async def main(clock: VirtualClock) -> None:
        host = hosted(tmp_path, play, clock)
        host.registry.register("offering", Offering, "plugin:test")
        async with host:
            await ask(host, "one")
            assert "tools" not in play.last() or not play.last()["tools"]
            await host.command(KEY, "/engine offering")
            assert (await ask(host, "two")).text == "done"
            assert [tool["name"] for tool in play.last()["tools"]] == ["dig"]
            results = messages(session_path(tmp_path), "toolResult")
            assert text_of(results[-1]["message"]) == "found"

    virtual(main)


# --- what it may change ---------------------------------------------------------------------------


class Rewriting(Noting):
    """Replaces the first answer of each turn, in `maintain`."""

    info = EngineInfo("rewriting", "Rewriting")

    def __init__(self, which: Callable[[Items], Items]) -> None:
        super().__init__()
        self.which, self.done = which, []  # type: ignore[var-annotated]

    async def maintain(self, context: Any, moment: str) -> Maintained:
        if moment != "turn" or self.done:
            return Maintained()
        chosen = self.which(await context.runtime.history())
        new = tuple(
            Replacement(i.entry, Assistant((Text("(shortened)"),), "stop", "scripted")) for i in chosen
        )
        self.done.append(await context.runtime.rewrite_transcript_entries(new))
        return Maintained(True, len(new))


def test_entries_are_rewritten_by_a_branch_and_never_in_place(tmp_path: Path) -> None:
    engine = Rewriting(lambda items: tuple(i for i in items if isinstance(i.message, Assistant))[:1])
    play = Play(say("a long answer " * 50), say("second"))

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, play, clock, engine=engine) as host:
            await ask(host, "one")
            await clock.sleep(1)
            (done,) = engine.done
            assert (done.changed, done.entries) == (True, 1)
            assert done.bytes_freed > 500
            await ask(host, "two")
            assert "(shortened)" in json.dumps(play.last())
            assert "a long answer" not in json.dumps(play.last())
        whole = session_path(tmp_path).read_text()
        assert "a long answer" in whole  # the old branch stays in the file
        accepted(play.bodies[KEY])

    virtual(main)


def test_what_is_rewritten_survives_sleep_restart_and_truncation_as_the_view(tmp_path: Path) -> None:
    engine = Rewriting(lambda items: tuple(i for i in items if isinstance(i.message, Assistant))[1:2])

    async def main(clock: VirtualClock) -> None:
        play = Play(*[say(f"answer {n} " + WORDS * 60) for n in range(3)])
        async with hosted(tmp_path, play, clock, engine=engine) as host:
            for n in range(2):
                await ask(host, f"question {n}")
            await clock.sleep(1)
            await host.command(KEY, "/name pumps")
            before = [(i.entry, i.message) for i in host.directory.awake[KEY].transcript.items]
        play2 = Play(say("third"))
        async with hosted(tmp_path, play2, clock, engine=LegacyEngine()) as host:
            await ask(host, "question 2")
            after = [(i.entry, i.message) for i in host.directory.awake[KEY].transcript.items]
        assert after[: len(before)] == before
        names = [entry["id"] for entry in entries(session_path(tmp_path)) if "id" in entry]
        assert len(names) == len(set(names))

    virtual(main)


@pytest.mark.parametrize(
    ("chosen", "reason"),
    [((), "no replacements requested"), (("nope",), "no matching"), (("first",), "invalid first")],
)
def test_a_rewrite_that_can_not_be_says_why_and_changes_no_byte(
    tmp_path: Path, chosen: tuple[str, ...], reason: str
) -> None:
    def which(items: Items) -> Items:
        return tuple(items[0] if name == "first" else Item(name, items[0].message) for name in chosen)

    engine = Rewriting(which)

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, Play(), clock, engine=engine) as host:
            await ask(host, "one")
            size = session_path(tmp_path).stat().st_size
            await clock.sleep(1)
            assert engine.done[0].changed is False
            assert reason in engine.done[0].reason
            told = '"perdure.engine"'
            assert told in session_path(tmp_path).read_text()[size:] or size

    virtual(main)


class Summarising(Noting):
    """Owns compaction: its own summary of everything but the newest turn."""

    info = EngineInfo("summarising", "Summarising", owns_compaction=True)
    summary = "The pump in hall seven leaks above four bar; the hose was tried first."

    async def compact(self, context: Any, delegate: Any, **_: Any) -> EngineCompaction:
        items = await context.runtime.history()
        last = [item for item in items if isinstance(item.message, User)][-1]
        return EngineCompaction(True, True, summary=self.summary, first_kept=last.entry)


def test_an_engines_own_summary_is_proven_and_committed_like_ours(tmp_path: Path) -> None:
    engine, play = Summarising(), Play(*[say(WORDS * 60) for _ in range(4)])

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, play, clock, engine=engine) as host:
            for n in range(4):
                await ask(host, f"{n}")
            assert (await host.command(KEY, "/compact")).startswith("Compacted")
            await ask(host, "and now?")
            assert engine.summary in json.dumps(play.last())
        (made,) = [e for e in entries(session_path(tmp_path)) if e["type"] == "compaction"]
        assert made["details"]["perdure"]["proof"]["rung"] == "engine"

    virtual(main)


def test_an_engines_summary_that_proves_nothing_is_refused_and_ours_takes_its_place(tmp_path: Path) -> None:
    engine, play = Summarising(), Play(*[say(WORDS * 60) for _ in range(4)])
    engine.summary = "  "

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, play, clock, engine=engine) as host:
            for n in range(4):
                await ask(host, f"{n}")
            engine.summary = "(nothing)"
            assert (await host.command(KEY, "/compact")).startswith("Compacted")
        (made,) = [e for e in entries(session_path(tmp_path)) if e["type"] == "compaction"]
        assert made["details"]["perdure"]["proof"]["rung"] != "engine"

    virtual(main)


def test_an_engine_that_needs_no_compaction_is_not_reported_for_it(tmp_path: Path) -> None:
    class Windowing(Noting):
        info = EngineInfo("windowing", "Windowing", owns_compaction=True)

        async def assemble(self, context: Any, messages: Items) -> Assembled:
            return Assembled(messages[-3:])

        async def compact(self, context: Any, delegate: Any, **_: Any) -> EngineCompaction:
            return EngineCompaction(True, False, "nothing is to be done")

    play = Play(*[say(WORDS * 60) for _ in range(12)])

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, play, clock, engine=Windowing(), window=8_000) as host:
            seen = notices(host)
            for n in range(12):
                assert (await ask(host, f"{n}: {WORDS * 10}")).stop == "stop"
            host.directory.ref(KEY).post(Sleep())
            await clock.sleep(1)
            assert (await ask(host, "after a sleep")).stop == "stop"
            await clock.sleep(10_000)
            assert [n.kind for n in seen] == []

    virtual(main)


# --- what its faults can't do ---------------------------------------------------------------------


def test_messages_of_another_session_are_never_sent(tmp_path: Path) -> None:
    class Leaking(Noting):
        info = EngineInfo("leaking", "Leaking")
        seen: tuple[Item, ...] = ()

        async def assemble(self, context: Any, messages: Items) -> Assembled:
            Leaking.seen = (*Leaking.seen, *messages)
            return Assembled(Leaking.seen if context.session_key == OTHER else messages)

    play = Play()

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, play, clock, engine=Leaking()) as host:
            seen = notices(host)
            await ask(host, "the code is 4711")
            reply = await ask(host, "hello", OTHER)
            assert reply.stop == "stop"
            assert "4711" not in json.dumps(play.last(OTHER))
            assert any("not of this session" in n.text for n in seen if n.key == OTHER)
            await ask(host, "still here?")
            assert not [n for n in seen if n.key == KEY]

    virtual(main)


def test_an_engine_that_overfills_the_window_is_told_and_the_view_is_sent(tmp_path: Path) -> None:
    class Inflating(Noting):
        info = EngineInfo("inflating", "Inflating")

        async def assemble(self, context: Any, messages: Items) -> Assembled:
            return Assembled((Item("", User((Text(WORDS * 20_000),))), *messages))

    play = Play()

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, play, clock, engine=Inflating()) as host:
            seen = notices(host)
            assert (await ask(host, "hello")).stop == "stop"
            assert len(play.bodies[KEY][0]) < 10_000
            assert any("too much for the window" in n.text for n in seen)
            assert not [n for n in seen if n.kind == "compaction"]

    virtual(main)


def test_the_room_for_an_answer_is_what_the_larger_count_leaves(tmp_path: Path) -> None:
    class Counting(Noting):
        info = EngineInfo("counting", "Counting")

        async def assemble(self, context: Any, messages: Items) -> Assembled:
            return Assembled(messages, 190_000 if context.prompt == "large" else 1)

    play = Play()

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, play, clock, engine=Counting()) as host:
            await ask(host, "small")
            plain = play.last()["max_tokens"]
            await ask(host, "large")
            assert play.last()["max_tokens"] < 10_000 < plain

    virtual(main)


@pytest.mark.parametrize("strict", [False, True], ids=["fallback", "strict"])
def test_what_a_user_is_told_of_a_failure_holds_no_secret_and_is_true(tmp_path: Path, strict: bool) -> None:
    class Leaky(Noting):
        info = EngineInfo("leaky", "Leaky")

        async def assemble(self, context: Any, messages: Items) -> Assembled:
            raise RuntimeError("no answer for sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789")

    told = Settings(plugins=PluginSettings(strict=strict))

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, Play(), clock, engine=Leaky(), settings=told) as host:
            seen = notices(host)
            reply = await ask(host, "hello")
            (notice,) = (n.text for n in seen if n.kind == "engine")
            assert ("legacy answers" in notice) == (reply.stop == "stop") == (not strict)
            assert "abcdefgh" not in notice + "".join(reply.errors)

    virtual(main)


def test_unpaired_calls_that_an_engine_returns_are_sealed_away(tmp_path: Path) -> None:
    class Unpaired(Noting):
        info = EngineInfo("unpaired", "Unpaired")

        async def assemble(self, context: Any, messages: Items) -> Assembled:
            open_call = Assistant((ToolCall("toolu_x", "look"),), "toolUse", "scripted")
            return Assembled((*messages[:1], Item("", open_call), *messages[1:]))

    play = Play()

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, play, clock, engine=Unpaired(), tools=[tells("look")]) as host:
            for n in range(3):
                assert (await ask(host, f"{n}")).stop == "stop"
        assert play.refused == 0
        accepted(play.bodies[KEY])

    virtual(main)


def test_an_engine_that_fails_several_sessions_is_made_anew_and_told_everything_again(tmp_path: Path) -> None:
    made: list[Noting] = []

    class Rotten(Noting):
        info = EngineInfo("rotten", "Rotten")

        def __init__(self) -> None:
            super().__init__()
            self.rotten = not made
            self.at_bootstrap = lambda _context: Bootstrapped(cursor="")  # what it has is in memory
            made.append(self)

        async def assemble(self, context: Any, messages: Items) -> Assembled:
            if self.rotten:
                raise RuntimeError("its state is broken")
            return Assembled(messages)

    settings_ = Settings(plugins=PluginSettings())

    async def main(clock: VirtualClock) -> None:
        host = hosted(tmp_path, Play(), clock, settings=settings_)
        host.registry.register("rotten", Rotten, "plugin:test")
        keys = [f"agent:main:cli:dm:{n}" for n in range(4)]
        async with host:
            for key in keys:
                await ask(host, "hello", key)
                await host.command(key, "/engine rotten")
            for key in keys:
                assert (await ask(host, "again", key)).stop == "stop"
            await clock.sleep(1)
            assert len(made) == 2
            assert made[0].log[-1] == "dispose"
            (line,) = (e for e in host.status()["engines"] if e["id"] == "rotten")
            assert line["restarts"] == 1
            for key in keys:
                await ask(host, "once more", key)
            await clock.sleep(1)
            assert set(made[1].entries) == {id for key in keys for id in stored(tmp_path, key)}

    virtual(main)


def test_an_engine_whose_store_is_damaged_is_made_anew_once_the_old_one_has_closed_it(tmp_path: Path) -> None:
    made: list[Noting] = []

    class Damaged(Noting):
        info = EngineInfo("damaged", "Damaged")

        def __init__(self) -> None:
            super().__init__()
            self.damaged = not made
            made.append(self)

        async def assemble(self, context: Any, messages: Items) -> Assembled:
            self.log.append("assemble")
            if self.damaged:
                raise DamagedStore("its database is damaged")
            return Assembled(messages)

        async def dispose(self) -> None:
            if self.damaged:
                await closing.pass_through()
            await super().dispose()

    async def main(clock: VirtualClock) -> None:
        nonlocal closing
        closing = Gate(clock)
        host = hosted(
            tmp_path,
            Play(),
            clock,
            settings=Settings(plugins=PluginSettings(slots=SlotSettings(context_engine="damaged"))),
        )
        host.registry.register("damaged", Damaged, "plugin:test")
        async with host:
            seen = notices(host)
            assert (await ask(host, "hello")).stop == "stop"
            assert (await ask(host, "while it closes")).stop == "stop"
            assert made[1].log == []  # legacy answered
            closing.open()
            await clock.sleep(1)
            assert (await ask(host, "again")).stop == "stop"
            assert [len(seen), len(made)] == [1, 2]
            assert made[1].log.count("assemble") == 1
            assert made[0].log[-1] == "dispose"

    closing: Any = None
    virtual(main)


def test_a_shadow_engine_is_compared_and_changes_nothing_that_is_sent(tmp_path: Path) -> None:
    class Half(Noting):
        info = EngineInfo("half", "Half")

        async def assemble(self, context: Any, messages: Items) -> Assembled:
            return Assembled(messages[len(messages) // 2 :])

    def run(folder: Path, shadow: str) -> tuple[list[bytes], dict[str, Any] | None]:
        folder.mkdir()
        play = Play()
        told = Settings(plugins=PluginSettings(shadow=shadow))

        async def main(clock: VirtualClock) -> dict[str, Any] | None:
            host = hosted(folder, play, clock, settings=told)
            host.registry.register("half", Half, "plugin:test")
            async with host:
                for n in range(4):
                    await ask(host, f"question {n}")
                    await clock.sleep(1)
                found = [e["shadow"] for e in host.status()["engines"] if "shadow" in e]
                return found[0] if found else None

        return play.bodies[KEY], virtual(main)

    plain, nothing = run(tmp_path / "plain", "")
    beside, line = run(tmp_path / "beside", "half")
    assert nothing is None
    assert line is not None
    assert plain == beside
    assert (line["compared"], line["failed"]) == (4, 0)
    assert line["tokens"] < line["tokens_here"]


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(["turn", "sleep", "kill", "compact", "fails"]), min_size=1, max_size=12))
def test_whatever_happens_an_engine_hears_every_entry_in_order_and_none_that_it_knows_twice(
    tmp_path_factory: pytest.TempPathFactory, acts: list[str]
) -> None:
    """It keeps ids, as the contract asks: a second hearing changes nothing."""
    folder = tmp_path_factory.mktemp("delivery")
    known: list[str] = []

    class Knowing(Noting):
        info = EngineInfo("knowing", "Knowing")
        broken = 0

        async def ingest_batch(self, context: Any, items: Items) -> int:
            new = [item.entry for item in items if item.entry not in known]
            for at, entry in enumerate(new):
                if Knowing.broken and at == 1:
                    Knowing.broken -= 1
                    raise OSError("half of it")
                known.append(entry)
            return len(new)

    async def main(clock: VirtualClock) -> None:
        host = hosted(folder, Play(), clock, engine=Knowing())
        await host.__aenter__()
        for act in acts:
            if act == "turn":
                await ask(host, WORDS * 10)
            elif act == "sleep":
                host.directory.ref(KEY).post(Sleep())
            elif act == "compact":
                await host.command(KEY, "/compact")
            elif act == "fails":
                Knowing.broken = 1
            else:
                host.kill()
                await host.__aexit__(None, None, None)
                host = hosted(folder, Play(), clock, engine=Knowing())
                await host.__aenter__()
        Knowing.broken = 0
        await clock.sleep(1_000)
        await ask(host, "the last")
        await clock.sleep(1)
        await host.__aexit__(None, None, None)

    virtual(main)
    everything = [item.entry for item in History(session_path(folder)).messages("", 10_000)]
    assert known == everything


@pytest.mark.parametrize("while_running", [True, False], ids=["by the host", "while no host runs"])
def test_a_deleted_session_is_forgotten_by_its_engine_and_no_other_one(
    tmp_path: Path, while_running: bool
) -> None:
    gone: list[tuple[str, str]] = []

    class Storing(Noting):
        info = EngineInfo("storing", "Storing")

        def __init__(self, lent: Any) -> None:
            super().__init__()
            (lent.store / "text").write_text("what was said")

        async def forget_session(self, key: str, session_id: str) -> None:
            gone.append((key, session_id))

    def opened(clock: VirtualClock) -> Host:
        told = Settings(plugins=PluginSettings(slots=SlotSettings(context_engine="storing")))
        host = hosted(tmp_path, Play(), clock, settings=told)
        host.registry.register("storing", Storing, "plugin:test")
        return host

    async def main(clock: VirtualClock) -> None:
        async with opened(clock) as host:
            await ask(host, "one")
            await ask(host, "two", OTHER)
            id = host.directory.awake[KEY].transcript.session_id
            if while_running:
                await host.delete(KEY)
        if not while_running:
            state = tmp_path / "state"
            Eraser(state, LocalBlobs(state / "evidence", IoPolicy(True)), None, sync=False).erase(KEY)
            assert gone == []
            legacy = hosted(tmp_path, Play(), clock)  # any host does it, whichever engine it is for
            legacy.registry.register("storing", Storing, "plugin:test")
            async with legacy:
                pass
        assert gone == [(KEY, id)]
        assert not list((tmp_path / "state" / "plugins").glob("*.forget"))

    virtual(main)

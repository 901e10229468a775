"""The defences at work in a host: overflow, compaction with proof, truncation, evidence and recall."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from helpers_host import (
    KEY,
    Fn,
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
from helpers_kernel import each_loop
from perdure.actors.services import Timing
from perdure.contracts import ToolContext, ToolOutput
from perdure.edges.models.reply import ScriptedReply, call, fail, say
from perdure.edges.session.history import History
from perdure.edges.settings import CompactionSettings, GuardSettings, Settings
from perdure.edges.tools.builtin import default_tools
from perdure.errors import ModelError
from perdure.host import Host
from perdure.kernel.run import Backend
from perdure.kernel.virtual import VirtualClock
from perdure.records import ModelInfo, Text

SMALL = ModelInfo("scripted", "test", window=16_000, cache_minimum=16)
OTHER = "agent:main:cli:dm:other"
WORDS = "The lemon tree in row seven needs water and a stake before the wind comes on Thursday. "


def long(n: int, words: int = 60) -> ScriptedReply:
    return say(f"Answer {n}. " + WORDS * (words // 6))


def compactions(path: Path) -> list[dict[str, Any]]:
    return [e for e in entries(path) if e["type"] == "compaction"]


def proof(entry: Mapping[str, Any]) -> dict[str, Any]:
    return dict(entry["details"]["perdure"]["proof"])


async def fill(host: Host, clock: VirtualClock, summary: Gate) -> None:
    """Ask until a background compaction waits at the gate."""
    for n in range(40):
        await ask(host, f"question {n}")
        await clock.sleep(0.1)
        if summary.begun.done:
            return
    raise AssertionError("nothing wanted to be compacted")


# --- overflow -------------------------------------------------------------------------------------


@each_loop
def test_an_overflow_leads_to_a_proven_compaction_and_the_same_turn_goes_on(
    loop: Backend, tmp_path: Path
) -> None:
    play = Play(*[long(n) for n in range(6)], fail("overflow"), say("it fits now"))

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, play, clock) as host:
            seen = notices(host)
            for n in range(6):
                await ask(host, f"question {n}")
            reply = await ask(host, "one more")
            assert (reply.text, reply.stop) == ("it fits now", "stop")
            assert [n.kind for n in seen] == ["compaction"]
            assert (await ask(host, "and on")).stop == "stop"
        assert play.refused == 0
        accepted(play.bodies[KEY])

    virtual(main, loop)
    (done,) = compactions(session_path(tmp_path))
    told = proof(done)
    assert told["tokens_after"] < told["tokens_before"]
    assert told["first_kept"] == done["firstKeptEntryId"]
    assert "one more" in play.bodies[KEY][-1].decode()


def test_a_view_that_outgrows_its_window_is_compacted_again_and_again_without_a_refusal(
    tmp_path: Path,
) -> None:
    play = Play(*[long(n, 500) for n in range(60)])

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, play, clock, info=SMALL) as host:
            for n in range(60):
                assert (await ask(host, f"question {n}: {WORDS}")).stop == "stop"
                await clock.sleep(10)
        assert play.refused == 0
        accepted(play.bodies[KEY], SMALL)

    virtual(main)
    done = compactions(session_path(tmp_path))
    assert len(done) > 3
    assert all(proof(e)["tokens_after"] < proof(e)["tokens_before"] for e in done)


def test_a_huge_result_in_a_small_window_is_cut_and_the_turn_goes_on(tmp_path: Path) -> None:
    play = Play(calls("dump"), calls("dump"), calls("dump"), say("read it all"))

    async def main(clock: VirtualClock) -> None:
        async with hosted(
            tmp_path, play, clock, info=SMALL, tools=[tells("dump", "line\n" * 40_000)]
        ) as host:
            assert (await ask(host, "go")).text == "read it all"
        assert play.refused == 0
        accepted(play.bodies[KEY], SMALL)

    virtual(main)


def test_a_turn_that_outgrows_its_window_keeps_its_question_word_for_word(tmp_path: Path) -> None:
    question = "Find the leak in pump 7-B/κ (serial QX-99-04471); answer in one line, no list!"
    script = [ScriptedReply((*long(n, 400).blocks, call("look"))) for n in range(24)]
    play = Play(*script, say("found"))

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, play, clock, info=SMALL, tools=[tells("look", WORDS * 30)]) as host:
            assert (await ask(host, question)).text == "found"
        assert play.refused == 0
        assert len(compactions(session_path(tmp_path))) >= 2
        for body in play.bodies[KEY]:
            assert json.dumps(question, ensure_ascii=False).strip('"') in body.decode()

    virtual(main)


def test_what_cannot_be_made_smaller_is_the_typed_overflow_and_the_session_goes_on(tmp_path: Path) -> None:
    play = Play(*[fail("overflow")] * 9, say("at last"))

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, play, clock) as host:
            reply = await ask(host, "only this")
            assert reply.stop == "overflow"
            assert "\n" not in reply.errors[-1]
            play.queues[KEY].clear()
            assert (await ask(host, "shorter")).stop == "stop"

    virtual(main)


def test_no_more_than_three_compactions_follow_one_another_without_an_accepted_call(tmp_path: Path) -> None:
    play = Play(*[long(n, 300) for n in range(12)], *[fail("overflow")] * 12)

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, play, clock) as host:
            for n in range(12):
                await ask(host, f"question {n}")
            assert (await ask(host, "too much")).stop == "overflow"
            assert len(compactions(session_path(tmp_path))) <= 3
            play.queues[KEY].clear()
            assert (await ask(host, "now")).stop == "stop"

    virtual(main)


def test_a_manual_trigger_never_fires_by_itself_and_the_overflow_goes_to_the_user(tmp_path: Path) -> None:
    play = Play(*[long(n) for n in range(4)], fail("overflow"), say("fine"))
    settings = Settings(compaction=CompactionSettings(trigger="manual"))

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, play, clock, settings=settings) as host:
            for n in range(4):
                await ask(host, f"question {n}")
            reply = await ask(host, "one more")
            assert reply.stop == "overflow"
            assert "/compact" in reply.errors[-1]
            assert not compactions(session_path(tmp_path))
            assert (await host.command(KEY, "/compact")).startswith("Compacted")
            assert (await ask(host, "one more")).text == "fine"
        assert len(compactions(session_path(tmp_path))) == 1

    virtual(main)


# --- summarisers ----------------------------------------------------------------------------------

SUMMARIES: dict[str, Any] = {
    "nothing": fail("empty"),
    "refuses": say("I'm sorry, I can't help with that."),
    "unreachable": fail("server"),
    "bug": ZeroDivisionError("a bug"),
    "unauthorised": ModelError("auth", "no key"),
    "a skeleton": say("## Goal\n\n## Progress\n- none\n"),
    "longer than all": say(WORDS * 2_000),
    "overflows": fail("overflow"),
    "goes silent": fail("stall"),
}


@pytest.mark.parametrize("name", SUMMARIES)
def test_a_summariser_that_fails_does_not_keep_an_overflowing_turn_from_going_on(
    name: str, tmp_path: Path
) -> None:
    play = Play(*[long(n, 200) for n in range(8)], fail("overflow"), say("went on"), summary=SUMMARIES[name])

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, play, clock, timing=Timing(model_idle=5)) as host:
            for n in range(8):
                await ask(host, f"question {n}")
            reply = await ask(host, "one more")
            assert (reply.text, reply.stop) == ("went on", "stop")
        assert play.refused == 0

    virtual(main)
    assert [proof(e)["rung"] for e in compactions(session_path(tmp_path))] == ["digest"]


@pytest.mark.parametrize("name", ["unreachable", "bug", "unauthorised"])
def test_a_commanded_compaction_fails_in_words_where_no_model_helps(name: str, tmp_path: Path) -> None:
    play = Play(*[long(n, 200) for n in range(8)], summary=SUMMARIES[name])

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, play, clock) as host:
            for n in range(8):
                await ask(host, f"question {n}")
            told = await host.command(KEY, "/compact")
            assert told.startswith("Nothing was compacted")
            assert "\n" not in told
            assert (await ask(host, "on")).stop == "stop"

    virtual(main)
    assert not compactions(session_path(tmp_path))


def test_a_background_attempt_that_fails_does_not_end_a_turn_that_overflows_meanwhile(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        gate = Gate(clock, fail("auth"))
        play = Play(*[long(n, 550) for n in range(12)], summary=gate)
        async with hosted(tmp_path, play, clock, info=SMALL) as host:
            await fill(host, clock, gate)
            play.queues[KEY].clear()
            play.then(fail("overflow"), say("went on"))
            sent = await host.send(KEY, "one more")
            await clock.sleep(1)
            gate.open()
            reply = await sent.reply(1000)
            assert (reply.text, reply.stop) == ("went on", "stop")

    virtual(main)


# --- background -----------------------------------------------------------------------------------


def test_a_summary_that_comes_during_a_request_that_overflows_lets_the_turn_go_on(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        summary = Gate(clock, say("The lemon tree was discussed at length, over and over."))

        async def overflows_late(body: dict[str, Any], request: Any) -> ScriptedReply:
            summary.open()
            await clock.sleep(5)
            return fail("overflow")

        play = Play(*[long(n, 550) for n in range(12)], summary=summary)
        async with hosted(tmp_path, play, clock, info=SMALL) as host:
            await fill(host, clock, summary)
            play.queues[KEY].clear()
            play.then(overflows_late, say("went on"))
            assert (await ask(host, "one more")).text == "went on"
            assert len(compactions(session_path(tmp_path))) == 1

    virtual(main)


@each_loop
def test_turns_go_on_while_a_summary_is_made_and_none_of_them_is_covered_unseen(
    loop: Backend, tmp_path: Path
) -> None:
    async def main(clock: VirtualClock) -> None:
        gate = Gate(clock, say("The lemon tree was discussed at length, over and over."))
        play = Play(*[long(n, 550) for n in range(12)], summary=gate)
        async with hosted(tmp_path, play, clock, info=SMALL) as host:
            await fill(host, clock, gate)
            play.queues[KEY].clear()
            for m in range(3):
                assert (await ask(host, f"meanwhile {m}")).stop == "stop"
            assert not compactions(session_path(tmp_path))
            gate.open()
            await clock.sleep(5)
            assert len(compactions(session_path(tmp_path))) == 1
            await ask(host, "after")
        sent = play.bodies[KEY][-1].decode()
        assert all(f"meanwhile {m}" in sent for m in range(3))
        assert "discussed at length" in sent
        assert play.refused == 0

    virtual(main, loop)


def test_the_view_is_switched_between_batches_only(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        summary = Gate(clock, say("The lemon tree was discussed at length, over and over."))
        slow = Gate(clock)
        play = Play(*[long(n, 550) for n in range(12)], summary=summary)
        async with hosted(tmp_path, play, clock, info=SMALL, tools=[slow.tool("slow")]) as host:
            await fill(host, clock, summary)
            play.queues[KEY].clear()
            play.then(calls("slow"), say("done"))
            sent = await host.send(KEY, "use the tool")
            await slow.arrived()
            summary.open()
            await clock.sleep(5)
            assert not compactions(session_path(tmp_path))
            slow.open()
            assert (await sent.reply()).text == "done"
            assert len(compactions(session_path(tmp_path))) == 1
        assert play.refused == 0
        kinds = [e["type"] for e in entries(session_path(tmp_path))]
        assert kinds.index("compaction") == len(kinds) - 2

    virtual(main)


def test_an_idle_session_with_a_large_view_is_compacted_when_its_cache_is_cold(tmp_path: Path) -> None:
    play = Play(*[long(n, 450) for n in range(10)])

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, play, clock, info=SMALL) as host:
            for _ in range(20):
                await ask(host, "more")
                session = host.directory.awake[KEY]
                if session.scales.tokens > session.environment.limits.idle_line:
                    break
            assert not compactions(session_path(tmp_path))
            await clock.sleep(600)
            assert len(compactions(session_path(tmp_path))) == 1

    virtual(main)


# --- truncation -----------------------------------------------------------------------------------


def test_truncation_keeps_the_view_and_every_covered_entry_can_be_recalled(tmp_path: Path) -> None:
    def run(folder: Path, after: int) -> tuple[Play, int]:
        folder.mkdir()
        play = Play(*[long(n, 500) for n in range(40)])

        async def main(clock: VirtualClock) -> int:
            cut = 0
            for half in range(2):
                async with hosted(folder, play, clock, info=SMALL, truncate_after=after) as host:
                    seen = notices(host)
                    for n in range(20):
                        await ask(host, f"question {half}-{n}: {WORDS}", mid=f"{half}-{n}")
                        await clock.sleep(10)
                    cut += sum(n.kind == "truncation" for n in seen)
            return cut

        return play, virtual(main)

    whole, none = run(tmp_path / "a", 1 << 40)
    cut, some = run(tmp_path / "b", 4_096)
    assert (none, some >= 2) == (0, True)
    assert whole.bodies == cut.bodies
    assert cut.refused == 0
    full, small = session_path(tmp_path / "a"), session_path(tmp_path / "b")
    assert small.stat().st_size < full.stat().st_size
    past = History(small)
    stored = [text_of(e["message"]) for e in entries(full) if e["type"] == "message"]
    kept = [(id, json.loads(raw)) for id, raw in past.records()]
    assert sorted(stored) == sorted(text_of(e["message"]) for _, e in kept if e["type"] == "message")
    assert all(text_of(e["message"]) in past.text(id) for id, e in kept if e["type"] == "message")
    assert past.missing_mids([f"{half}-{n}" for half in range(2) for n in range(20)]) == 0


# --- evidence and recall --------------------------------------------------------------------------


def recall() -> Any:
    return next(t for t in default_tools(Settings()) if t.spec.name == "recall")


@each_loop
def test_a_tool_output_of_five_megabytes_is_evidence_that_recall_reads_back(
    loop: Backend, tmp_path: Path
) -> None:
    whole = "".join(f"row {n:07}\n" for n in range(5 * 1024 * 1024 // 12))

    def reads(body: dict[str, Any], request: Any) -> ScriptedReply:
        shown = json.dumps(body["messages"][-1])
        digest = shown.split("sha256:")[1][:64]
        return ScriptedReply((call("recall", ref=digest, start=2_400_000, length=100),))

    play = Play(calls("dump"), reads, say("read"))

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, play, clock, tools=[tells("dump", whole), recall()]) as host:
            assert (await ask(host, "go")).text == "read"
        assert play.refused == 0
        accepted(play.bodies[KEY])

    virtual(main, loop)
    assert session_path(tmp_path).stat().st_size < 200_000
    assert "row 0200000" in json.dumps(play.last()["messages"][-1])
    (kept,) = [p for p in (tmp_path / "state" / "evidence").rglob("*") if p.is_file()]
    assert kept.stat().st_size > 0


@pytest.mark.parametrize("kib", [1, 4])
def test_an_entry_holds_no_more_of_an_output_than_the_setting_allows(kib: int, tmp_path: Path) -> None:
    play = Play(calls("dump"), say("read"))
    settings = Settings(guard=GuardSettings(evidence_kib=kib))

    async def main(clock: VirtualClock) -> None:
        tools = [tells("dump", "é" * (kib * 1024 + 1)), recall()]
        async with hosted(tmp_path, play, clock, tools=tools, settings=settings) as host:
            await ask(host, "go")

    virtual(main)
    (result,) = messages(session_path(tmp_path), "toolResult")
    assert text_of(result["message"]).count("é") == kib * 1024
    assert "evidence sha256:" in text_of(result["message"])


def test_details_over_the_limit_are_evidence_too(tmp_path: Path) -> None:
    huge = json.dumps({"rows": ["x" * 100] * 20}).encode()

    async def dump(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        return ToolOutput((Text("shown"),), details=huge)

    play = Play(calls("dump"), say("read"))
    settings = Settings(guard=GuardSettings(evidence_kib=1))

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, play, clock, tools=[Fn("dump", dump)], settings=settings) as host:
            await ask(host, "go")

    virtual(main)
    (kept,) = [p for p in (tmp_path / "state" / "evidence").rglob("*") if p.is_file()]
    (result,) = messages(session_path(tmp_path), "toolResult")
    told = result["message"]["details"]
    assert told["bytes"] == len(huge)
    assert told["evidence"].endswith(kept.name)
    assert text_of(result["message"]) == "shown"


def test_evidence_and_entries_of_another_session_are_out_of_reach(tmp_path: Path) -> None:
    found: dict[str, str] = {}

    async def main(clock: VirtualClock) -> None:
        play = Play(calls("dump"), say("kept"))
        async with hosted(
            tmp_path, play, clock, tools=[tells("dump", "secret\n" * 60_000), recall()]
        ) as host:
            await ask(host, "go")
            raw = session_path(tmp_path).read_text()
            found["hash"] = raw.split("sha256:")[1][:64]
            found["entry"] = entries(session_path(tmp_path))[-1]["id"]
            asks = [ScriptedReply((call("recall", ref=ref),)) for ref in found.values()]
            play.then(*asks, say("nothing there"), key=OTHER)
            assert (await ask(host, "tell me", key=OTHER)).text == "nothing there"
        told = [e["message"] for e in entries(session_path(tmp_path, OTHER)) if e["type"] == "message"]
        results = [m for m in told if m["role"] == "toolResult"]
        assert [m["isError"] for m in results] == [True, True]
        assert "secret" not in json.dumps([b.decode() for b in play.bodies[OTHER]])

    virtual(main)


def test_details_of_a_result_never_reach_a_model_or_a_summary(tmp_path: Path) -> None:
    async def odd(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        return ToolOutput((Text("shown " + WORDS * 20),), details=b'{"hidden":"xyzzy-details"}')

    play = Play()
    for n in range(10):
        play.then(calls("odd"), long(n, 300))

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, play, clock, info=SMALL, tools=[Fn("odd", odd)]) as host:
            for n in range(10):
                await ask(host, f"q {n}")
        assert play.summaries
        assert not any(b"xyzzy" in body for body in (*play.bodies[KEY], *play.summaries))
        assert "xyzzy" in session_path(tmp_path).read_text()

    virtual(main)

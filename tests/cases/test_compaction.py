"""Reported faults of compaction, each with what is right. `design.md` decides where a case differs."""

from __future__ import annotations

import json
import random
import struct
import zlib
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from helpers_cases import blown_up, case
from helpers_host import (
    KEY,
    Gate,
    Play,
    ask,
    entries,
    hosted,
    messages,
    said_by_users,
    session_path,
    tells,
    text_of,
    virtual,
)
from helpers_messages import call, case_view, items, says, user
from helpers_sessions import write
from perdure.actors import coordinator
from perdure.actors.services import Timing
from perdure.context.compaction.fold import Answered, Ask, Done, Failed, Fold, Reply
from perdure.context.compaction.plan import Nothing, Plan, plan
from perdure.context.compaction.proof import Refusal
from perdure.context.compaction.size import view_tokens
from perdure.context.numbers import limits
from perdure.context.tokens.estimator import Estimator
from perdure.edges.models.reply import ScriptedReply, fail, say
from perdure.edges.models.tokenizer import Tokenizer
from perdure.edges.session.history import History
from perdure.edges.settings import CompactionSettings, Settings
from perdure.errors import ConfigError, MessageTooLarge
from perdure.host import Host
from perdure.kernel.virtual import VirtualClock
from perdure.records import Custom, Image, Item, Items, ModelInfo, Text, Thinking, ToolResult

PLAIN = Estimator()
WORDS = "The lemon tree in row seven needs water and a stake before the wind comes on Thursday. "
SMALL = ModelInfo("scripted", "test", window=16_000, cache_minimum=16)
GOOD = "The lemon tree was discussed at length; the wind comes on Thursday."


def sized(window: int, **more: Any) -> ModelInfo:
    return ModelInfo("scripted", "test", window=window, cache_minimum=16, **more)


def stored(folder: Path, found: list[dict[str, Any]]) -> Path:
    """A state folder whose session holds these entries."""
    path = session_path(folder)
    path.parent.mkdir(parents=True)
    return write(path, found[1:], header=found[0])


def talk(turns: int, words: int = 300) -> list[dict[str, Any]]:
    """The entries of so many turns."""
    made: list[dict[str, Any]] = [case("CP01")["input"]["entries"][0]]
    parent = None
    for n in range(2 * turns):
        role = ("user", "assistant")[n % 2]
        text = f"{role} {n // 2}. " + WORDS * (words // 16)
        message = {"role": role, "content": [{"type": "text", "text": text}]}
        made.append({"type": "message", "id": f"t{n}", "parentId": parent, "message": message})
        if role == "assistant":
            message["stopReason"] = "stop"
        parent = f"t{n}"
    return made


def compactions(folder: Path) -> list[dict[str, Any]]:
    return [e for e in entries(session_path(folder)) if e["type"] == "compaction"]


def proof(entry: dict[str, Any]) -> dict[str, Any]:
    return dict(entry["details"]["perdure"]["proof"])


class Counted:
    """How often a compaction began, and the most of these without an accepted call between them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, clock: Callable[[], float] = lambda: 0.0) -> None:
        self.all = self.most = self.row = 0
        self.at: list[float] = []
        begin, accepted = coordinator.begin, coordinator.accepted

        def begun(*given: Any, **more: Any) -> Any:
            self.all, self.row = self.all + 1, self.row + 1
            self.most = max(self.most, self.row)
            return begin(*given, **more)

        def over(*given: Any) -> Any:
            self.row = 0
            return accepted(*given)

        monkeypatch.setattr(coordinator, "begin", begun)
        monkeypatch.setattr(coordinator, "accepted", over)


def pressed(host: Host) -> None:
    """As if the view had just passed the threshold."""
    compacting = host.directory.awake[KEY].compacting
    if isinstance(compacting._ask("threshold"), coordinator.Start):
        compacting._begin("threshold")


def folded(view: Items, answer: Callable[[Ask], Reply], size: int, **more: Any) -> tuple[Any, list[Ask]]:
    """A compaction of a view without a host, in a window of this size; what was asked."""
    chosen = plan(view, limits=limits(size), estimator=PLAIN, **{"force": True} | more.pop("plan", {}))
    if isinstance(chosen, Nothing):
        return chosen, []
    fold = Fold(chosen, limits=limits(size), estimator=PLAIN, **more)
    asked = []
    while isinstance(step := fold.step, Ask):
        asked.append(step)
        fold.answer(answer(step))
    return step, asked


def always(text: str) -> Callable[[Ask], Reply]:
    return lambda ask: Answered(text)


# --- nothing to compact ---------------------------------------------------------------------------


def test_cp01_a_branch_without_messages_is_tried_once_without_a_model_and_the_prompt_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored(tmp_path, case("CP01")["input"]["entries"])
    play, counted = Play(), Counted(monkeypatch)

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, play, clock) as host:
            await host.command(KEY, "/status")
            for _ in range(3):
                pressed(host)
                await clock.sleep(900)
            assert counted.all <= 1
            assert (await ask(host, "hi")).stop == "stop"

    virtual(main)
    assert not play.summaries
    assert len(compactions(tmp_path)) == 1


def test_cp24_a_tail_that_reaches_the_threshold_is_refused_and_a_no_op_is_a_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = case("CP24")["input"]["config"]
    with pytest.raises(ConfigError, match=r"43,000.*20,000"):
        limits(128_000, threshold=told["threshold"], kept_tail=told["keep_recent"])
    stored(tmp_path, talk(9, 220))
    play, counted = Play(), Counted(monkeypatch)

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, play, clock) as host:
            await host.command(KEY, "/status")
            for _ in range(5):
                for _ in range(2):
                    pressed(host)
                    await clock.sleep(1)
                assert (await ask(host, "on")).stop == "stop"

    virtual(main)
    assert counted.all <= 5  # at most one for each view
    assert not compactions(tmp_path)


def test_cp25_a_threshold_below_what_is_fixed_compacts_nothing_that_does_not_shrink(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    play, counted = Play(summary=say(GOOD)), Counted(monkeypatch)
    (tmp_path / "workspace").mkdir()
    (tmp_path / "workspace" / "AGENTS.md").write_text(WORDS * 270)
    settings = Settings(compaction=CompactionSettings(threshold_tokens=4_000, keep_tokens=1_000))

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, play, clock, settings=settings) as host:
            for _ in range(5):
                assert (await ask(host, "on")).stop == "stop"
                await clock.sleep(1)
            assert host.directory.awake[KEY].environment.fixed_tokens > 4_000

    virtual(main)
    assert counted.all <= 10  # before a step and at rest, each for a view that has changed
    assert not compactions(tmp_path)


# --- sizes and triggers ---------------------------------------------------------------------------


def test_cp03_usage_from_before_a_compaction_triggers_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored(tmp_path, case("CP03")["input"]["entries"])
    play, counted = Play(), Counted(monkeypatch)

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, play, clock) as host:
            await clock.sleep(5)
            await ask(host, "d")
            assert host.directory.awake[KEY].scales.tokens < 5_000

    virtual(main)
    assert counted.all == 0


def test_cp04_a_prompt_from_the_cache_counts_whole_and_compaction_fires(tmp_path: Path) -> None:
    """It fires by the size of what would be sent, whatever part of it a cache holds."""
    told = blown_up(case("CP04")["input"])
    stored(tmp_path, told["entries"])
    play = Play(summary=say(GOOD))
    settings = Settings(compaction=CompactionSettings(threshold_tokens=told["threshold"]))
    usage = told["entries"][2]["message"]["usage"]
    assert sum(usage.values()) == 305_242

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, play, clock, info=sized(320_000), settings=settings) as host:
            await host.command(KEY, "/status")
            await clock.sleep(60)

    virtual(main)
    done = compactions(tmp_path)
    assert done
    assert proof(done[0])["tokens_before"] > told["threshold"] // 3


def test_cp21_chinese_counts_at_least_a_token_a_character_in_trigger_cut_and_display() -> None:
    told = case("CP21")["input"]
    view, keep = case_view(told["entries"]), told["keep_recent_tokens"]
    texts = [block.text for item in view for block in item.message.content if isinstance(block, Text)]
    count = view_tokens(view, limits(128_000), PLAIN)
    assert count >= sum(map(len, texts))
    assert count >= sum(map(Tokenizer().count, texts))
    chosen = plan(view, limits=limits(128_000), estimator=PLAIN, keep=keep)
    assert isinstance(chosen, Plan)
    assert view_tokens(chosen.kept, limits(128_000), PLAIN) <= keep + view_tokens(
        view[:2], limits(128_000), PLAIN
    )
    assert PLAIN.text("x" * 4_000) == 1_000


def png(width: int, height: int) -> str:
    """A valid PNG of random pixels, as base64."""
    rows = b"".join(b"\0" + random.Random(n).randbytes(3 * width) for n in range(height))

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    made = (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(rows, 0))
        + chunk(b"IEND", b"")
    )
    return b64encode(made).decode()


def test_cp22_an_image_is_priced_flat_and_reaches_the_model(tmp_path: Path) -> None:
    found = case("CP22")["input"]["entries"]
    (text, image) = found[1]["message"]["content"]
    data = png(*image["data"]["$png"])
    assert len(data) > 1_500_000
    message = {"role": "user", "content": [text, {**image, "data": data}]}
    stored(tmp_path, [found[0], {**found[1], "message": message}])
    play = Play(say("grey"))

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, play, clock) as host:
            await host.command(KEY, "/status")
            assert host.directory.awake[KEY].scales.tokens < 10_000
            await clock.sleep(30)

    virtual(main)
    assert not compactions(tmp_path)
    assert b'"image"' in play.bodies[KEY][0]


def test_cp13_one_result_near_the_window_is_cut_and_needs_no_summary(tmp_path: Path) -> None:
    told = blown_up(case("CP13")["input"])
    stored(tmp_path, told["entries"])
    play = Play(say("read"))

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, play, clock, info=sized(told["window"])) as host:
            await host.command(KEY, "/status")
            await clock.sleep(30)

    virtual(main)
    assert not play.summaries
    assert play.refused == 0
    (block,) = [
        b
        for m in json.loads(play.bodies[KEY][0])["messages"]
        for b in m["content"]
        if b["type"] == "tool_result"
    ]
    shown = json.dumps(block["content"])
    assert len(shown) <= 128_200
    assert "recall" in shown
    assert block["tool_use_id"]


# --- overflow -------------------------------------------------------------------------------------


def test_cp06_each_overflow_is_one_compaction_and_one_retry(tmp_path: Path) -> None:
    stored(tmp_path, talk(40, 700))
    play = Play(fail("overflow"), fail("overflow"), say("ok"), summary=say(GOOD))

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, play, clock, info=sized(128_000)) as host:
            assert (await ask(host, "prompt")).text == "ok"

    virtual(main)
    assert len(play.bodies[KEY]) == 3
    assert len(compactions(tmp_path)) == 2
    assert said_by_users(session_path(tmp_path)).count("prompt") == 1
    assert not [
        m for m in messages(session_path(tmp_path), "assistant") if m["message"]["stopReason"] == "error"
    ]


def test_cp07_a_turn_of_many_results_is_checked_before_every_call(tmp_path: Path) -> None:
    tool = tells("dump", "a line of eight words or so in it\n" * 700)
    script = [ScriptedReply((Text("on"), _call("dump", n))) for n in range(50)]
    play = Play(*script, say("the answer"), summary=say(GOOD))

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, play, clock, info=sized(128_000), tools=[tool]) as host:
            assert (await ask(host, "count ALL the lines, εν")).text == "the answer"

    virtual(main)
    assert play.refused == 0
    assert compactions(tmp_path)
    assert all("count ALL the lines, εν" in body.decode() for body in play.bodies[KEY])
    last = json.loads(play.bodies[KEY][-1])["messages"]
    assert [b["type"] for b in last[-1]["content"]] == ["tool_result"]


def _call(name: str, n: int) -> Any:
    from perdure.edges.models.reply import call as called

    return called(name, f"toolu_{n}")


def test_cp14_a_first_message_over_the_window_is_refused_or_the_floor_and_later_covered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = blown_up(case("CP14")["input"])
    huge = told["entries"][1]["message"]["content"][0]["text"]
    info = sized(told["window"])
    counted = Counted(monkeypatch)

    async def fresh(clock: VirtualClock) -> None:
        async with hosted(tmp_path, Play(), clock, info=info) as host:
            with pytest.raises(MessageTooLarge, match=r"\d.*tokens.*\d"):
                await host.send(KEY, huge)

    virtual(fresh)
    folder = tmp_path / "stored"
    folder.mkdir()
    path = stored(folder, told["entries"])
    play = Play(say("fine"), summary=say(GOOD))

    async def main(clock: VirtualClock) -> None:
        async with hosted(folder, play, clock, info=info) as host:
            await host.command(KEY, "/status")
            await clock.sleep(30)
            (end,) = messages(path, "assistant")
            assert end["message"]["stopReason"] == "error"
            assert not play.summaries
            before = counted.all
            for _ in range(2):
                pressed(host)
                await clock.sleep(1)
            assert counted.all <= before + 1
            assert (await ask(host, "and now?")).text == "fine"

    virtual(main)
    (done,) = compactions(folder)
    assert "[Large user (~" in done["summary"]
    assert huge[:50] in History(path).text("e1")


# --- summaries that are none ----------------------------------------------------------------------


def test_cp08_a_summary_larger_than_what_it_covers_is_not_committed(tmp_path: Path) -> None:
    told = blown_up(case("CP08")["input"])
    path = stored(tmp_path, told["entries"])
    before = path.stat().st_size
    play = Play(summary=say(told["fake_model"]["summary"]))

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, play, clock) as host:
            answer = await host.command(KEY, "/compact")
            assert answer.startswith("Nothing was compacted")
            assert "\n" not in answer
            state = host.directory.awake[KEY].compacting.state
            assert state.hopeless == host.directory.awake[KEY].transcript.leaf

    virtual(main)
    assert not compactions(tmp_path)
    assert not [
        e for e in entries(path) if e["type"] == "message" and e["id"] not in ("e1", "e2", "e3", "e4")
    ]
    assert path.stat().st_size >= before


CP09: dict[str, ScriptedReply] = {
    "empty": say(" \n"),
    "thinking": ScriptedReply((Thinking("hm, what was that?", "sig"),)),
    "refusal": say("I can't help"),
    "cut": say("three words only", stop="length"),
}


@pytest.mark.parametrize("variant", CP09)
def test_cp09_no_bad_answer_and_no_own_last_words_become_the_summary(variant: str, tmp_path: Path) -> None:
    assert len(case("CP09")["input"]["variants"]) == len(CP09)
    stored(tmp_path, talk(6, 1_600))
    play = Play(summary=CP09[variant])

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, play, clock, info=sized(128_000)) as host:
            assert (await host.command(KEY, "/compact")).startswith("Compacted")

    virtual(main)
    (done,) = compactions(tmp_path)
    assert proof(done)["rung"] == "digest"
    assert done["summary"].startswith("Context contained ")
    own = text_of(messages(session_path(tmp_path), "assistant")[-1]["message"])
    assert own not in done["summary"]


def test_cp19_names_the_summary_lost_stand_beside_it_byte_for_byte() -> None:
    told = blown_up(case("CP19")["input"])
    view = (*case_view(told["entries"]), Item("e3", user("go on")), Item("e4", says("yes")))
    done, _ = folded(view, always(told["fake_model"]["summary"]), 128_000, plan={"keep": 1, "force": False})
    names = (
        "7f3c9a52-0b1e-4c77-9d6a-3a5c1e9b2f10",
        "db-2.internal:6543",
        "9fceb02d0ae598e95dc970b74767f19372d61af8",
    )
    assert all(name in done.summary for name in names)
    assert set(names) <= set(done.proof.carried)


# --- requests to the summariser -------------------------------------------------------------------


def test_cp11_no_message_is_dropped_to_fit_the_summary_request() -> None:
    told = case("CP11")["input"]["fake_model"]
    fact = "the vault code 7731 was set"
    made = [
        user("start"),
        says(fact),
        *[m for n in range(60) for m in (user(f"{n} {WORDS * 25}"), says(WORDS * 20))],
    ]
    real = Tokenizer()

    def answer(ask: Ask) -> Reply:
        large = real.count(ask.prompt) + real.count(ask.system) + ask.max_tokens > told["max_input"]
        return Failed("overflow") if large else Answered(told["summary"])

    done, asked = folded(items(*made), answer, 200_000, window=told["max_input"])
    assert isinstance(done, Done)
    assert sum(span.count for span in done.proof.spans) == len(done.plan.covered)
    assert any(fact in ask.prompt for ask in asked)
    assert all(real.count(a.prompt) + real.count(a.system) + a.max_tokens <= told["max_input"] for a in asked)
    sent = {entry for ask in asked for entry in ask.entries}
    assert sent == {item.entry for item in done.plan.covered}
    assert "7731" in done.summary


def test_cp12_long_thinking_and_custom_messages_are_cut_into_requests_that_fit() -> None:
    told = case("CP12")["input"]["fake_model"]
    odd = ToolResult(
        "c1", "chart", (Text("ok"), Image("QUJD" * 9_000, "image/png")), details=b'"xyzzy-details"'
    )
    made = [user("go"), says(call("c1", "chart")), odd]
    for n in range(850):
        made.append(Custom("note", (Text(f"note {n}: {WORDS * 3}"),)))  # type: ignore[arg-type]
        if n % 10 == 0:
            made.append(says(Thinking(WORDS * 60), f"step {n}"))
    view = items(*made, user("and?"), says("yes"))
    real, window = Tokenizer(), 300_000
    done, asked = folded(view, always(told["summary"]), window, window=told["max_input"])
    assert isinstance(done, Done)
    for request in asked:
        assert (real.count(request.prompt) + real.count(request.system)) * 1.2 <= told["max_input"]
        assert "QUJD" not in request.prompt
        assert "xyzzy" not in request.prompt
    assert done.proof.tokens_after < limits(window).threshold
    assert done.proof.rung == done.rung


def test_cp16_an_image_is_a_notice_in_the_summary_request_and_its_text_stays() -> None:
    view = case_view(blown_up(case("CP16")["input"])["entries"])
    _, asked = folded(view, always(GOOD), 128_000)
    assert asked
    assert all("QUJD" not in ask.prompt for ask in asked)
    assert "chart_id=3\n[1 image not shown]" in asked[0].prompt


def test_cp37_no_summary_request_asks_for_more_than_the_model_can_give(tmp_path: Path) -> None:
    told = case("CP37")["input"]["fake_model"]
    stored(tmp_path, talk(60, 2_400))
    info = sized(1_000_000, max_output=told["max_output"])
    play = Play(summary=say(told["summary"]))

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, play, clock, info=info, accounting=False) as host:
            assert (await host.command(KEY, "/compact")).startswith("Compacted")

    virtual(main)
    assert play.refused == 0
    assert all(json.loads(body)["max_tokens"] <= told["max_output"] for body in play.summaries)


# --- the second compaction ------------------------------------------------------------------------


def test_cp17_a_view_that_ends_in_a_compaction_and_is_too_large_is_compacted_again(tmp_path: Path) -> None:
    told = blown_up(case("CP17")["input"])
    stored(tmp_path, told["entries"])
    play = Play(summary=say("Task T-41 is still open; c and f were said at length."))

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, play, clock, info=sized(told["window"])) as host:
            await host.command(KEY, "/status")
            assert (await host.command(KEY, "/compact")).startswith("Compacted")
            session = host.directory.awake[KEY]
            assert session.scales.tokens <= session.environment.limits.threshold

    virtual(main)
    old, new = compactions(tmp_path)
    assert old["summary"] in json.dumps([json.loads(body) for body in play.summaries])
    assert new["firstKeptEntryId"] not in ("e3", "e1")
    assert "T-41" in new["summary"]


def test_cp18_the_kept_tail_of_the_first_compaction_is_in_the_second() -> None:
    view = case_view(blown_up(case("CP18")["input"])["entries"])
    done, asked = folded(view, always(GOOD), 128_000, plan={"keep": 1, "force": False})
    told = "".join(ask.prompt for ask in asked)
    kept = json.dumps([str(item.message) for item in done.plan.kept])
    assert "S1" in told
    for text in ("u2 KEEPME", "a2 a2", "u4"):
        assert text in told or text in kept


# --- interleavings --------------------------------------------------------------------------------


async def begun(host: Host, clock: VirtualClock, gate: Gate) -> None:
    """Wait until a background compaction is at the gate."""
    for n in range(40):
        if gate.begun.done:
            return
        await ask(host, f"question {n} {WORDS * 20}")
        await clock.sleep(0.1)
    raise AssertionError("nothing was compacted")


def test_cp02_a_commit_that_always_fails_backs_off_and_every_turn_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = case("CP02")["input"]["fake_model"]
    stored(tmp_path, talk(12, 300))
    counted = Counted(monkeypatch)
    settings = Settings(compaction=CompactionSettings(threshold_tokens=9_000))
    monkeypatch.setattr(Done, "prove_again", lambda *_a, **_k: Refusal("entry not covered", "always"))
    play = Play(summary=say(told["summary"]))

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, play, clock, info=SMALL, settings=settings) as host:
            await host.command(KEY, "/status")
            assert host.directory.awake[KEY].scales.tokens > 9_000
            for _ in range(10):
                assert (await ask(host, "on")).stop == "stop"
                await clock.sleep(5)
            assert 3 <= host.directory.awake[KEY].compacting.state.failures < 10

    virtual(main)
    assert counted.most <= 3
    assert not compactions(tmp_path)


def test_cp26_what_came_while_a_summary_was_made_stays_and_after_new_it_is_dropped(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        for variant in ("append", "clear"):
            folder = tmp_path / variant
            folder.mkdir()
            gate = Gate(clock, say(GOOD))
            play = Play(*[say(WORDS * 40) for _ in range(30)], summary=gate)
            async with hosted(folder, play, clock, info=SMALL) as host:
                await begun(host, clock, gate)
                if variant == "append":
                    await ask(host, "new")
                else:
                    await host.command(KEY, "/new")
                gate.open()
                await clock.sleep(5)
                await ask(host, "after")
                sent = play.bodies[KEY][-1].decode()
                assert ("new" in sent, GOOD in sent) == (variant == "append",) * 2
                assert len(compactions(folder)) == (variant == "append")

    virtual(main)


def test_cp27_two_triggers_make_one_compaction_and_a_failed_one_may_be_tried_again(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        for ending, done in ((say(GOOD), 1), (fail("auth"), 0)):
            folder = tmp_path / str(done)
            folder.mkdir()
            gate = Gate(clock, ending)
            play = Play(*[say(WORDS * 40) for _ in range(30)], summary=gate)
            async with hosted(folder, play, clock, info=SMALL) as host:
                await begun(host, clock, gate)
                sent = await host.send(KEY, "a turn whose check fires, too")
                await clock.sleep(1)
                assert len(play.summaries) == 1
                gate.open()
                assert (await sent.reply(1_000)).stop == "stop"
                await clock.sleep(5)
                assert len(compactions(folder)) == done
                play.summary = say(GOOD)
                for _ in range(3):
                    await ask(host, "on")
                    await clock.sleep(600)
                assert compactions(folder)

    virtual(main)


def test_cp30_a_summariser_that_hangs_ends_at_its_deadline_and_the_session_goes_on(tmp_path: Path) -> None:
    stored(tmp_path, talk(12, 400))
    play = Play(summary=fail("stall"))

    async def main(clock: VirtualClock) -> None:
        timing = Timing(model_idle=20, summary=100)
        async with hosted(tmp_path, play, clock, timing=timing) as host:
            started = clock.now()
            answer = await host.command(KEY, "/compact")
            assert answer.startswith("Nothing was compacted")
            assert clock.now() - started <= 101
            assert (await ask(host, "still there?")).stop == "stop"
            assert host.directory.awake[KEY].compacting.at_rest

    virtual(main)
    assert not compactions(tmp_path)


def test_cp31_a_smaller_window_than_before_compacts_before_anything_is_sent(tmp_path: Path) -> None:
    """The session grew under a larger window and goes on under a smaller one, from its next request on."""
    stored(tmp_path, talk(60, 900))
    play = Play(say("fits"), summary=say(GOOD))

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, play, clock, info=sized(64_000)) as host:
            await host.command(KEY, "/status")
            assert host.directory.awake[KEY].scales.tokens > 140_000
            assert (await ask(host, "prompt")).text == "fits"

    virtual(main)
    assert play.refused == 0
    assert compactions(tmp_path)
    assert all(len(body) < 64_000 * 4 for body in (*play.summaries, *play.bodies[KEY]))


@pytest.mark.parametrize("ending", ["done", "fails", "aborted"])
def test_cp36_messages_during_a_compaction_run_in_order_once_each(ending: str, tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        gate = Gate(clock, fail("auth") if ending == "fails" else say(GOOD))
        play = Play(*[say(WORDS * 40) for _ in range(30)], summary=gate)
        async with hosted(tmp_path, play, clock, info=SMALL) as host:
            await begun(host, clock, gate)
            play.queues[KEY].clear()
            sent = [await host.send(KEY, text) for text in ("m1", "m2")]
            if ending == "aborted":
                await host.abort(KEY)
            gate.open()
            replies = [await one.reply(1_000) for one in sent]
            assert all(reply.stop == "stop" for reply in replies) or ending == "aborted"
            assert (await ask(host, "m3")).stop == "stop"

    virtual(main)
    told = said_by_users(session_path(tmp_path))
    assert [text for text in told if text in ("m1", "m2", "m3")] == ["m1", "m2", "m3"]

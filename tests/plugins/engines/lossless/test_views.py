"""What is sent: the same bytes until a compaction, payloads as notes once decided, branches followed."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers_lossless import START, Bench, bench, gist, run, summaries, turn
from helpers_messages import call, result, says, user
from perdure.contracts import EngineContext, TurnReport
from perdure.errors import ConfigError, ModelError
from perdure.plugins.engines.lossless import live
from perdure.plugins.engines.lossless.pieces import Node, Raw, moment
from perdure.plugins.engines.lossless.settings import configured
from perdure.records import Item, Summary


async def grown(tmp_path: Path, turns: int = 16, **settings: object) -> Bench:
    b = bench(tmp_path, **settings)
    for n in range(turns):
        await b.say(*turn(n))
    return b


# --- the prefix -----------------------------------------------------------------------------------


def test_what_was_sent_is_sent_again_until_a_compaction(tmp_path: Path) -> None:
    async def main() -> None:
        b = await grown(tmp_path)
        await b.compact()
        last, changes, passes = await b.sent(), 0, len(b.runtime.logged)
        for n in range(16, 40):
            for item in turn(n):
                await b.say(item)
                sent = await b.sent()
                if sent[: len(last)] != last:
                    changes += 1
                    assert len(b.runtime.logged) > passes
                last, passes = sent, len(b.runtime.logged)
        assert 0 < changes < 12

    run(main)


def test_the_same_is_sent_after_a_restart(tmp_path: Path) -> None:
    async def main() -> None:
        b = await grown(tmp_path)
        await b.compact()
        sent = await b.sent()
        await b.reopened()
        assert await b.sent() == sent

    run(main)


def test_a_step_reads_nothing_from_the_database_and_not_the_older_messages(tmp_path: Path) -> None:
    async def main() -> None:
        b = await grown(tmp_path, 40)
        await b.compact()
        await b.sent()

        def forbidden(work: object) -> None:
            raise AssertionError("the database was asked")

        real = b.runtime.run_blocking
        older = len(b.runtime.stored) - 20
        looked: list[int] = []

        class Watched(tuple):  # type: ignore[type-arg]
            def __getitem__(self, at: object) -> object:
                if isinstance(at, int):
                    looked.append(at)
                return tuple.__getitem__(self, at)  # type: ignore[index]

        b.runtime.run_blocking = forbidden  # type: ignore[assignment]
        await b.engine.assemble(b.context, Watched(b.runtime.stored))
        b.runtime.run_blocking = real  # type: ignore[method-assign]
        assert min(at % len(b.runtime.stored) for at in looked if at) >= older - 20

    run(main)


def test_sessions_in_memory_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "SESSIONS", 5)

    async def main() -> None:
        b = bench(tmp_path)
        for n in range(12):
            one = Bench(b.runtime, b.engine, id=f"s{n}", key=f"agent:main:cli:dm:{n}")
            b.runtime.stored = ()
            await one.say(*turn(n))
            await one.sent()
        assert len(b.engine.sessions.cache) == 5
        await b.engine.dispose()
        assert len(b.engine.sessions.cache) == 0

    run(main)


def test_a_summary_says_what_it_is(tmp_path: Path) -> None:
    async def main() -> None:
        b = await grown(tmp_path)
        await b.compact()
        made = await b.engine.assemble(b.context, b.runtime.stored)
        assert "history_expand" in made.addition
        node = next(p for p in await b.view() if isinstance(p, Node))
        head = summaries(made.messages)[0].split("\n")[0]
        assert head == (
            f'<summary id="{node.id}" kind="leaf" depth="0" descendants="{node.messages}" '
            f'earliest="2026-01-05T08:00:00Z" latest="{moment(node.latest)}" trust="untrusted">'
        )
        assert node.earliest == START

    run(main)


# --- batches and the newest turn ------------------------------------------------------------------


def test_parallel_calls_and_their_results_are_never_parted(tmp_path: Path) -> None:
    async def main() -> None:
        b = bench(tmp_path)
        for n in range(30):
            calls = [call(f"c{n}_{k}") for k in range(5)]
            await b.say(Item(f"u{n}", user(f"go {n}")), Item(f"a{n}", says(*calls, stop="toolUse")))
            for k in range(5):
                await b.say(Item(f"r{n}_{k}", result(f"c{n}_{k}", "word " * 30)))
                sent = await b.sent()
                called = {
                    block.id
                    for i in sent
                    for block in getattr(i.message, "content", ())
                    if hasattr(block, "id")
                }
                answered = {i.message.call_id for i in sent if hasattr(i.message, "call_id")}
                assert answered <= called
                assert called - answered <= {f"c{n}_{m}" for m in range(k + 1, 5)}
            await b.say(Item(f"e{n}", says("done")))

    run(main)


def test_the_newest_request_stays_word_for_word_however_long_its_turn(tmp_path: Path) -> None:
    async def main() -> None:
        b = await grown(tmp_path)
        await b.say(Item("ask", user("Exactly this, please: ⟦keep me⟧")))
        for n in range(60):
            await b.say(
                Item(f"x{n}", says(call(f"k{n}"), stop="toolUse")), Item(f"y{n}", result(f"k{n}", "w " * 200))
            )
        assert (await b.compact(force=True)).compacted
        view = await b.sound()
        at = next(n for n, p in enumerate(view) if isinstance(p, Raw) and p.entry == "ask")
        assert isinstance(view[at - 1], Node)
        assert isinstance(view[at + 1], Node)
        assert "⟦keep me⟧" in str(await b.sent())

    run(main)


# --- branches and what the host leaves out --------------------------------------------------------


def test_a_branch_that_goes_back_into_what_was_covered_brings_it_back(tmp_path: Path) -> None:
    async def main() -> None:
        b = await grown(tmp_path, 20)
        whole = b.runtime.stored
        await b.compact()
        compacted = await b.sound()
        b.runtime.stored = whole[:10]
        await b.say(*turn(50, "another way"))
        sent = await b.sent()
        assert [item.entry for item in sent if item.entry] == [item.entry for item in b.runtime.stored]
        assert not any(isinstance(piece, Node) for piece in await b.sound())
        assert "t15-u" in await b.use("grep", pattern="step 15 of")  # nothing is deleted
        b.runtime.stored = whole
        assert await b.sent() == (await b.sent())
        assert await b.sound() == compacted  # and back again

    run(main)


def test_entries_that_the_host_leaves_out_by_its_rules_are_no_branch(tmp_path: Path) -> None:
    async def main() -> None:
        b = await grown(tmp_path, 20)
        await b.compact()
        view = await b.sound()
        stored = b.runtime.stored
        asked: list[str] = []
        real = b.runtime.history

        async def history(after: str = "", limit: int = 1_000) -> object:
            asked.append(after)
            return await real(after, limit)

        b.runtime.history = history  # type: ignore[method-assign, assignment]
        given = tuple(item for item in stored if item.entry != stored[-4].entry)
        for _ in range(3):
            sent = await b.sent(given)
            assert stored[-4] not in sent
        assert len(asked) == 1
        assert await b.sound() == view

    run(main)


@pytest.mark.parametrize("kept", [1, 4, 30])
def test_a_host_that_gives_only_the_end_of_a_long_view_gets_the_summaries_before_it(
    tmp_path: Path, kept: int
) -> None:
    async def main() -> None:
        b = await grown(tmp_path, 20)
        await b.compact()
        sent = await b.sent(b.runtime.stored[-kept:])
        assert summaries(sent)
        raws = {p.entry for p in await b.view() if isinstance(p, Raw)}
        assert {item.entry for item in sent if item.entry} == raws & {
            i.entry for i in b.runtime.stored[-kept:]
        }

    run(main)


def test_a_summary_of_the_hosts_own_stays_for_what_only_it_stands_for(tmp_path: Path) -> None:
    async def main() -> None:
        b = await grown(tmp_path, 20)
        host = Item("k1", Summary("What the host wrote of the first turns."))
        given = (host, *b.runtime.stored[30:])
        assert (await b.sent(given))[0] == host
        for _ in range(4):
            await b.compact(force=True)
        sent = await b.sent(given)
        assert summaries(sent)
        assert host not in sent

    run(main)


def test_messages_that_were_not_delivered_yet_are_sent_all_the_same(tmp_path: Path) -> None:
    async def main() -> None:
        b = await grown(tmp_path, 20)
        await b.compact()
        b.file(*turn(99))
        sent = await b.sent()
        assert sent[-4:] == b.runtime.stored[-4:]
        made_up = Item("", result("c99_0", "interrupted; it may have run", is_error=True))
        sent = await b.sent((*b.runtime.stored[:-2], made_up, b.runtime.stored[-1]))
        assert made_up in sent

    run(main)


# --- at rest --------------------------------------------------------------------------------------


async def rested(b: Bench, context: EngineContext | None = None) -> None:
    await b.engine.after_turn(context or b.context, TurnReport(b.runtime.stored[-4:], b.runtime.stored))


def test_a_turns_end_over_the_soft_line_makes_one_leaf_by_a_model(tmp_path: Path) -> None:
    async def main() -> None:
        b = await grown(tmp_path, 4, background=True)
        await rested(b)
        assert not b.runtime.asked
        for n in range(4, 16):
            await b.say(*turn(n))
        await rested(b)
        assert [p.depth for p in await b.sound() if isinstance(p, Node)] == [0]
        assert len(b.runtime.asked) == 1

    run(main)


def test_a_turns_end_asks_no_model_that_is_gone_or_slow_for_a_while(tmp_path: Path) -> None:
    async def main() -> None:
        b = await grown(tmp_path, background=True)

        def gone(prompt: str, system: str) -> str:
            raise ModelError("auth", "no key")

        b.runtime.answer = gone
        for _ in range(3):
            await rested(b)
        assert len(b.runtime.asked) == 1

        def slow(prompt: str, system: str) -> str:
            b.runtime.now += 20_000
            return gist(prompt)

        b.runtime.answer = slow
        b.runtime.now += 400_000
        for _ in range(3):
            await rested(b)
        assert len(b.runtime.asked) == 2

    run(main)


def test_what_changes_while_a_summary_is_written_makes_it_void(tmp_path: Path) -> None:
    async def main() -> None:
        b = await grown(tmp_path)
        once = []

        def answer(prompt: str, system: str) -> str:
            if not once:  # a request that doesn't fit digests the same messages meanwhile
                once.append(1)
                store = b.engine.sessions._store
                assert store is not None
                store.path(b.id, [item.entry for item in b.runtime.stored[:6]])
            return gist(prompt)

        b.runtime.answer = answer
        await b.compact()
        await b.sound()

    run(main)


# --- settings -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "what"),
    [
        ({"fresh_cuont": 1}, "unknown key"), ({"soft_share": 2.0}, "a share"),
        ({"fresh_count": 0}, "positive"), ({"target_share": 0.9}, "not above"),
        ({"condensed_sources": 1}, "two at least"), ({"rounds": "x"}, "rounds"),
    ],
)  # fmt: skip
def test_a_wrong_setting_is_told_in_one_line(table: dict[str, object], what: str) -> None:
    with pytest.raises(ConfigError, match=what) as told:
        configured(table)
    assert "plugins.config.lossless" in str(told.value)
    assert "\n" not in str(told.value)


def test_the_defaults_are_valid() -> None:
    assert configured({}).fresh_count == 48

"""The engine over a fake runtime: delivery, requests, compactions, what is kept."""

from __future__ import annotations

from pathlib import Path

from helpers_lossless import BUDGET, bench, run, summaries, turn
from perdure.records import Item


def test_nothing_is_changed_while_everything_fits(tmp_path: Path) -> None:
    async def main() -> None:
        b = bench(tmp_path)
        await b.say(*turn(1))
        given = b.runtime.stored
        made = await b.engine.assemble(b.context, given)
        assert made.messages is given
        assert made.addition == ""
        assert made.estimated_tokens == b.runtime.estimate(given)

    run(main)


def test_a_compaction_puts_summaries_in_place_of_the_oldest_and_keeps_the_newest(tmp_path: Path) -> None:
    async def main() -> None:
        b = bench(tmp_path)
        for n in range(30):
            await b.say(*turn(n))
        done = await b.compact()
        assert done.compacted
        assert done.tokens_after < done.tokens_before
        assert done.tokens_after <= BUDGET // 2
        sent = await b.sent()
        assert summaries(sent)
        assert sent[-4:] == b.runtime.stored[-4:]
        assert b.runtime.estimate(sent) <= BUDGET
        await b.sound()

    run(main)


def test_a_long_conversation_fits_at_each_step_without_any_model(tmp_path: Path) -> None:
    async def main() -> None:
        b = bench(tmp_path)
        for n in range(60):
            for item in turn(n):
                await b.say(item)
                sent = await b.sent()
                assert b.runtime.estimate(sent) <= BUDGET
        assert not b.runtime.asked
        await b.sound()

    run(main)


def test_redelivery_changes_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        b = bench(tmp_path)
        items: tuple[Item, ...] = tuple(turn(1) + turn(2))
        await b.say(*items)
        view = await b.view()
        assert await b.engine.ingest_batch(b.context, items) == 0
        assert not await b.engine.ingest(b.context, items[0])
        assert await b.view() == view
        assert (await b.engine.bootstrap(b.context)).cursor == items[-1].entry

    run(main)

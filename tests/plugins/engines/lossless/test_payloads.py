"""Large payloads are kept apart; messages of every kind come back as they were."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers_lossless import Bench, bench, run, summaries, turn
from helpers_messages import call, result, says, user
from perdure.plugins.engines.lossless import rows
from perdure.plugins.engines.lossless.payloads import payload, structure
from perdure.records import Bash, BranchSummary, Custom, Image, Item, Opaque, Text, Thinking, User


def test_a_large_payload_is_shown_whole_until_it_is_decided_and_then_as_its_note_for_good(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        b = bench(tmp_path, payload_chars=2_000)
        text = '{"rows": [' + ", ".join(str(n) for n in range(2_000)) + '], "total": 2000}'
        await b.say(Item("u", user("load it")), Item("a", says(call("c1"), stop="toolUse")))
        await b.say(Item("r", result("c1", text)))
        assert text in str(await b.sent())  # no call has shown it yet
        await b.say(Item("e", says("It has 2000 rows.")), Item("u2", user("thanks")))
        assert text not in str(await b.sent())
        sent = str(await b.sent())
        assert "large payload sha256:" in sent or "large payload" in str(summaries(await b.sent()))
        digest = payload(text).digest
        assert (await b.use("describe", id=digest[:16])).startswith('{"rows": [')
        await b.reopened()
        assert str(await b.sent()) == sent
        await b.engine.rebuild(b.context)
        assert str(await b.sent()) == sent
        await b.sound()

    run(main)


def test_a_payload_is_searched_to_its_end_and_belongs_to_its_session(tmp_path: Path) -> None:
    async def main() -> None:
        b = bench(tmp_path, payload_chars=2_000)
        text = "line\n" * 5_000 + "the needle 针 is here\n" + "line\n" * 5_000
        await b.say(Item("r", result("c1", text)))
        assert "needle" in await b.use("grep", pattern="needle")
        assert "needle" in await b.use("grep", pattern="n.edle", mode="regex")
        b.runtime.stored = ()
        other = Bench(b.runtime, b.engine, id="session-2", key="agent:main:cli:dm:other")
        await b.engine.ingest_batch(other.context, tuple(turn(1)))
        assert (await other.output("describe", id=payload(text).digest)).is_error

    run(main)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"a": 1, "b": [2]}', "JSON object of 2 keys: a, b"),
        ('[{"x": 1}, {"x": 2}]', "JSON array of 2 elements, each with x"),
        ("def one():\n  pass\nclass Two:\n  pass", "code; declares one, Two"),
        ("# Top\ntext\n## Part\n", "document; headings: Top | Part"),
        ("a,b,c\n1,2,3\n4,5,6\n", "comma-separated table; columns: a,b,c"),
        ("just words", "plain text"), ("{ not json", "plain text"), ("", "plain text"),
    ],
)  # fmt: skip
def test_the_note_of_a_payload_tells_its_structure(text: str, told: str) -> None:
    assert structure(text) == told


def test_messages_of_every_kind_come_back_as_they_were(tmp_path: Path) -> None:
    messages = [
        User((Text("hi", "sig"), Image("A" * 20_000, "image/png"), Image("QQ==", "image/png"))),
        says(Thinking("hm", "s"), "text", call("c1", arguments='{"a":"\\ud83d"}'), Opaque("video", b"{}")),
        result("c1", "lone \ud83d half", details=b'{"k":1}'),
        Bash("ls", "out", 1), BranchSummary("left", "e1", 5), Custom("note", (Text("x"),), False, 9),
    ]  # fmt: skip

    async def main() -> None:
        b = bench(tmp_path)
        items = tuple(Item(f"m{n}", message) for n, message in enumerate(messages))
        await b.say(*items)
        store = await b.engine.sessions.store()
        with store.db.reading() as db:
            session = rows.session(db, b.id)
            assert session is not None
            found = rows.items(db, session.no, [item.entry for item in items], whole=True)
        assert found["m2"].message == result("c1", "lone \ufffd half", details=b'{"k":1}')
        for item in (*items[:2], *items[3:]):
            assert found[item.entry] == item
        assert not await b.engine.check(b.id)

    run(main)

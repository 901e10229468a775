"""Searching, reading and opening what was said; grants for subagents."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from helpers_lossless import Bench, bench, files, run, text_of, turn
from helpers_messages import result, says, user
from perdure.contracts import Spawn
from perdure.plugins.engines.lossless.patterns import BadPattern, Pattern
from perdure.plugins.engines.lossless.pieces import Node
from perdure.records import Item

CHILD = "agent:main:subagent:1"


async def spoken(tmp_path: Path) -> Bench:
    """A compacted conversation in several languages."""
    b = bench(tmp_path)
    said = {
        "zh": "数据库的迁移失败了，因为外键约束没有关闭；请修复订单服务。",
        "ja": "データベースの移行に失敗しました。注文サービスを直してください。",
        "ko": "데이터베이스 마이그레이션이 실패했습니다. 주문 서비스를 고쳐 주세요.",
        "en": "The Migration of the orders database failed on a foreign key.",
        "odd": '100% of "quoted" text_with_underscores AND (NEAR) operators* -- and \\ backslashes',
    }
    for n, (entry, text) in enumerate(said.items()):
        await b.say(Item(entry, user(text)), Item(f"{entry}-a", says(f"answer {n}")))
    for n in range(12):
        await b.say(*turn(n))
    assert (await b.compact(force=True)).compacted
    return b


@pytest.mark.parametrize(
    ("pattern", "entry"),
    [
        ("外键约束", "zh"), ("订单", "zh"), ("迁移 订单", "zh"), ("移行", "ja"), ("注文サービス", "ja"),
        ("마이그레이션", "ko"), ("주문", "ko"), ("migration ORDERS", "en"), ("text_with_underscores", "odd"),
        ("100%", "odd"), ('"quoted"', "odd"), ("(NEAR)", "odd"), ("operators*", "odd"), ("--", "odd"),
        ("\\", "odd"), ("quoted AND", "odd"),
    ],
)  # fmt: skip
def test_words_are_found_in_every_script(tmp_path: Path, pattern: str, entry: str) -> None:
    async def main() -> None:
        b = await spoken(tmp_path)
        found = await b.use("grep", pattern=pattern, scope="messages")
        assert found.startswith(f"[{entry}] user"), found
        assert "\n" not in found

    run(main)


def test_lines_are_found_by_regular_expressions_newest_first(tmp_path: Path) -> None:
    async def main() -> None:
        b = await spoken(tmp_path)
        found = await b.use("grep", pattern=r"part(3|5)\.py has \d+ func", mode="regex", scope="messages")
        assert [line.split("]")[0] for line in found.splitlines()] == ["[t5-e", "[t3-e"]
        assert "[zh]" in await b.use("grep", pattern="外键.束", mode="regex")
        assert "[en]" in await b.use("grep", pattern="MIGRATION", mode="regex", ignore_case=True)
        assert "Nothing" in await b.use("grep", pattern="MIGRATION", mode="regex", scope="messages")

    run(main)


@pytest.mark.parametrize(
    "pattern",
    ["(a", "a{3", "(?=x)", "(a)\\1", "[a", "a{1,9999}", "(a{99}){99}", "x" * 301, "(?P<n>a)", "\\p{L}"],
)
def test_patterns_that_are_none_are_refused_in_one_line(tmp_path: Path, pattern: str) -> None:
    async def main() -> None:
        b = await spoken(tmp_path)
        output = await b.output("grep", pattern=pattern, mode="regex")
        assert output.is_error
        assert "\n" not in text_of(output)
        assert "full_text" in text_of(output)

    run(main)


@pytest.mark.parametrize(
    "pattern", ["(a+)+$", "(a|aa)+b", "(a*)*b", "((a+)*)*c", "(.*a){12}x", "(a?){9}a{9}"]
)
def test_patterns_that_backtrack_for_ever_elsewhere_end_here(pattern: str) -> None:
    assert Pattern(pattern, ignore_case=False).lines("a" * 20_000 + "!") in (
        [], [(1, "a" * 2_000)], [(1, "a" * 200 + "!")],
    )  # fmt: skip


def test_a_search_ends_when_its_time_is_over(tmp_path: Path) -> None:
    async def main() -> None:
        b = await spoken(tmp_path)
        clock = iter(range(0, 10**9, 4_000))
        b.runtime.wall_ms = lambda: next(clock)  # type: ignore[method-assign]
        found = await b.use("grep", pattern="nowhere", mode="regex", scope="messages")
        assert "ended after 5 s" in found

    run(main)


def test_a_pattern_is_compiled_once_and_says_what_is_wrong() -> None:
    with pytest.raises(BadPattern, match="unmatched"):
        Pattern("(a", ignore_case=False)


def test_a_summary_is_opened_to_a_depth_and_in_pages(tmp_path: Path) -> None:
    async def main() -> None:
        b = bench(tmp_path, condensed_sources=2, routine_depth=9)
        b.budget = 1_200
        for n in range(40):
            await b.say(*turn(n))
            await b.sent()
        await b.compact(force=True)
        top = max((p for p in await b.sound() if isinstance(p, Node)), key=lambda node: node.depth)
        assert top.depth >= 2
        flat = await b.use("expand", id=top.id)
        deep = await b.use("expand", id=top.id, depth=9, tokens=16_000)
        assert "[t0-u]" not in flat
        assert "[t0-u]" in deep
        first = await b.use("expand", id=top.id, depth=9, tokens=600)
        assert b.runtime.estimate((Item("", user(first)),)) <= 640
        after = first.rsplit('after="', 1)[1].removesuffix('"]')
        second = await b.use("expand", id=top.id, depth=9, tokens=600, after=after)
        assert second.split("\n")[0] not in first
        assert (await b.output("expand", id=top.id, after="nobody")).is_error

    run(main)


def test_a_long_message_is_read_in_pages_to_its_end(tmp_path: Path) -> None:
    async def main() -> None:
        b = await spoken(tmp_path)
        whole = "".join(f"line {n} of 这一行\n" for n in range(2_000))
        await b.say(Item("long", result("c9", whole)))
        read, start = "", 0
        while True:
            page = await b.use("describe", id="long", start=start, tokens=1_000)
            assert b.runtime.estimate((Item("", user(page)),)) <= 1_000
            body = page if start else page.removeprefix("[long] tool read:\n")
            more = re.search(r'\n\[[\d,]+ more characters: history_describe id="long" start=(\d+)\]$', body)
            read += body[: more.start()] if more else body
            if more is None:
                break
            start = int(more[1])
        assert read == whole

    run(main)


def test_what_is_told_of_a_summary_says_whose_and_how_it_was_made(tmp_path: Path) -> None:
    async def main() -> None:
        b = await spoken(tmp_path)
        node = next(p for p in await b.sound() if isinstance(p, Node))
        told = await b.use("describe", id=node.id)
        assert f"{node.messages} messages" in told
        assert "by a model (normal)" in told
        assert "trust untrusted" in told
        assert node.sources[0].removeprefix("m:") in told

    run(main)


def test_schemas_are_closed_objects_that_name_what_they_require(tmp_path: Path) -> None:
    for tool in bench(tmp_path).engine.tools():
        schema = json.loads(tool.spec.schema)
        assert schema["additionalProperties"] is False
        assert set(schema["required"]) <= set(schema["properties"])


# --- grants ---------------------------------------------------------------------------------------


async def granted(b: Bench, **more: int) -> object:
    spawn = Spawn(b.key, CHILD, b.id, "look it up", **more)
    return await b.engine.prepare_subagent_spawn(b.context, spawn)


async def child(b: Bench, tool: str = "grep", **arguments: object) -> str:
    output = await b.output(tool, session=CHILD, session_id="child-1", of="parent", **arguments)
    return ("refused: " if output.is_error else "") + text_of(output)


def test_a_child_reads_its_parents_conversation_only_with_a_grant_and_until_its_end(tmp_path: Path) -> None:
    async def main() -> None:
        b = await spoken(tmp_path)
        assert (await child(b, pattern="外键约束")).startswith("refused")
        await granted(b)
        assert "[zh]" in await child(b, pattern="外键约束")
        assert (await b.output("grep", session=CHILD, session_id="child-1", pattern="外键约束")).is_error
        other = await b.output("grep", session="agent:main:subagent:2", of="parent", pattern="外键")
        assert other.is_error
        await b.engine.on_subagent_ended(b.context, CHILD, "completed")
        assert (await child(b, pattern="外键约束")).startswith("refused")

    run(main)


def test_a_rollback_takes_a_grant_back(tmp_path: Path) -> None:
    async def main() -> None:
        b = await spoken(tmp_path)
        rollback = await granted(b)
        assert callable(rollback)
        await rollback()
        assert (await child(b, pattern="外键约束")).startswith("refused")

    run(main)


def test_a_grant_ends_with_its_time_its_tokens_and_its_depth(tmp_path: Path) -> None:
    async def main() -> None:
        b = await spoken(tmp_path)
        await granted(b, ttl_ms=1_000)
        b.runtime.now += 999
        assert not (await child(b, pattern="外键约束")).startswith("refused")
        b.runtime.now += 1
        assert (await child(b, pattern="外键约束")).startswith("refused")
        assert (await b.engine.maintain(b.context, "turn")).changed

        await granted(b)
        reads = 0
        while not (await child(b, "describe", id="t1-r0")).startswith("refused"):
            reads += 1
            assert reads < 1_000
        assert reads >= 3

    run(main)


def test_a_grant_outlives_a_restart_of_the_host(tmp_path: Path) -> None:
    async def main() -> None:
        b = await spoken(tmp_path)
        await granted(b)
        await b.reopened()
        assert "[zh]" in await child(b, pattern="外键约束")

    run(main)


def test_a_deleted_childs_conversation_is_deleted_from_the_store(tmp_path: Path) -> None:
    async def main() -> None:
        b = await spoken(tmp_path)
        kid = Bench(b.runtime, b.engine, id="child-1", key=CHILD)
        await b.engine.ingest_batch(kid.context, tuple(turn(77, "the secret of the child")))
        await b.engine.on_subagent_ended(b.context, CHILD, "deleted")
        assert await kid.view() == ()
        await b.engine.dispose()
        assert all(b"the secret of the child" not in f.read_bytes() for f in files(tmp_path))

    run(main)

"""Undo in a running host: the next prompt has the bytes it would have had without the compaction."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from helpers_host import (
    INFO,
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
    said_by_users,
    session_path,
    tells,
    virtual,
)
from helpers_sessions import line, user
from perdure.actors.messages import Command
from perdure.edges.models.reply import say
from perdure.edges.session import swap
from perdure.edges.session.load import load
from perdure.edges.session.tail import open_session
from perdure.errors import Busy, StorageFailed

LONG = "The plan says: measure twice, cut once, and write down what was cut. " * 40


async def talk(host, first=0, count=6):
    for n in range(first, first + count):
        await ask(host, f"question {n}: {LONG}")


def used_a_tool():
    return Play(calls("look", "look"), say("both seen"), calls("look"), say("seen again"))


def prompts(tmp_path, clock, work, later=1, **options):
    """The bodies of the last turns: with a compaction that is undone, and without one."""

    async def one(name, compacting):
        folder = tmp_path / name
        folder.mkdir()
        play = used_a_tool()
        async with hosted(folder, play, clock, tools=[tells("look", "x" * 3000)], **options) as host:
            await talk(host)
            await work(host, compacting)
            before = len(play.bodies[KEY])
            for n in range(later):
                await ask(host, f"and now {n}?")
            accepted(play.bodies[KEY])
            assert play.refused == 0
        return play.bodies[KEY][before:]

    return one


@pytest.mark.parametrize("turns", [0, 1, 3])
def test_the_next_prompts_have_the_same_bytes_as_without_the_compaction(tmp_path, turns):
    async def main(clock):
        async def work(host, compacting):
            if compacting:
                assert (await host.command(KEY, "/compact")).startswith("Compacted")
            await talk(host, first=10, count=turns)
            if compacting:
                assert (await host.command(KEY, "/undo")).startswith("Undone")

        one = prompts(tmp_path, clock, work, later=2)
        assert await one("undone", True) == await one("never", False)

    virtual(main)


def test_after_a_truncation_the_moved_entries_come_back(tmp_path):
    async def main(clock):
        async def work(host, compacting):
            if compacting:
                await host.command(KEY, "/compact")
            await talk(host, first=10, count=2)
            if compacting:
                assert list(session_path(tmp_path / "undone").parent.glob("*.segments/*"))
                assert (await host.command(KEY, "/undo")).startswith("Undone")

        one = prompts(tmp_path, clock, work, truncate_after=1)
        assert await one("undone", True) == await one("never", False)

    virtual(main)


def test_undo_survives_a_restart_and_a_redelivered_message_is_not_asked_again(tmp_path):
    async def main(clock):
        play = Play()
        async with hosted(tmp_path, play, clock) as host:
            await talk(host)
            await host.command(KEY, "/compact")
            await ask(host, "ping me", mid="m-1")
            await host.command(KEY, "/undo")
        async with hosted(tmp_path, play, clock) as host:
            sent = await host.send(KEY, "ping me", mid="m-1")
            assert sent.receipt.repeated
            assert (await sent.reply(10)).text
            await ask(host, "more")
            shown = [m for m in play.last()["messages"] if m["role"] == "user"]
            assert sum("ping me" in str(m["content"]) for m in shown) == 1
            assert len(shown) == 8
        assert said_by_users(session_path(tmp_path)).count("ping me") == 2  # the first, and its copy

    virtual(main)


def test_undo_that_can_not_fit_is_refused_with_numbers_and_changes_nothing(tmp_path):
    async def main(clock):
        small = replace(INFO, window=8_000)
        play = Play()
        async with hosted(tmp_path, play, clock) as host:
            await talk(host, count=16)
            await host.command(KEY, "/compact")
        before = messages(session_path(tmp_path))
        async with hosted(tmp_path, Play(), clock, info=small) as host:
            told = notices(host)
            answer = await host.command(KEY, "/undo")
            assert "doesn't fit" in answer
            assert "line is 7,200" in answer
            assert told == []
        assert messages(session_path(tmp_path)) == before

    virtual(main)


def test_what_another_program_answered_inside_a_branch_is_seen_with_all_that_was_before_it(tmp_path):
    async def main(clock):
        async with hosted(tmp_path, Play(), clock, truncate_after=1) as host:
            for first in (0, 10):
                await talk(host, first=first)
                await host.command(KEY, "/compact")
            await ask(host, "end")
        path = session_path(tmp_path)
        made = [e for e in entries(path) if e["type"] == "compaction"]
        inside = made[1]["parentId"]
        before = load(path).opened(inside).items
        assert len(before) > len([e for e in entries(path) if e["type"] == "message"])
        with path.open("ab") as other:
            other.write(line(user("x1", inside, "elsewhere")) + b"\n")
        play = Play()
        async with hosted(tmp_path, play, clock) as host:
            await ask(host, "and here")
        assert open_session(path).items[: len(before)] == before

    virtual(main)


def test_a_disk_without_room_leaves_the_compaction_and_the_session_goes_on(tmp_path, monkeypatch):
    async def main(clock):
        play = Play()
        async with hosted(tmp_path, play, clock) as host:
            await talk(host)
            await host.command(KEY, "/compact")
            before = session_path(tmp_path).read_bytes()

            def full(*_, **__):
                raise OSError(28, "No space left on device")

            monkeypatch.setattr(swap.os, "rename", full)
            with pytest.raises(StorageFailed, match="space"):
                await host.command(KEY, "/undo")
            monkeypatch.undo()
            assert session_path(tmp_path).read_bytes() == before
            assert list(session_path(tmp_path).parent.glob("*.tmp")) == []
            assert (await host.command(KEY, "/undo")).startswith("Undone")
            assert (await ask(host, "go on")).stop == "stop"

    virtual(main)


def test_without_a_compaction_there_is_nothing_to_undo(tmp_path):
    async def main(clock):
        async with hosted(tmp_path, Play(), clock) as host:
            await ask(host, "hello")
            assert "nothing to undo" in await host.command(KEY, "/undo")
            assert (await ask(host, "go on")).stop == "stop"

    virtual(main)


def test_undo_waits_for_nobody_while_a_turn_runs(tmp_path):
    async def main(clock):
        gate = Gate(clock)
        async with hosted(tmp_path, Play(gate), clock) as host:
            sent = await host.send(KEY, "slow")
            await gate.arrived()
            with pytest.raises(Busy, match="when the agent rests"):
                await host.command(KEY, "/undo")
            gate.open()
            assert (await sent.reply(100)).stop == "stop"

    virtual(main)


def test_what_is_sent_while_it_is_undone_is_answered_afterwards(tmp_path):
    async def main(clock):
        play = Play()
        async with hosted(tmp_path, play, clock) as host:
            await talk(host)
            await host.command(KEY, "/compact")
            ended = clock.waiter("the undo")
            host.directory.ref(KEY).post(Command("undo", "", ended))
            assert (await ask(host, "meanwhile")).stop == "stop"
            assert (await clock.wait(ended, 10)).startswith("Undone")
            assert len([m for m in play.last()["messages"] if m["role"] == "user"]) == 7

    virtual(main)


def test_a_preview_is_what_the_compaction_then_does_and_stores_nothing(tmp_path):
    async def main(clock):
        play = Play()
        async with hosted(tmp_path, play, clock) as host:
            await talk(host, count=12)
        shutil.copytree(tmp_path / "state", tmp_path / "before")
        async with hosted(tmp_path, play, clock) as host:
            seen = await host.preview_compaction(KEY)
            kept = session_path(tmp_path).read_bytes()
            assert kept == (tmp_path / "before" / session_path(Path("x")).relative_to("x/state")).read_bytes()
            await host.command(KEY, "/compact")
        made = next(e for e in entries(session_path(tmp_path)) if e["type"] == "compaction")
        proof = made["details"]["perdure"]["proof"]
        assert made["summary"] == seen.summary
        assert made["firstKeptEntryId"] == seen.plan.kept[0].entry
        assert (proof["tokens_before"], proof["tokens_after"]) == (
            seen.proof.tokens_before,
            seen.proof.tokens_after,
        )
        assert seen.calls == len(play.summaries) / 2 >= 1

    virtual(main)

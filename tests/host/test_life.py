"""A session over its whole life: sleep, restart, crash, another writer, a full disk, a new beginning."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import anyio
import pytest

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
    real,
    said_by_users,
    session_path,
    tells,
    virtual,
)
from helpers_kernel import each_loop
from helpers_sessions import assistant as foreign_assistant
from helpers_sessions import compaction as foreign_compaction
from helpers_sessions import line
from helpers_sessions import user as foreign_user
from perdure.actors.letters import Letters
from perdure.edges.models.reply import fail, say
from perdure.errors import Closed, Fenced, Parked, PerdureError, StorageFailed
from perdure.kernel.clock import RealClock
from perdure.kernel.run import Backend
from perdure.kernel.virtual import VirtualClock

OTHER = "agent:main:cli:dm:other"


# --- sleep ----------------------------------------------------------------------------------------


@each_loop
def test_sleeping_and_waking_between_turns_keeps_prompts_byte_identical(
    loop: Backend, tmp_path: Path
) -> None:
    def run(folder: Path, most_awake: int) -> tuple[dict[str, list[bytes]], int]:
        folder.mkdir()
        keys = [f"agent:main:cli:dm:{n}" for n in range(3)]
        play = Play()
        for key in keys:
            play.then(calls("look", text="I look"), say("seen"), say("three"), calls("nope"), key=key)

        async def main(clock: VirtualClock) -> int:
            async with hosted(
                folder, play, clock, tools=[tells("look", "x" * 50_000)], most_awake=most_awake
            ) as host:
                for turn in range(5):
                    for key in keys:
                        await ask(host, f"turn {turn}", key=key)
                        await clock.sleep(1)
                assert len(host.directory.awake) == min(most_awake, 3)
                return host.directory.sleeps

        return play.bodies, virtual(main, loop)

    awake, none = run(tmp_path / "a", 10)
    asleep, many = run(tmp_path / "b", 1)
    assert (none, many >= 14) == (0, True)
    assert awake == asleep


def test_a_session_woken_by_a_command_alone_sleeps_again(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, Play(), clock, most_awake=2) as host:
            for n in range(6):
                await host.command(f"agent:main:cli:dm:{n}", "/status")
            await clock.sleep(1)
            assert len(host.directory.awake) == 2

    virtual(main)


def test_a_session_that_works_is_not_put_to_sleep(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        gate = Gate(clock, say("after all"))
        async with hosted(tmp_path, Play(gate), clock, most_awake=1) as host:
            sent = await host.send(KEY, "go")
            await gate.arrived()
            for n in range(4):
                await ask(host, "hi", key=f"agent:main:cli:dm:{n}")
            gate.open()
            assert (await sent.reply()).text == "after all"

    virtual(main)


def test_a_host_that_stops_in_the_middle_of_everything_leaves_no_lock_behind(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        play = Play(say("x", latency=3))
        async with hosted(tmp_path, play, clock, most_awake=1) as host:
            for n in range(3):
                await host.send(f"agent:main:cli:dm:{n}", "hi")
            await host.send(KEY, "hi")
        assert host.left_whole
        assert not list((tmp_path / "state").rglob("*.lock.*"))
        assert not list((tmp_path / "state").rglob("*.jsonl.lock"))

    virtual(main)


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_a_program_that_is_cancelled_leaves_its_files_whole_and_no_turn_aborted(
    loop: Backend, tmp_path: Path
) -> None:
    async def main() -> None:
        clock = RealClock()
        gate = Gate(clock)
        with anyio.CancelScope() as scope:
            async with hosted(tmp_path, Play(gate), clock) as host:
                await host.send(KEY, "go")
                await gate.arrived()
                scope.cancel()
                await anyio.sleep_forever()
        assert host.left_whole
        assert [e["message"]["role"] for e in messages(session_path(tmp_path))] == ["user"]
        assert not list((tmp_path / "state").rglob("*.jsonl.lock"))

    real(main, loop)


# --- crashes of the host --------------------------------------------------------------------------


@each_loop
def test_an_interrupted_turn_is_taken_up_once_and_no_tool_runs_twice_by_itself(
    loop: Backend, tmp_path: Path
) -> None:
    async def main(clock: VirtualClock) -> None:
        gate = Gate(clock)
        fast = tells("fast")
        play = Play(calls("fast", "slow"), say("taken up"))
        host = hosted(tmp_path, play, clock, tools=[fast, gate.tool("slow")])
        await host.__aenter__()
        await host.send(KEY, "go", mid="m")
        await gate.arrived()
        await host.send(KEY, "steer", mid="n")
        host.kill()
        await host.__aexit__(None, None, None)
        slow = tells("slow")
        async with hosted(tmp_path, play, clock, tools=[fast, slow]) as host:
            await clock.sleep(5)
            again = await host.send(KEY, "go", mid="m")
            assert again.receipt.repeated
            assert (await again.reply()).text == "taken up"
        assert (fast.runs, slow.runs) == (1, 0)
        results = [b for b in play.last()["messages"][2]["content"] if b["type"] == "tool_result"]
        assert ["may have run" in json.dumps(b) for b in results] == [False, True]
        assert len(play.bodies[KEY]) == 2
        accepted(play.bodies[KEY])

    virtual(main, loop)
    assert said_by_users(session_path(tmp_path)) == ["go", "steer"]


def test_a_turn_that_ends_its_host_each_time_is_taken_up_three_times_at_most(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        play = Play()
        for n in range(6):
            gate = Gate(clock)
            play.queues[KEY].clear()
            play.then(gate)
            host = hosted(tmp_path, play, clock)
            await host.__aenter__()
            if not n:
                await host.send(KEY, "go")
            await clock.sleep(1)
            host.kill()
            await host.__aexit__(None, None, None)
        assert len(play.bodies[KEY]) == 4  # the first, and three resumes

    virtual(main)


def test_an_interrupted_turn_is_not_taken_up_again_by_sleep_and_waking(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        play = Play(fail("auth"), say("fine"))
        async with hosted(tmp_path, play, clock, most_awake=1) as host:
            await ask(host, "go")
            for _ in range(3):
                await ask(host, "hi", key=OTHER)
                await clock.sleep(1)
                await host.command(KEY, "/status")
        assert len(play.bodies[KEY]) == 1

    virtual(main)


def test_letters_that_waited_when_the_host_died_are_answered_after_the_restart(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        gate = Gate(clock)
        play = Play(gate, say("now"))
        host = hosted(tmp_path, play, clock)
        await host.__aenter__()
        await host.send(KEY, "one")
        await gate.arrived()
        for n in range(3):
            await host.send(KEY, f"waits {n}", mid=f"w{n}")
        host.kill()
        await host.__aexit__(None, None, None)
        async with hosted(tmp_path, play, clock) as host:
            await clock.sleep(5)
            again = await host.send(KEY, "waits 1", mid="w1")
            assert again.receipt.repeated
            assert (await again.reply()).text == "now"

    virtual(main)
    assert said_by_users(session_path(tmp_path)) == ["one", "waits 0", "waits 1", "waits 2"]


# --- crashes of an actor --------------------------------------------------------------------------


def test_a_session_whose_handler_breaks_begins_anew_from_its_file_and_neighbours_live(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deliver, broken = Letters.deliver, [0]

    def sometimes(self: Letters, mail: Any) -> None:
        deliver(self, mail)
        if mail.letter.mid == "poison" and broken[0] < 1:
            broken[0] += 1
            raise RuntimeError("a bug")

    monkeypatch.setattr(Letters, "deliver", sometimes)

    async def main(clock: VirtualClock) -> None:
        gate = Gate(clock, say("neighbour"))
        play = Play(say("first"))
        play.then(gate, key=OTHER)
        async with hosted(tmp_path, play, clock) as host:
            neighbour = await host.send(OTHER, "hi")
            await gate.arrived()
            assert (await ask(host, "one")).text == "first"
            sent = await host.send(KEY, "two", mid="poison")
            with pytest.raises(PerdureError, match="same id"):
                await sent.reply(100)
            again = await host.send(KEY, "two", mid="poison")
            assert again.receipt.repeated
            assert (await again.reply(100)).text == "ok 2"
            assert (await ask(host, "three")).stop == "stop"
            gate.open()
            assert (await neighbour.reply()).text == "neighbour"
            assert host.kernel.stats().crashes == 1
        assert play.refused == 0

    virtual(main)
    assert said_by_users(session_path(tmp_path)) == ["one", "two", "three"]


def test_a_message_that_breaks_its_session_each_time_is_parked_and_others_go_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deliver = Letters.deliver

    def breaks(self: Letters, mail: Any) -> None:
        if mail.letter.mid == "poison":
            raise RuntimeError("a bug")
        deliver(self, mail)

    monkeypatch.setattr(Letters, "deliver", breaks)

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, Play(), clock) as host:
            await ask(host, "one")
            with pytest.raises((PerdureError, RuntimeError)):
                await host.send(KEY, "two", mid="poison", timeout=5)
            assert (await ask(host, "three")).stop == "stop"
            assert [type(p.message).__name__ for p in host.kernel.parked()] in ([], ["Deliver"])

    virtual(main)
    assert said_by_users(session_path(tmp_path)) == ["one", "three"]


def test_a_session_that_breaks_again_and_again_is_parked_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deliver = Letters.deliver

    def breaks(self: Letters, mail: Any) -> None:
        if self.session.key == KEY:
            raise RuntimeError("a bug")
        deliver(self, mail)

    monkeypatch.setattr(Letters, "deliver", breaks)

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, Play(), clock) as host:
            refused: list[type[BaseException]] = []
            for n in range(8):
                try:
                    await host.send(KEY, f"{n}", timeout=1)
                except Exception as error:
                    refused.append(type(error))
            assert refused[-1] is Parked
            assert len(refused) == 8
            assert (await ask(host, "hi", key=OTHER)).stop == "stop"

    virtual(main)


def test_a_turn_of_a_crashed_session_cannot_pass_for_one_of_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deliver, broken = Letters.deliver, [0]

    def breaks(self: Letters, mail: Any) -> None:
        if mail.letter.mid == "poison" and broken[0] < 1:
            broken[0] += 1
            raise RuntimeError("a bug")
        deliver(self, mail)

    monkeypatch.setattr(Letters, "deliver", breaks)

    async def main(clock: VirtualClock) -> None:
        gate = Gate(clock, say("from the old turn"))
        play = Play(gate, say("from the new turn"))
        async with hosted(tmp_path, play, clock) as host:
            old = await host.send(KEY, "one")
            await gate.arrived()
            new = await host.send(KEY, "two", mid="poison")
            with pytest.raises(PerdureError, match="same id"):
                await old.reply(100)
            assert (await new.reply(100)).text == "from the new turn"
        assert [e["message"]["stopReason"] for e in messages(session_path(tmp_path), "assistant")] == ["stop"]

    virtual(main)


# --- other writers --------------------------------------------------------------------------------


def append_foreign(path: Path, *rows: dict[str, Any]) -> None:
    with path.open("ab") as file:
        file.write(b"".join(line(row) + b"\n" for row in rows))


def test_ours_goes_behind_what_another_program_appended_between_our_turns(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        play = Play(say("one"))
        async with hosted(tmp_path, play, clock) as host:
            await ask(host, "hi")
            path = session_path(tmp_path)
            leaf = messages(path)[-1]["id"]
            rows = foreign_user("f1", leaf, "from elsewhere"), foreign_assistant("f2", "f1", "theirs")
            append_foreign(path, *rows)
            await ask(host, "and on")
        assert messages(path)[4]["parentId"] == "f2"
        assert [m["role"] for m in play.last()["messages"]] == ["user", "assistant"] * 2 + ["user"]
        assert "from elsewhere" in play.bodies[KEY][-1].decode()

    virtual(main)


def test_a_foreign_branch_that_does_not_descend_from_ours_is_left_aside(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        play = Play(say("one"))
        async with hosted(tmp_path, play, clock) as host:
            await ask(host, "hi")
            path = session_path(tmp_path)
            ours = messages(path)[-1]["id"]
            append_foreign(path, foreign_user("f1", None, "another root"))
            await ask(host, "and on")
            await ask(host, "and on")
        assert messages(path)[3]["parentId"] == ours
        assert "another root" not in play.bodies[KEY][-1].decode()

    virtual(main)


def test_a_foreign_compaction_that_covers_our_leaf_becomes_our_view(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        play = Play(say("one"))
        async with hosted(tmp_path, play, clock) as host:
            await ask(host, "hi")
            path = session_path(tmp_path)
            theirs = foreign_user("f1", messages(path)[-1]["id"], "from elsewhere")
            append_foreign(path, theirs, foreign_compaction("f2", "f1", "f1"))
            await ask(host, "and on")
        assert messages(path)[3]["parentId"] == "f2"
        sent = play.bodies[KEY][-1].decode()
        assert ("from elsewhere" in sent, '"hi"' in sent) == (True, False)

    virtual(main)


def test_a_foreign_append_in_the_middle_of_a_turn_is_taken_in(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        gate = Gate(clock, say("ours"))
        play = Play(gate)
        async with hosted(tmp_path, play, clock) as host:
            sent = await host.send(KEY, "hi")
            await gate.arrived()
            path = session_path(tmp_path)
            append_foreign(path, foreign_user("f1", messages(path)[-1]["id"], "meanwhile"))
            gate.open()
            assert (await sent.reply()).text == "ours"
            assert (await ask(host, "next")).stop == "stop"
        assert play.refused == 0
        assert "meanwhile" in play.bodies[KEY][-1].decode()

    virtual(main)


def test_a_file_that_was_taken_away_is_told_once_and_the_session_begins_anew(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        play = Play()
        async with hosted(tmp_path, play, clock) as host:
            await ask(host, "hi")
            session_path(tmp_path).unlink()
            with pytest.raises(Fenced, match="nothing was acknowledged"):
                await host.send(KEY, "where are you?")
            assert (await ask(host, "again")).stop == "stop"

    virtual(main)
    assert said_by_users(session_path(tmp_path)) == ["again"]


# --- a full disk ----------------------------------------------------------------------------------


class FullDisk:
    """Writes to session files; nothing is taken while `full`, and a few bytes first with `short`."""

    def __init__(self) -> None:
        self.full, self.short, self.tries = False, 0, 0

    def write(self, fd: int, data: bytes, path: Any) -> int:
        if not self.full or not str(path).endswith(".jsonl"):
            return os.write(fd, data)
        self.tries += 1
        if self.short:
            return os.write(fd, data[: self.short])
        raise OSError(28, "No space left on device")


@pytest.fixture(params=[0, 7], ids=["refused", "short"])
def disk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> FullDisk:
    full = FullDisk()
    full.short = request.param
    monkeypatch.setattr("perdure.edges.disk.write", full.write)
    return full


@each_loop
def test_a_full_disk_acknowledges_nothing_and_a_later_message_works(
    loop: Backend, tmp_path: Path, disk: FullDisk
) -> None:
    async def main(clock: VirtualClock) -> None:
        play = Play()
        async with hosted(tmp_path, play, clock) as host:
            await ask(host, "one")
            disk.full = True
            before = session_path(tmp_path).read_bytes()
            for _ in range(2):
                with pytest.raises(StorageFailed, match="make room"):
                    await host.send(KEY, "lost", mid="m")
            assert session_path(tmp_path).read_bytes() == before
            disk.full = False
            sent = await host.send(KEY, "two", mid="m")
            assert not sent.receipt.repeated
            assert (await sent.reply()).stop == "stop"

    virtual(main, loop)
    assert said_by_users(session_path(tmp_path)) == ["one", "two"]


def test_a_disk_that_fills_during_a_turn_ends_it_with_a_typed_error(tmp_path: Path, disk: FullDisk) -> None:
    async def main(clock: VirtualClock) -> None:
        gate = Gate(clock)
        play = Play(calls("slow", "fast"), say("fine"))
        async with hosted(tmp_path, play, clock, tools=[gate.tool("slow"), tells("fast")]) as host:
            sent = await host.send(KEY, "go")
            await gate.arrived()
            disk.full = True
            gate.open()
            reply = await sent.reply()
            assert reply.stop == "error"
            assert "make room" in reply.errors[-1]
            disk.full = False
            assert (await ask(host, "again")).text == "fine"
        assert play.refused == 0
        accepted(play.bodies[KEY])

    virtual(main)
    assert all(json.loads(row) for row in session_path(tmp_path).read_bytes().splitlines())


def test_letters_that_wait_out_a_full_disk_are_answered_in_their_order(
    tmp_path: Path, disk: FullDisk
) -> None:
    async def main(clock: VirtualClock) -> None:
        gate = Gate(clock, say("x"))
        play = Play(gate)
        async with hosted(tmp_path, play, clock) as host:
            one = await host.send(KEY, "one")
            await gate.arrived()
            waiting = [await host.send(KEY, f"waits {n}") for n in range(2)]
            disk.full = True
            gate.open()
            assert (await one.reply()).stop == "error"
            await clock.sleep(60)
            assert 2 <= disk.tries < 60  # it tries now and then, not all the time
            disk.full = False
            late = await host.send(KEY, "late")
            for sent in (*waiting, late):
                assert (await sent.reply(100)).stop == "stop"
        assert play.refused == 0

    virtual(main)
    assert said_by_users(session_path(tmp_path)) == ["one", "waits 0", "waits 1", "late"]


# --- /new -----------------------------------------------------------------------------------------


def test_a_new_session_names_the_old_file_as_its_parent_and_knows_nothing_of_it(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        play = Play()
        async with hosted(tmp_path, play, clock) as host:
            await ask(host, "the secret is plums")
            await host.command(KEY, "/new")
            await ask(host, "hello")
            path = session_path(tmp_path)
            parent = Path(entries(path)[0]["parentSession"])
            assert said_by_users(parent) == ["the secret is plums"]
            assert said_by_users(path) == ["hello"]
            assert list(host.files.earlier(KEY)) == [parent]
        assert "plums" not in play.bodies[KEY][-1].decode()

    virtual(main)


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_messages_that_come_while_a_new_session_is_made_are_not_lost(loop: Backend, tmp_path: Path) -> None:
    async def main() -> None:
        play, texts = Play(), [f"m{n}" for n in range(40)]

        async def send(host: Any) -> None:
            for text in texts:
                await host.send(KEY, text, mid=text)

        async with hosted(tmp_path, play, RealClock()) as host:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(send, host)
                for _ in range(5):
                    await host.command(KEY, "/new")
            files = [*host.files.earlier(KEY), session_path(tmp_path)]
            stored = b"".join(path.read_bytes() for path in files)
            assert [stored.count(f'"mid":"{text}"'.encode()) >= 1 for text in texts] == [True] * 40
        assert play.refused == 0

    real(main, loop)


def test_a_new_session_during_a_turn_stops_it_and_tells_who_waits(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        gate = Gate(clock)
        play = Play(gate)
        async with hosted(tmp_path, play, clock) as host:
            running = await host.send(KEY, "one")
            await gate.arrived()
            waiting = await host.send(KEY, "two")
            await host.command(KEY, "/new")
            assert (await running.reply(10)).stop == "aborted"
            with pytest.raises(Closed):
                await waiting.reply(10)
            assert (await ask(host, "hello")).stop == "stop"

    virtual(main)
    assert said_by_users(session_path(tmp_path)) == ["hello"]


def test_a_summary_of_the_old_session_never_lands_in_the_new_one(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        gate = Gate(clock, say("The plums are secret and were counted at length."))
        play = Play(*[say("plums " * 4000) for _ in range(8)], summary=gate)
        async with hosted(tmp_path, play, clock) as host:
            for n in range(8):
                await ask(host, f"about plums {n}")
            async with anyio.create_task_group():
                compact = clock.waiter("compaction")
                host.kernel.start(
                    "test", lambda: host.command(KEY, "/compact"), on_end=lambda job, out: compact.set(out)
                )
                await gate.arrived()
                await host.command(KEY, "/new")
                await ask(host, "hello")
                gate.open()
                await clock.sleep(10)
            await ask(host, "and on")
        assert "plums" not in session_path(tmp_path).read_text()
        assert "plums" not in play.bodies[KEY][-1].decode()

    virtual(main)

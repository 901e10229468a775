"""Reported faults of subagents, each with the right outcome: every end reaches the parent once, by letter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from helpers_cases import covers
from helpers_host import KEY, Fn, Gate, ask, hosted, messages, session_path, text_of, virtual
from helpers_kernel import each_loop
from helpers_subagents import (
    Nursery,
    children,
    letters,
    nursery,
    quiet,
    relatives,
    spawning,
    states,
    until,
    using,
)
from perdure.actors.services import Timing
from perdure.actors.transcript import Transcript
from perdure.contracts import ToolContext
from perdure.edges.models.reply import fail, say
from perdure.errors import Busy, ModelError, StorageFailed
from perdure.kernel.run import Backend
from perdure.kernel.virtual import VirtualClock


def hangs(name: str = "hang") -> Fn:
    """A tool that waits for ever."""

    async def fn(_arguments: object, _context: ToolContext) -> str:
        await anyio.sleep_forever()
        return ""

    return Fn(name, fn)


def stuck(clock: VirtualClock, name: str = "hang") -> Fn:
    """The same where time is virtual: it waits for a day."""

    async def fn(_arguments: object, _context: ToolContext) -> str:
        await clock.sleep(86_400.0)
        return ""

    return Fn(name, fn)


@covers("SU01")
@each_loop
def test_su01_a_result_that_comes_in_the_middle_of_a_turn_waits_in_the_file_and_comes_once(
    loop: Backend, tmp_path: Path
) -> None:
    async def main(clock: VirtualClock) -> None:
        gate = Gate(clock)
        play = Nursery(spawning("R1"), using("wait_here"), say("done with it"))
        play.child("R1", say("R1 is the result"))
        async with nursery(tmp_path, play, clock, tools=[gate.tool("wait_here")]) as host:
            sent = await host.send(KEY, "go")
            await gate.arrived()
            await until(clock, lambda: states(tmp_path) == ["completed"])
            assert len(letters(tmp_path)) == 1  # durable, while the turn still runs
            await clock.sleep(30)
            gate.open()
            assert (await sent.reply(100)).text == "done with it"
            await quiet(host, clock)
            assert [text.count("R1 is the result") for _, _, text in letters(tmp_path)] == [1]
            shown = str(play.last())
            assert shown.count("R1 is the result") == 1

    virtual(main, loop)


class Refusing:
    """The parent's file takes no result, so many times."""

    def __init__(self, times: int, patch: pytest.MonkeyPatch) -> None:
        self.left, self.tried = times, 0
        for name in ("hold", "receive"):
            patch.setattr(Transcript, name, self._wrapped(getattr(Transcript, name)))

    def _wrapped(self, take: Any) -> Any:
        def refused(transcript: Transcript, letter: Any) -> Any:
            if letter.sender.startswith("agent:main:subagent:"):
                self.tried += 1
                self.left -= 1
                if self.left >= 0:
                    raise StorageFailed("no room")
            return take(transcript, letter)

        return refused


@covers("SU02")
@pytest.mark.parametrize("restarts", [False, True])
def test_su02_a_result_whose_delivery_fails_ten_times_is_kept_with_the_child_and_comes_once(
    restarts: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main(clock: VirtualClock) -> None:
        play = Nursery(spawning("R2"), say("begun"), say("I have it"))
        play.child("R2", say("R2 is the result"))
        faulty = Refusing(10, monkeypatch)
        async with nursery(tmp_path, play, clock) as host:
            await ask(host, "go")
            await until(clock, lambda: faulty.tried >= 3)
            child = children(tmp_path)[0].grant.child
            own = relatives(tmp_path, child).own
            assert own is not None
            assert own.ending is not None
            assert own.ending.text == "R2 is the result"
            assert not own.told
            if not restarts:
                await until(clock, lambda: states(tmp_path) == ["completed"], 2_000, step=20)
                assert faulty.tried == 11
        if restarts:
            faulty.left = 0
            async with nursery(tmp_path, play, clock) as host:
                await until(clock, lambda: states(tmp_path) == ["completed"])
                await quiet(host, clock)
        assert len(letters(tmp_path)) == 1
        assert relatives(tmp_path, child).own.told  # type: ignore[union-attr]

    virtual(main)


@covers("SU02")
def test_su02_a_full_inbox_is_a_delivery_that_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure.actors.letters.MOST_WAITING", 2)

    async def main(clock: VirtualClock) -> None:
        gate = Gate(clock)
        play = Nursery(spawning("R2"), using("wait_here"))
        play.child("R2", say("R2 is the result", latency=5.0))
        async with nursery(tmp_path, play, clock, tools=[gate.tool("wait_here")]) as host:
            sent = await host.send(KEY, "go")
            await gate.arrived()
            waiting = [await host.send(KEY, f"m{n}") for n in range(2)]
            with pytest.raises(Busy):
                await host.send(KEY, "one too many")
            await clock.sleep(60)
            assert states(tmp_path) == ["running"]
            gate.open()
            for each in (sent, *waiting):
                await each.reply(100)
            await until(clock, lambda: states(tmp_path) == ["completed"])
            assert len(letters(tmp_path)) == 1

    virtual(main)


@covers("SU03")
def test_su03_a_child_that_times_out_without_a_word_tells_its_parent_so_once(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        play = Nursery(spawning("slow", runTimeoutSeconds=1), say("begun"), say("too bad"))
        play.child("slow", say("never", latency=50.0))
        async with nursery(tmp_path, play, clock) as host:
            await ask(host, "go")
            await quiet(host, clock)
            assert clock.now() < 10
            assert states(tmp_path) == ["timeout"]
            ((_, _, text),) = letters(tmp_path)
            assert "status: timed out" in text
            assert "runtime 1s" in text
            assert "(no output)" in text
            assert play.last()["messages"][-1]["role"] == "user"  # a turn was begun for it

    virtual(main)


@covers("SU04")
def test_su04_a_child_that_fails_and_one_over_its_budget_are_told_as_that(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        play = Nursery(spawning("fails"), spawning("spends", maxTokens=1_500), say("begun"))
        play.child("fails", ModelError("auth", "the key is wrong"))
        play.child("spends", *[using("sessions_list")] * 50)
        async with nursery(tmp_path, play, clock) as host:
            await ask(host, "go")
            await quiet(host, clock)
            assert states(tmp_path) == ["failed", "budget"]
            failed, budget = (text for _, _, text in letters(tmp_path))
            assert "status: failed: the key is wrong" in failed
            assert "its budget is used up" in budget
            spent = children(tmp_path)[1].ending.spent  # type: ignore[union-attr]
            assert 1_000 < spent.tokens < 4_500  # the last call may go over it, and no other

    virtual(main)


@covers("SU04")
@pytest.mark.parametrize(
    ("limits", "reason"),
    [({"max_total": 1}, "queue"), ({"max_children": 1}, "children"), ({"max_depth": 1}, "depth")],
)
def test_su04_a_child_that_finds_no_room_is_refused_in_the_result_of_the_call(
    limits: dict[str, int], reason: str, tmp_path: Path
) -> None:
    async def main(clock: VirtualClock) -> None:
        deep = reason == "depth"
        play = Nursery(spawning("first") if deep else spawning("first", "second"), say("begun"))
        play.child("first", spawning("second") if deep else say("one", latency=5.0), say("one"))
        async with nursery(tmp_path, play, clock, **limits) as host:
            await ask(host, "go")
            await quiet(host, clock)
            asked = children(tmp_path)[0].grant.child if deep else KEY
            results = [text_of(m["message"]) for m in messages(session_path(tmp_path, asked), "toolResult")]
            assert sum(f'"reason":"{reason}"' in text for text in results) == 1
            assert states(tmp_path) == ["completed"]
            assert len(letters(tmp_path)) == 1  # of the one that ran; the other never was

    virtual(main)


@covers("SU04")
def test_su04_turns_that_fill_the_providers_queue_refuse_the_child_and_nothing_of_it_stays(
    tmp_path: Path,
) -> None:
    async def main(clock: VirtualClock) -> None:
        play = Nursery(spawning("no room"), say("begun"))
        async with nursery(tmp_path, play, clock) as host:
            admit = host.services.gates.admit

            def full(key: str, provider: str) -> None:
                if ":subagent:" in key:
                    raise Busy("all places are taken")
                admit(key, provider)

            host.services.gates.admit = full  # type: ignore[method-assign]
            await ask(host, "go")
            await quiet(host, clock)
            assert states(tmp_path) == ["rejected"]
            assert letters(tmp_path) == []
            (result,) = messages(session_path(tmp_path), "toolResult")
            assert '"reason":"queue"' in text_of(result["message"])
            assert not list((tmp_path / "state").rglob("*subagent*.jsonl"))

    virtual(main)


@covers("SU04")
def test_su04_a_child_that_can_be_opened_no_more_is_reaped_after_its_deadline(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        play = Nursery(spawning("stale", runTimeoutSeconds=30), say("begun"), say("noted"))
        play.child("stale", say("never", latency=1_000.0))
        host = nursery(tmp_path, play, clock)
        async with host:
            await ask(host, "go")
            child = children(tmp_path)[0].grant.child
            host.kill()
        session_path(tmp_path, child).write_bytes(b"\x7fELF nothing that anybody could read\n")
        async with nursery(tmp_path, play, clock) as host:
            await until(clock, lambda: states(tmp_path) == ["swept"])
            await quiet(host, clock)
            ((_, _, text),) = letters(tmp_path)
            assert "status: reaped" in text

    virtual(main)


@covers("SU05")
@pytest.mark.parametrize("how", ["while it runs", "while the host is down", "deleted by command"])
def test_su05_a_child_whose_session_is_gone_is_lost_and_who_waits_wakes(how: str, tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        play = Nursery(spawning("goes"), using("sessions_wait"), say("so it is lost"), say("so it is lost"))
        play.child("goes", using("hang"), say("never"))
        timing = Timing(tool=120.0)
        host = nursery(tmp_path, play, clock, tools=[stuck(clock)], timing=timing)
        async with host:
            sent = await host.send(KEY, "go")
            await until(clock, lambda: len(play.of) == 1)
            await clock.sleep(5)
            child = children(tmp_path)[0].grant.child
            if how == "while the host is down":
                host.kill()
            elif how == "deleted by command":
                await host.delete(child)
            else:
                session_path(tmp_path, child).unlink()
            if not how.endswith("down"):
                reply = await sent.reply(1_000)
                assert reply.text == "so it is lost"
                await quiet(host, clock)
        if how.endswith("down"):
            session_path(tmp_path, child).unlink()
            async with nursery(tmp_path, play, clock, tools=[stuck(clock)]) as host:
                await until(clock, lambda: states(tmp_path) == ["lost"])
                await quiet(host, clock)
        assert states(tmp_path) == ["lost"]
        assert [text.count("status: lost") for _, _, text in letters(tmp_path)] == [1]

    virtual(main)


@covers("SU06")
@each_loop
def test_su06_a_parent_that_waits_for_children_can_be_interrupted_and_loses_nothing(
    loop: Backend, tmp_path: Path
) -> None:
    async def main(clock: VirtualClock) -> None:
        play = Nursery(spawning("X", "Y"), using("sessions_wait", timeoutSeconds=3_000))
        play.then(say("m1 is answered"), say("X is through"))
        play.child("X", using("hang"), say("X gave up"))
        play.child("Y", say("Y is done", latency=2.0))
        timing = Timing(tool=500.0)
        async with nursery(tmp_path, play, clock, tools=[stuck(clock)], timing=timing) as host:
            first = await host.send(KEY, "go")
            await until(clock, lambda: "completed" in states(tmp_path))
            assert [text for _, _, text in letters(tmp_path) if "Y is done" in text]  # durable at once
            m1 = await host.send(KEY, "m1", mid="m1")
            at = clock.now()
            assert await host.abort(KEY)
            assert (await first.reply(10)).stop == "aborted"
            assert clock.now() - at < 1.0
            assert (await m1.reply(10)).text == "m1 is answered"
            assert str(play.last()).count("Y is done") == 1
            await quiet(host, clock, 2_000)
            assert states(tmp_path) == ["completed", "completed"]
            assert 490 < clock.now() < 700  # X ended at its tool's deadline
            assert len(letters(tmp_path)) == 2
            assert len([b for b in play.bodies[KEY] if b'"m1"' in b]) >= 1

    virtual(main, loop)


@covers("SU10")
def test_su10_children_whose_tasks_are_killed_are_lost_each_once_and_never_shown_as_done(
    tmp_path: Path,
) -> None:
    async def main(clock: VirtualClock) -> None:
        play = Nursery(spawning("a", "b", "c"), using("sessions_wait"), say("all three are lost"))
        for task in "abc":
            play.child(task, using("hang"))
        async with nursery(tmp_path, play, clock, tools=[stuck(clock)]) as host:
            sent = await host.send(KEY, "go")
            await until(clock, lambda: len(play.of) == 3)
            await clock.sleep(5)
            assert states(tmp_path) == ["running"] * 3
            for key in list(play.of):
                job = host.directory.awake[key].turns.job
                assert job is not None
                job.cancel()
            assert (await sent.reply(100)).text == "all three are lost"
            await quiet(host, clock)
            assert states(tmp_path) == ["lost"] * 3
            found = letters(tmp_path)
            assert len(found) == len({who for who, _, _ in found}) == 3
            assert all("status: lost: its task was killed" in text for _, _, text in found)

    virtual(main)


@covers("SU10")
def test_su10_after_a_kill_of_the_host_what_can_go_on_does_and_what_cannot_is_lost(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        play = Nursery(spawning("a", "b", "c"), say("begun"), say("noted"), say("noted"), say("noted"))
        for task in "abc":
            play.child(task, using("hang"), say(f"{task} went on"))
        host = nursery(tmp_path, play, clock, tools=[stuck(clock)])
        async with host:
            await ask(host, "go")
            await until(clock, lambda: len(play.of) == 3)
            await clock.sleep(5)
            host.kill()
        assert states(tmp_path) == ["running"] * 3
        gone = children(tmp_path)[0].grant.child
        session_path(tmp_path, gone).unlink()
        async with nursery(tmp_path, play, clock, tools=[stuck(clock)]) as host:
            await until(clock, lambda: "running" not in states(tmp_path))
            await quiet(host, clock)
        assert states(tmp_path) == ["lost", "completed", "completed"]
        assert len(letters(tmp_path)) == 3

    virtual(main)


@covers("SU10")
def test_su10_a_child_that_ends_its_host_again_and_again_is_lost_at_last(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        play = Nursery(spawning("deadly"), say("begun"), say("noted"))
        play.child("deadly", *[say("never", latency=1_000.0)] * 9)
        for life in range(6):
            host = nursery(tmp_path, play, clock)
            async with host:
                if not life:
                    await ask(host, "go")
                await clock.sleep(5)
                if life < 5 and states(tmp_path) == ["running"]:
                    host.kill()
                    continue
                await until(clock, lambda: states(tmp_path) == ["lost"])
                await quiet(host, clock)
                break
        ((_, _, text),) = letters(tmp_path)
        assert "could not be taken up again" in text

    virtual(main)


def test_a_provider_that_fails_for_a_while_fails_no_child(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        play = Nursery(spawning("later"), say("begun"), say("noted"))
        play.child("later", fail("overloaded", retry_after=600.0), say("after all"))
        async with nursery(tmp_path, play, clock) as host:
            await ask(host, "go")
            await clock.sleep(100)
            assert states(tmp_path) == ["running"]
            await until(clock, lambda: states(tmp_path) == ["completed"], 2_000)
            assert "after all" in letters(tmp_path)[0][2]

    virtual(main)


def test_a_host_without_the_setting_offers_no_such_tool(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, Nursery(), clock) as host:
            assert not [name for name in host.services.tools if name.startswith("sessions_")]

    virtual(main)

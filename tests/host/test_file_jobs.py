"""What blocks on a session's file is a job's work: handlers don't wait, and no mail is lost meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from helpers_host import (
    KEY,
    Play,
    ask,
    entries,
    hosted,
    notices,
    said_by_users,
    session_path,
    virtual,
)
from helpers_kernel import each_loop
from perdure.actors.letters import recorded_reply
from perdure.actors.services import Timing
from perdure.actors.upkeep import LOCKS_EVERY
from perdure.edges import disk
from perdure.edges.models.reply import ScriptedReply, say
from perdure.edges.session.lock import SessionLock
from perdure.edges.session.writer import LocalSessionFile
from perdure.errors import Closed
from perdure.kernel.io import IoPolicy
from perdure.kernel.run import Backend
from perdure.kernel.virtual import VirtualClock
from perdure.records import ModelInfo

SMALL = ModelInfo("scripted", "test", window=16_000, cache_minimum=16)
OTHER = "agent:main:cli:dm:other"
WORDS = "The lemon tree in row seven needs water and a stake before the wind comes on Thursday. "


class SlowDisk(IoPolicy):
    """Whatever goes through the policy takes five seconds; what doesn't is caught by `inside`."""

    __slots__ = ("clock", "inside")

    def __init__(self, clock: VirtualClock, *, sync: bool = False) -> None:
        super().__init__(True, sync=sync)
        self.clock, self.inside = clock, False

    async def run(self, fn: Callable[..., Any], *args: Any, **_: Any) -> Any:
        await self.clock.sleep(5)
        self.inside = True
        try:
            return fn(*args)
        finally:
            self.inside = False


def long(n: int) -> ScriptedReply:
    return say(f"Answer {n}. " + WORDS * 90)


def test_no_handler_waits_for_the_disk_when_a_session_closes_or_is_truncated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[tuple[str, bool]] = []
    monkeypatch.setattr("os.fsync", lambda fd: None)  # that it is called is enough

    async def main(clock: VirtualClock) -> None:
        io = SlowDisk(clock, sync=True)

        def watched(name: str, real: Any) -> Any:
            def fn(*args: Any, **options: Any) -> Any:
                found.append((name, io.inside))
                return real(*args, **options)

            return fn

        monkeypatch.setattr(LocalSessionFile, "sync", watched("sync", LocalSessionFile.sync))
        monkeypatch.setattr(disk, "sync_folder", watched("folder", disk.sync_folder))
        play = Play(*[long(n) for n in range(8)])
        async with hosted(tmp_path, play, clock, info=SMALL, io=io, truncate_after=4_096) as host:
            seen = notices(host)
            for n in range(8):
                await ask(host, f"question {n}")
                await clock.sleep(60)
            assert [n.kind for n in seen].count("truncation") >= 1

    virtual(main)
    assert {name for name, _ in found} == {"sync", "folder"}
    assert all(inside for _, inside in found)


@each_loop
def test_a_message_that_comes_while_its_session_falls_asleep_wakes_it_again(
    loop: Backend, tmp_path: Path
) -> None:
    async def main(clock: VirtualClock) -> None:
        play = Play()
        async with hosted(tmp_path, play, clock, io=SlowDisk(clock), most_awake=1) as host:
            await ask(host, "one")
            await ask(host, "elsewhere", key=OTHER)  # the first is asked to sleep
            assert host.directory.awake[KEY].opening.apart
            sent = [await host.send(KEY, text, mid=text) for text in ("two", "three")]
            assert [(await s.reply(100)).stop for s in sent] == ["stop", "stop"]
            assert host.directory.wakings == 3

    virtual(main, loop)
    assert said_by_users(session_path(tmp_path)) == ["one", "two", "three"]


@each_loop
def test_turns_and_letters_outlast_a_slow_swap_of_the_truncated_file(loop: Backend, tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        play = Play(*[long(n) for n in range(40)])
        io = SlowDisk(clock)
        async with hosted(tmp_path, play, clock, info=SMALL, io=io, truncate_after=4_096) as host:
            seen, sent = notices(host), []
            for n in range(30):
                sent.append(await host.send(KEY, f"question {n}", mid=f"m{n}"))
                await clock.sleep(3)
            assert {(await s.reply(1_000)).stop for s in sent} == {"stop"}
            await clock.sleep(100)
            assert [n.kind for n in seen].count("truncation") >= 1
        assert play.refused == 0

    virtual(main, loop)
    left = [e for e in entries(session_path(tmp_path)) if e["type"] == "message"]
    assert len(left) < 60


@pytest.mark.parametrize("what", ["/new", "close", "kill"])
def test_whatever_ends_a_session_during_the_swap_leaves_its_file_whole(what: str, tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        play = Play(*[long(n) for n in range(40)])
        host = hosted(tmp_path, play, clock, info=SMALL, io=SlowDisk(clock), truncate_after=4_096)
        async with host:
            for n in range(30):
                await ask(host, f"question {n}")
                session = host.directory.awake[KEY]
                for _ in range(40):
                    await clock.sleep(0.5)
                    if session.opening.apart:
                        break
                if session.opening.apart:
                    break
            assert session.opening.apart
            if what == "/new":
                assert "new session" in await host.command(KEY, "/new")
                assert (await ask(host, "anew")).stop == "stop"
            if what == "kill":
                host.kill()
        if what != "kill":
            assert host.left_whole
        again = Play()
        async with hosted(tmp_path, again, clock, info=SMALL) as host:
            assert (await ask(host, "after all that")).stop == "stop"
        assert again.refused == 0

    virtual(main)


# --- the record -----------------------------------------------------------------------------------


@pytest.mark.parametrize("after", [1 << 40, 4_096])
def test_a_redelivered_letter_is_answered_from_the_record_though_its_answer_is_covered(
    after: int, tmp_path: Path
) -> None:
    play = Play(say("the very first answer"), *[long(n) for n in range(30)])

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, play, clock, info=SMALL, truncate_after=after) as host:
            await ask(host, "first", mid="m-first")
            for n in range(25):
                await ask(host, f"question {n}")
                await clock.sleep(10)
            asked = len(play.bodies[KEY])
            reply = await ask(host, "first", mid="m-first")
            assert (reply.text, reply.stop, reply.errors) == ("the very first answer", "stop", ())
            assert len(play.bodies[KEY]) == asked
            assert (await host.send(KEY, "first", mid="m-first")).receipt.repeated

    virtual(main)
    covered = [e for e in entries(session_path(tmp_path)) if e["type"] == "compaction"]
    assert covered


def test_a_redelivered_letter_without_an_answer_on_record_says_so() -> None:
    reply = recorded_reply(KEY, None)
    assert (reply.text, reply.stop) == ("", "error")
    assert "no answer to it is on record" in reply.errors[-1]


@pytest.mark.parametrize("blank", ["", " ", "\n\n", "\u3000\t"])
def test_a_blank_answer_is_tried_again_and_then_told(blank: str, tmp_path: Path) -> None:
    play = Play(say(blank), say("now I speak"), say(blank), say(blank))

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, play, clock, timing=Timing(retries=1)) as host:
            assert (await ask(host, "one")).text == "now I speak"
            reply = await ask(host, "two")
            assert (reply.text, reply.stop) == ("", "error")
            assert "blank" in reply.errors[-1] or "empty" in reply.errors[-1]

    virtual(main)


# --- upkeep ---------------------------------------------------------------------------------------


def test_a_lock_that_cannot_be_refreshed_is_logged_and_the_others_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refreshed: list[Path] = []

    def refresh(self: SessionLock, now_ms: int) -> bool:
        if "other" in str(self.path):
            raise PermissionError(13, "Permission denied")
        refreshed.append(self.path)
        return True

    monkeypatch.setattr(SessionLock, "refresh", refresh)

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, Play(), clock) as host:
            await ask(host, "one")
            await ask(host, "two", key=OTHER)
            await clock.sleep(LOCKS_EVERY + 1)
            await host.upkeep.flush()
            assert len(refreshed) == 1
            assert (await ask(host, "on", key=OTHER)).stop == "stop"

    virtual(main)
    log = (tmp_path / "state" / "runtime.log").read_text()
    assert log.count("session.lock_failed") >= 1
    assert "session.lock_taken" not in log


def test_a_killed_host_takes_no_lock_for_one_that_was_taken_away(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, Play(), clock) as host:
            await ask(host, "one")
            await clock.sleep(LOCKS_EVERY + 1)
            host.kill()
        with pytest.raises(Closed):
            await host.send(KEY, "two")

    virtual(main)
    log = tmp_path / "state" / "runtime.log"
    assert not log.exists() or "lock_taken" not in log.read_text()

"""Deleting a session through its host: nothing of it stays, and nothing brings it back."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from helpers_host import KEY, Gate, Play, ask, calls, hosted, real, session_path, tells, virtual
from helpers_sessions import user, write
from perdure.actors.messages import Deliver
from perdure.contracts import Letter, Receipt
from perdure.edges.erasing import Erased
from perdure.edges.models.reply import say
from perdure.errors import Busy, Closed, Locked, SessionNotFound, StorageFailed
from perdure.kernel.clock import RealClock
from perdure.kernel.virtual import VirtualClock
from perdure.kernel.waiter import Waiter
from perdure.records import Text

OTHER = "agent:main:cli:dm:other"
CHILD, GRANDCHILD = "agent:main:subagent:one", "agent:main:subagent:two"
CANARY = "zq-canary-7361"
LOOPS = ("asyncio", "trio")


def holders(folder: Path, text: str = CANARY) -> list[str]:
    """Every file of the state folder that holds the text, or is named so."""
    sought = text.encode()
    return [str(path) for path in folder.rglob("*") if path.is_file() and sought in path.read_bytes()]


def found(folder: Path, pattern: str) -> list[Path]:
    return list(folder.rglob(pattern))


def unlock(path: Path) -> None:
    Path(f"{path}.lock").unlink()


@pytest.mark.parametrize("loop", LOOPS)
def test_nothing_of_a_deleted_session_stays_in_the_state_folder(loop: str, tmp_path: Path) -> None:
    big = f"{CANARY} " + "x" * 300_000

    async def main() -> None:
        play = Play(calls("dump"), say(f"noted {CANARY}"))
        async with hosted(tmp_path, play, RealClock(), tools=[tells("dump", big)]) as host:
            await ask(host, f"remember {CANARY}", mid=CANARY)
            await host.command(KEY, "/new")
            await ask(host, f"again {CANARY}")
            await host.command(KEY, f"/name {CANARY}")
            await ask(host, "hello", OTHER)
            await host.upkeep.flush()
            assert any("evidence" in name for name in holders(tmp_path / "state"))
            (erased,) = await host.delete(KEY)
            assert len(erased.evidence) == 1
            assert not holders(tmp_path / "state")
            assert not found(tmp_path, "*.deleted")
            assert (await ask(host, "who am I?")).text.startswith("ok")
            with pytest.raises(SessionNotFound):
                await host.delete("agent:main:cli:dm:nobody")

    real(main, loop)  # type: ignore[arg-type]
    assert not holders(tmp_path / "state")
    assert session_path(tmp_path, OTHER).exists()
    assert b"who am I" in session_path(tmp_path).read_bytes()


@pytest.mark.parametrize("loop", LOOPS)
def test_a_running_turn_is_stopped_and_mail_that_comes_meanwhile_is_refused(
    loop: str, tmp_path: Path
) -> None:
    async def main(clock: VirtualClock) -> None:
        gate = Gate(clock)
        async with hosted(tmp_path, Play(gate), clock) as host:
            sent = await host.send(KEY, "first")
            await gate.arrived()
            ack: Waiter[Receipt] = clock.waiter("the receipt of mail that comes meanwhile")
            erase = host.deleting.eraser.erase

            def slowly(key: str) -> Erased:
                letter = Letter(KEY, "user", "m", (Text("meanwhile"),))
                host.directory.ref(KEY).handler(Deliver(letter, ack))
                return erase(key)

            host.deleting.eraser.erase = slowly  # type: ignore[method-assign]
            (erased,) = await host.delete(KEY)
            assert erased.files
            with pytest.raises(Busy, match="being deleted"):
                await clock.wait(ack, 100)
            with pytest.raises(Closed):
                await sent.reply(100)
            assert not session_path(tmp_path).exists()
            assert (await ask(host, "anew")).text == "ok 2"
            assert b"first" not in session_path(tmp_path).read_bytes()

    virtual(main, loop)  # type: ignore[arg-type]


def test_subagents_go_with_their_parent_and_forks_stay(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, Play(), clock) as host:
            await ask(host, "parent")
            for child, parent in ((CHILD, KEY), (GRANDCHILD, CHILD), (OTHER, KEY)):
                header = {"parentSession": str(host.files.path(parent))}
                path = host.files.path(child)
                path.parent.mkdir(parents=True, exist_ok=True)
                write(path, [user("a", None)], header=_HEADER | header)
            await ask(host, "at work", CHILD)
            erased = await host.delete(KEY)
            assert [each.key for each in erased] == [GRANDCHILD, CHILD, KEY]
            assert [key for key in (KEY, CHILD, GRANDCHILD, OTHER) if host.files.exists(key)] == [OTHER]

    virtual(main)


def test_a_session_that_another_program_has_open_is_refused_and_goes_on(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, Play(), clock) as host:
            write_locked(host.files.path(KEY))
            with pytest.raises(Locked, match=str(os.getppid())):
                await host.delete(KEY)
            assert host.files.exists(KEY)
            unlock(host.files.path(KEY))
            assert (await ask(host, "go on")).text == "ok 1"

    virtual(main)


def test_a_disk_that_fails_midway_resurrects_nothing_and_the_next_try_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, Play(), clock) as host:
            await ask(host, "old")
            with monkeypatch.context() as broken:
                broken.setattr("shutil.rmtree", _fails)
                with pytest.raises(StorageFailed, match="repeat"):
                    await host.delete(KEY)
            with pytest.raises(Busy):
                await host.send(KEY, "meanwhile")
            await host.delete(KEY)
            assert (await ask(host, "anew")).text == "ok 2"
            assert not found(tmp_path, "*.deleted")

    virtual(main)


def test_a_deletion_that_a_kill_interrupted_is_completed_at_the_next_start(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, Play(), clock) as host:
            await ask(host, f"old {CANARY}")
            await ask(host, "other", OTHER)
        path = session_path(tmp_path)
        grave = path.with_name(path.name.replace(".jsonl", ".deleted"))
        grave.mkdir()
        path.rename(grave / path.name)
        path.with_name(f"{path.name}.segments").mkdir()
        async with hosted(tmp_path, Play(), clock) as host:
            assert not holders(tmp_path / "state")
            assert [row.key for row in host.files.list()] == [OTHER]
            assert not found(tmp_path, "*.segments")

    virtual(main)


def test_evidence_that_another_session_refers_to_stays(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        play = Play(calls("dump"), say("noted"))
        play.then(calls("dump"), say("noted"), key=OTHER)
        async with hosted(tmp_path, play, clock, tools=[tells("dump", "same" * 100_000)]) as host:
            await ask(host, "one")
            await ask(host, "two", OTHER)
            (first,) = await host.delete(KEY)
            assert (len(first.evidence), first.kept) == (0, 1)
            (second,) = await host.delete(OTHER)
            assert (len(second.evidence), second.kept) == (1, 0)

    virtual(main)


def test_evidence_that_is_stored_while_the_log_does_not_name_it_yet_is_spared(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        same = "same" * 100_000
        play = Play(calls("dump"), say("noted"))
        play.then(calls("dump", "slow"), say("noted"), key=OTHER)
        gate = Gate(clock)
        async with hosted(tmp_path, play, clock, tools=[tells("dump", same), gate.tool("slow")]) as host:
            await ask(host, "one")
            digest = await host.services.blobs.put(same.encode())  # of another turn, before its append
            (first,) = await host.delete(KEY)
            assert not first.evidence
            assert (await host.services.blobs.get(digest)) == same.encode()

    virtual(main)


_HEADER = {"type": "session", "version": 3, "id": "s2", "timestamp": "2026-01-05T08:00:00.000Z", "cwd": "/w"}


def write_locked(path: Path) -> None:
    path.parent.mkdir(parents=True)
    write(path, [user("a", None)])
    Path(f"{path}.lock").write_text(f'{{"pid": {os.getppid()}, "createdAt": "2999-01-01T00:00:00Z"}}')


def _fails(*_args: object, **_more: object) -> None:
    raise PermissionError(13, "Permission denied")

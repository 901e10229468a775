"""Poison and files that can't be opened: each alone, told, listed, retried or dropped, over restarts too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from helpers_host import KEY, Gate, Play, ask, hosted, said_by_users, session_path, virtual
from perdure.actors.letters import Letters
from perdure.actors.messages import Deliver
from perdure.errors import Parked, PerdureError, Quarantined, UnreadableFile
from perdure.kernel.virtual import VirtualClock

OTHER = "agent:main:cli:dm:other"


class Poison:
    """Letters that say `poison` break the session's handler, while this is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.on = True
        deliver = Letters.deliver

        def broken(letters: Letters, mail: Deliver) -> None:
            if self.on and "poison" in str(mail.letter.content):
                raise KeyError("a bug that this letter meets")
            deliver(letters, mail)

        monkeypatch.setattr(Letters, "deliver", broken)


def lines(host: Any) -> list[tuple[int, str, str]]:
    return [(line["number"], line["session"], line["mail"]) for line in host.parked()]


def test_a_letter_that_breaks_its_session_is_refused_and_parked_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Poison(monkeypatch)

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, Play(), clock) as host:
            await ask(host, "before")
            began = clock.now()
            with pytest.raises(Parked, match="not accepted"):
                await host.send(KEY, "poison secret words")
            assert clock.now() - began < 1  # at once, not at its deadline
            assert lines(host) == [(1, KEY, "deliver")]
            shown = str(host.status())
            assert "secret words" not in shown
            assert "a bug that this letter meets" in shown
            assert host.status()["trouble"]["kernel.actor.parked"] == 1
            assert (await ask(host, "after")).stop == "stop"
            assert (await ask(host, "neighbour", key=OTHER)).stop == "stop"
            assert host.drop(1)
            assert not host.drop(1)
            assert host.parked() == []
        assert said_by_users(session_path(tmp_path)) == ["before", "after"]

    virtual(main)


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_a_parked_letter_survives_the_host_and_is_delivered_once_where_the_bug_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    poison = Poison(monkeypatch)

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, Play(), clock) as host:
            await ask(host, "before")
            with pytest.raises(Parked):
                await host.send(KEY, "poison", mid="m1")
            told = host.parked()
            if end == "kill":
                host.kill()
        async with hosted(tmp_path, Play(), clock) as host:
            assert host.parked() == [told[0]]  # number, error and time included
            poison.on = False
            assert host.retry(1)
            await clock.sleep(5)
            assert host.parked() == []
            again = await host.send(KEY, "poison", mid="m1")
            assert again.receipt.repeated
        async with hosted(tmp_path, Play(), clock) as host:
            assert host.parked() == []
        assert said_by_users(session_path(tmp_path)) == ["before", "poison"]

    virtual(main)


def test_what_was_acknowledged_is_in_the_file_whatever_is_parked_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session breaks while a turn runs and letters wait: each is answered once, in order."""
    Poison(monkeypatch)

    async def main(clock: VirtualClock) -> None:
        gate = Gate(clock)
        async with hosted(tmp_path, Play(gate), clock) as host:
            await host.send(KEY, "one")
            await gate.arrived()
            await host.send(KEY, "two")
            with pytest.raises(PerdureError):
                await host.send(KEY, "poison")
            await clock.sleep(60)
            assert (await ask(host, "three")).stop == "stop"
        assert said_by_users(session_path(tmp_path)) == ["one", "two", "three"]

    virtual(main)


def test_a_session_parked_whole_refuses_typed_and_goes_on_after_the_retry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    poison = Poison(monkeypatch)

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, Play(), clock) as host:
            for n in range(6):
                with pytest.raises(PerdureError):
                    await host.send(KEY, f"poison {n}")
            with pytest.raises(Parked):
                await host.send(KEY, "hello")
            assert (await ask(host, "neighbour", key=OTHER)).stop == "stop"
            assert any(line["whole"] for line in host.parked())
            poison.on = False
            for number, _, _ in lines(host):
                assert host.retry(number)
            assert (await ask(host, "hello")).stop == "stop"
            assert host.parked() == []

    virtual(main)


def test_a_file_that_cannot_be_read_is_put_aside_alone_and_tried_again_with_a_back_off(
    tmp_path: Path,
) -> None:
    async def main(clock: VirtualClock) -> None:
        path = session_path(tmp_path)
        async with hosted(tmp_path, Play(), clock) as host:
            await ask(host, "hello")
        whole = path.read_bytes()
        path.write_bytes(b"\x00\x01 this is no session\n" * 40)
        spoiled = path.read_bytes()
        async with hosted(tmp_path, Play(), clock) as host:
            with pytest.raises(UnreadableFile):
                await host.send(KEY, "first")
            with pytest.raises(Quarantined, match="tried again in 5 s"):
                await host.send(KEY, "second")
            (line,) = host.status()["quarantined"]
            assert (line["session"], line["tries"]) == (KEY, 1)
            assert host.status()["trouble"]["session.quarantined"] == 1
            assert (await ask(host, "neighbour", key=OTHER)).stop == "stop"
            await clock.sleep(5)
            with pytest.raises(UnreadableFile):
                await host.send(KEY, "third")
            with pytest.raises(Quarantined, match="in 10 s"):
                await host.send(KEY, "fourth")
            assert path.read_bytes() == spoiled
            path.write_bytes(whole)
            assert host.retry(KEY)
            assert not host.retry(KEY)
            assert (await ask(host, "mended")).stop == "stop"
            assert host.status()["quarantined"] == []

    virtual(main)

"""`perdure outbox`: what waits is read from files, and what went nowhere is moved by command."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers_cli import failed, fingerprint, run
from helpers_host import KEY, Play, ask, hosted, real, session_path
from helpers_outbox import Receiver
from perdure.kernel.clock import RealClock

LATER = "agent:main:cli:dm:later"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A state folder whose host has stopped: one answer may have arrived, another still waits."""

    async def main() -> None:
        receiver = Receiver(["maybe"], idempotent=False)
        async with hosted(tmp_path, Play(), RealClock(), channels=[receiver]) as host:
            await ask(host, "q", deliver=True)
            await host.services.outbox.settle(5)
            receiver.script = ["retry"]
            await ask(host, "q", key=LATER, deliver=True)
            await host.services.outbox.settle(5)

    real(main)
    return tmp_path


def again(folder: Path) -> list[str]:
    """What a host that starts now sends, without being asked."""

    async def main() -> list[str]:
        receiver = Receiver(idempotent=False)
        async with hosted(folder, Play(), RealClock(), channels=[receiver]) as host:
            while len(receiver.arrived) < 1 or not host.services.outbox.at_rest:
                await host.clock.sleep(0.01)
            await host.clock.sleep(0.05)
        return sorted(each.key for each in receiver.arrived)

    return list(real(main))


def test_a_host_that_starts_sends_what_waits_and_nothing_that_may_have_arrived(folder: Path) -> None:
    assert again(folder) == [LATER]


def test_listing_changes_nothing_and_says_by_its_code_that_somebody_is_needed(folder: Path) -> None:
    state, before = folder / "state", fingerprint(folder)
    ran = run("outbox", "list", "--state", state, "--json")
    assert (ran.code, fingerprint(folder)) == (1, before)
    assert sorted((each["key"], each["state"]) for each in ran.json["outbox"]) == [
        (LATER, "waiting"), (KEY, "unknown"),
    ]  # fmt: skip
    assert run("outbox", "list", LATER, "--state", state).code == 0
    assert "unknown" in run("outbox", "list", "--state", state).out


def test_what_is_retried_is_sent_by_the_next_host_and_what_is_dropped_is_not(folder: Path) -> None:
    state = folder / "state"
    assert run("outbox", "drop", LATER, "--state", state).code == 0
    assert run("outbox", "drop", LATER, "--state", state).code == 1
    ran = run("outbox", "retry", KEY, "--state", state, "--json")
    assert (ran.code, ran.json["done"], len(ran.json["moved"])) == (0, True, 1)
    assert again(folder) == [KEY]
    assert run("outbox", "list", "--state", state).out == "nothing is on its way out\n"


def test_a_wrong_entry_or_key_is_one_line(folder: Path) -> None:
    state = folder / "state"
    assert "no answer abc" in failed(run("outbox", "retry", KEY, "abc", "--state", state))
    assert "no such session" in failed(run("outbox", "drop", "agent:x:y:z", "--state", state))
    assert session_path(folder).exists()

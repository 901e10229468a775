"""`perdure schedules`: what stands in the files of a stopped host, set and taken away there."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers_cli import failed, fingerprint, run
from helpers_host import KEY, Play, hosted, real, said_by_users, session_path
from perdure.kernel.clock import RealClock


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A state folder whose host has stopped, with one schedule."""

    async def main() -> None:
        async with hosted(tmp_path, Play(), RealClock()) as host:
            await host.schedule(KEY, "water the garden", every="4h", id="garden")

    real(main)
    return tmp_path


def test_listing_tells_what_comes_next_and_changes_nothing(folder: Path) -> None:
    state, before = folder / "state", fingerprint(folder)
    ran = run("schedules", "list", "--state", state, "--json")
    assert (ran.code, fingerprint(folder)) == (0, before)
    (row,) = ran.json["schedules"]
    assert (row["key"], row["id"], row["when"], row["message"]) == (
        KEY, "garden", "every 4h", "water the garden",
    )  # fmt: skip
    assert run("schedules", "list", KEY, "--state", state, "--json").json == ran.json
    assert "garden" in run("schedules", "list", "--state", state).out


def test_what_is_added_is_acted_on_by_the_next_host_and_what_is_removed_is_not(folder: Path) -> None:
    state = folder / "state"
    assert run("schedules", "remove", KEY, "garden", "--state", state).code == 0
    assert run("schedules", "remove", KEY, "garden", "--state", state).code == 1
    ran = run("schedules", "add", KEY, "tick", "--every", "1m", "--id", "t", "--state", state, "--json")
    assert (ran.code, ran.json["id"]) == (0, "t")

    async def main() -> None:
        async with hosted(folder, Play(), RealClock()) as host:
            assert [row.id for row in await host.schedules(KEY)] == ["t"]

    real(main)


def test_an_isolated_schedule_begins_a_session_of_its_own(folder: Path) -> None:
    state = folder / "state"
    arguments = ("--cron", "0 9 * * *", "--timezone", "Europe/Berlin", "--isolated", "--id", "daily")
    ran = run("schedules", "add", KEY, "report", *arguments, "--state", state, "--json")
    assert (ran.code, ran.json["key"]) == (0, "agent:main:cron:daily")
    assert session_path(folder, "agent:main:cron:daily").exists()
    assert len(run("schedules", "list", "--state", state, "--json").json["schedules"]) == 2
    assert said_by_users(session_path(folder)) == []


def test_what_can_not_be_is_one_line(folder: Path) -> None:
    state = folder / "state"
    add = ("schedules", "add", KEY, "x", "--state", state)
    before = session_path(folder).read_bytes()
    assert "exactly one" in failed(run(*add))
    assert "at least 60 s" in failed(run(*add, "--every", "5s"))
    assert "no time zone" in failed(run(*add, "--cron", "0 9 * * *", "--timezone", "Mars/Phobos"))
    assert "over already" in failed(run(*add, "--at", "2001-01-01T00:00"))
    assert "no such session" in failed(run("schedules", "remove", "agent:x:y:z", "t", "--state", state))
    assert session_path(folder).read_bytes() == before


def test_a_folder_that_a_host_has_is_listed_and_not_changed(folder: Path) -> None:
    state = folder / "state"

    async def main() -> None:
        async with hosted(folder, Play(), RealClock()):
            assert len(run("schedules", "list", "--state", state, "--json").json["schedules"]) == 1
            failed(run("schedules", "add", KEY, "x", "--every", "1h", "--state", state))

    real(main)

"""What commands tell of subagents from their files alone."""

from __future__ import annotations

from pathlib import Path

from helpers_cli import run
from helpers_host import KEY, ask, session_path, virtual
from helpers_subagents import Nursery, children, nursery, quiet, spawning
from perdure.edges.models.reply import say
from perdure.kernel.virtual import VirtualClock


def test_lists_show_parent_and_state_and_never_an_open_child_as_done(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        play = Nursery(spawning("quick", "slow"), say("begun"), say("noted"))
        play.child("quick", say("done")).child("slow", say("never", latency=1_000.0))
        host = nursery(tmp_path, play, clock)
        async with host:
            await ask(host, "go")
            await clock.sleep(30)
            host.kill()

    virtual(main)
    named = {kin.grant.task: kin.grant.child for kin in children(tmp_path)}
    quick, slow = named["quick"], named["slow"]
    state = tmp_path / "state"
    before = session_path(tmp_path, slow).read_bytes()
    rows = {
        row["key"]: row
        for row in run("sessions", "list", "--all", "--json", "--state", state).json["sessions"]
    }
    assert (rows[KEY]["kind"], rows[KEY]["parent"], rows[KEY]["state"]) == ("session", None, None)
    assert (rows[quick]["parent"], rows[quick]["state"]) == (KEY, "completed")
    assert (rows[slow]["parent"], rows[slow]["state"]) == (KEY, "open")
    told = run("sessions", "list", "--children", "--state", state)
    assert f"completed, child of {KEY}" in told.out
    shown = run("sessions", "show", KEY, "--json", "--state", state).json
    assert sorted(each["state"] for each in shown["children"]) == ["completed", "running"]
    lines = run("status", "--deep", "--json", "--state", state).json["sessions"]
    deep = {line["key"]: line for line in lines}
    assert deep[slow]["parent"] == KEY
    assert deep[slow]["subagent"]["state"] == "running"
    assert session_path(tmp_path, slow).read_bytes() == before
    stopped = run("sessions", "stop", KEY, "--tree", "--state", state)
    assert stopped.code == 1
    assert "no host runs" in stopped.out


def test_deleting_a_parent_without_a_host_deletes_its_children_first(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        play = Nursery(spawning("quick"), say("begun"), say("noted")).child("quick", say("done"))
        async with nursery(tmp_path, play, clock) as host:
            await ask(host, "go")
            await quiet(host, clock)

    virtual(main)
    found = run("sessions", "delete", KEY, "--json", "--state", tmp_path / "state").json
    assert [each["key"] for each in found["sessions"]][-1] == KEY
    assert len(found["sessions"]) == 2
    assert not list((tmp_path / "state" / "sessions").rglob("*.jsonl"))

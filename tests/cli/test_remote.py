"""Commands go through the host that serves the state folder; its session goes on where they end."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from helpers_cli import failed, run
from helpers_host import KEY, Gate, Play, hosted, messages, real, session_path
from helpers_kernel import each_loop
from helpers_serve import serving, until
from perdure.cli.remote.address import running
from perdure.cli.remote.client import Remote, asked
from perdure.cli.remote.talk import RemoteTalk
from perdure.edges.models.reply import say
from perdure.edges.served import Served, write
from perdure.edges.state import state_folder
from perdure.errors import UsageError
from perdure.events import Event, Notice, Said, TurnFinished
from perdure.kernel.clock import RealClock
from perdure.kernel.run import Backend


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A state folder that a process serves."""
    folder = tmp_path_factory.mktemp("served") / "state"
    environ = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PERDURE_", "ANTHROPIC_", "OPENAI_"))
    } | {"PYTHONPATH": os.pathsep.join(sys.path)}
    words = ("serve", "--port", "0", "--state", os.fspath(folder))
    command = [sys.executable, "-c", "from perdure.cli import main; main()", *words]
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, cwd=folder.parent) as server:
        assert server.stdout is not None
        assert b"serves" in server.stdout.readline()
        yield folder
        server.terminate()
        assert server.wait(30) == 0


def ask(state: Path, *words: str, code: int = 0) -> Any:
    """A command's JSON."""
    ran = run(*words, "--state", state, "--json")
    assert ran.code == code, (ran.out, ran.err)
    return json.loads(ran.out)


def test_a_message_keeps_its_contract_through_the_host(state: Path) -> None:
    found = ask(state, "chat", "-m", "hello")
    assert set(found) == {"key", "reply", "stop", "steps", "tokens", "entries", "errors", "overflow"}
    assert (found["key"], found["stop"], found["steps"]) == (KEY, "stop", 1)
    assert ask(state, "chat", "-m", "/status")["reply"]


def test_changes_keep_their_contracts_through_the_host(state: Path) -> None:
    key = "agent:main:cli:dm:changed"
    run("chat", key, "-m", "hello", "--state", state)
    leaf = messages(session_path(state.parent, key))[0]["id"]
    assert ask(state, "sessions", "rename", key, "the move")["name"] == "the move"
    assert ask(state, "sessions", "label", key, leaf, "first")["entry"] == leaf
    switched = ask(state, "sessions", "switch", key, "first")
    assert {"key", "done", "reason", "leaf", "messages", "restored"} == set(switched)
    assert (switched["done"], switched["messages"]) == (True, 1)
    made = ask(state, "sessions", "fork", key, "--as", "agent:main:cli:dm:copy")["made"]
    assert Path(made["file"]).exists()
    for words, code in ((("compact", key), 1), (("undo", key), 1), (("truncate", key), 0)):
        found = ask(state, *words, code=code)
        assert {"key", "done", "reason", "before", "after", "proof"} <= set(found)
        assert not found["done"]
        assert found["reason"]


def test_what_only_the_host_decides_is_refused(state: Path) -> None:
    assert "leave it away" in failed(run("chat", "-m", "hi", "--window", "9000", "--state", state))
    ask(state, "chat", "-m", "hi")
    assert "leave it away" in failed(run("undo", KEY, "--window", "9000", "--state", state))


def test_status_tells_the_hosts_own_figures(state: Path) -> None:
    ask(state, "chat", "-m", "hi")
    found = ask(state, "status", "--deep")
    assert found["host"]["held"]
    assert found["host"]["owned_bytes"] > 0
    assert found["totals"]["turns"] > 0
    assert {"queues", "lag", "degraded", "timers", "outbox", "memory"} <= set(found) | set(found["host"])
    assert [line["state"] for line in found["sessions"] if line["key"] == KEY]
    told = run("status", "--deep", "--state", state)
    assert told.code == 0, told.err
    assert "turns" in told.out
    assert ask(state, "parked", "list") == {"parked": [], "quarantined": []}


def test_stopping_through_the_host_says_whether_anything_ran(state: Path) -> None:
    ask(state, "chat", "-m", "hi")
    found = ask(state, "sessions", "stop", KEY, "--tree", code=1)
    assert found == {"key": KEY, "done": False, "reason": "nothing runs", "below": []}
    ran = run("sessions", "stop", "agent:main:cli:dm:nobody", "--state", state)
    assert "no such session" in failed(ran)


def test_deletion_through_the_host_says_what_went(state: Path) -> None:
    key = "agent:main:cli:dm:deleted"
    run("chat", key, "-m", "hello", "--state", state)
    path = session_path(state.parent, key)
    (gone,) = ask(state, "sessions", "delete", key)["sessions"]
    assert gone["key"] == key
    assert gone["bytes"] > 0
    assert not path.exists()


def test_elsewhere_needs_a_token_that_the_host_knows(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = json.loads((state / "serve.json").read_text())
    words = ("chat", "-m", "hi", "--connect", told["url"])
    assert "PERDURE_TOKEN is not set" in failed(run(*words))
    monkeypatch.setenv("PERDURE_TOKEN", "somebody else's long token")
    assert "not known here" in failed(run(*words))
    monkeypatch.setenv("PERDURE_TOKEN", told["token"])
    assert run(*words, "--json").json["stop"] == "stop"


# --- restarts -------------------------------------------------------------------------------------


def shown(seen: list[Event]) -> str:
    return "".join(event.text for event in seen if isinstance(event, Said))


@each_loop
def test_a_chat_goes_on_after_the_host_restarts_with_nothing_twice_or_lost(
    loop: Backend, tmp_path: Path
) -> None:
    async def main() -> None:
        seen: list[Event] = []
        box: list[Served] = []
        stop, again, end = (anyio.Event() for _ in range(3))

        async def hosts() -> None:
            async with serving(tmp_path, Play(say("one"))) as first:
                box.append(Served(first.url, first.token, 0))
                await stop.wait()
            async with serving(tmp_path, Play(say("two"), say("three"))) as second:
                await (await second.host.send(KEY, "from elsewhere")).reply()
                box.append(Served(second.url, second.token, 0))
                again.set()
                await end.wait()

        async with anyio.create_task_group() as group:
            group.start_soon(hosts)
            await until(lambda: bool(box))
            async with Remote(box[0], lambda: box[-1]) as remote:
                talk = RemoteTalk(remote, KEY)
                async with talk.following(seen.append):
                    assert (await (await talk.send("hi", ())).reply()).text == "one"
                    stop.set()
                    await again.wait()
                    assert (await (await talk.send("again", ())).reply()).text == "three"
                    await until(lambda: shown(seen) == "onetwothree")
            end.set()
        notices = [event.text for event in seen if isinstance(event, Notice)]
        assert notices.count("reconnected") == 1
        (other,) = (event.text for event in seen if isinstance(event, Notice) and event.kind == "said")
        assert "from elsewhere" in other

    real(main, loop)


@each_loop
def test_two_chats_of_one_session_see_the_same_answer(loop: Backend, tmp_path: Path) -> None:
    async def main() -> None:
        gate = Gate(RealClock(), say("both see it", chunks=3))
        async with serving(tmp_path, Play(gate)) as found:
            at = Served(found.url, found.token, 0)
            seen: tuple[list[Event], list[Event]] = ([], [])
            async with Remote(at) as one, Remote(at) as other:
                talk, watch = RemoteTalk(one, KEY), RemoteTalk(other, KEY)
                async with talk.following(seen[0].append), watch.following(seen[1].append):
                    await talk.send("hi", ())
                    gate.open()
                    for events in seen:
                        await until(lambda events=events: any(isinstance(e, TurnFinished) for e in events))
            assert shown(seen[0]) == shown(seen[1]) == "both see it"

    real(main, loop)


def test_a_host_without_a_server_is_still_named(tmp_path: Path) -> None:
    async def main() -> None:
        async with hosted(tmp_path, Play(), RealClock()) as host:
            await (await host.send(KEY, "hi")).reply()
            ran = await anyio.to_thread.run_sync(lambda: run("undo", KEY, "--state", host.folder.path))
            assert f"pid {os.getpid()}" in failed(ran) or "in use" in ran.err

    real(main, "asyncio")


def test_a_deletion_can_be_tried_out_where_a_host_has_the_session(state: Path) -> None:
    key = "agent:main:cli:dm:tried"
    ask(state, "chat", key, "-m", "hello")
    tried = ask(state, "sessions", "delete", key, "--dry-run")
    assert (tried["done"], tried["sessions"][0]["key"]) == (False, key)
    assert ask(state, "sessions", "delete", key)["done"]


def test_a_reload_does_not_forget_the_flags_of_the_server(state: Path) -> None:
    at = running(state)
    assert at is not None
    assert asked(at, lambda remote: remote.post("/v1/reload")) == {"applied": [], "refused": []}


def test_a_host_that_hangs_is_told_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure.cli.remote.address.KNOCK", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        write(state_folder(tmp_path), Served(url, "token", os.getpid()))
        with pytest.raises(UsageError, match=f"pid {os.getpid()}.*has not answered for"):
            running(tmp_path)
    assert running(tmp_path) is None


def test_a_backup_makes_no_folder_that_may_be_a_disk_not_mounted(state: Path, tmp_path: Path) -> None:
    ran = run("backup", tmp_path / "away" / "b.zip", "--state", state)
    assert "no such folder" in failed(ran)
    assert not (tmp_path / "away").exists()

"""What a newcomer meets: each mistake of the machine or the hand costs one line that says what to do."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from helpers_cli import failed, run
from helpers_host import KEY, Play, ask, hosted, real
from helpers_serve import serving
from perdure.cli import hosted as shown
from perdure.edges import disk, served
from perdure.edges.placement import LocalPlacement
from perdure.edges.session import keys
from perdure.edges.settings_hosting import ServerSettings
from perdure.errors import PerdureError, UsageError
from perdure.kernel.clock import RealClock
from perdure.server.running import listen


def test_a_port_that_is_none_is_told_by_its_flag(tmp_path: Path) -> None:
    for port in ("99999", "-1"):
        told = failed(run("serve", f"--port={port}", "--state", tmp_path))
        assert told == f"--port {port}: give a number from 1 to 65,535, or 0 for any that is free"


def test_an_address_in_use_is_told_in_plain_words() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError) as caught:
            listen(ServerSettings(port=port))
    assert str(caught.value) == (
        f"127.0.0.1:{port}: can't listen there (Address already in use): choose another --port"
    )


def test_a_folder_that_a_host_without_an_api_holds_says_so(tmp_path: Path) -> None:
    held = LocalPlacement(tmp_path / "state", wall_ms=1)
    try:
        told = failed(run("chat", "-m", "hi", "--state", tmp_path / "state"))
        assert (
            f"held by a host on this machine (node {held.node}, boot {held.boot}, pid {os.getpid()})" in told
        )
        assert "it serves no API (no serve.json): stop it first" in told
    finally:
        held.close(clean=True)


def test_a_broken_configuration_leaves_a_running_host_s_answers(tmp_path: Path) -> None:
    state = tmp_path / "state"

    def told(*words: str) -> Any:
        ran = run(*words, "--state", state, "--json")
        assert ran.code in (0, 1), ran.err
        assert "perdure.toml: not valid TOML" in ran.err
        return ran.json

    async def main() -> None:
        import anyio.to_thread

        async with serving(tmp_path, Play()) as found:
            await ask(found.host, "hello")
            (state / "perdure.toml").write_text("[hots")
            status = await anyio.to_thread.run_sync(told, "status", "--deep")
            assert status["sessions"][0]["key"] == KEY
            assert status["totals"]["turns"] == 1
            context = await anyio.to_thread.run_sync(told, "context", KEY)
            assert context["request"] is not None
            compacted = await anyio.to_thread.run_sync(told, "undo", KEY)
            assert compacted["key"] == KEY

    real(main)
    assert "not valid TOML" in failed(run("status", "--state", state))


def test_deep_status_speaks_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    memory = shown._memory({"budget_bytes": 10_000_000, "owned_bytes": 2_000, "process_bytes": 20_000_000})
    assert memory == "2.0 kB owned by sessions of 10.0 MB; the process may take 20.0 MB"
    worker = {"name": "compaction", "busy": 1, "queued": 0, "done": 3, "crashed": 2, "breaker": "open"}
    idle = {"name": "ingest", "busy": 0, "queued": 0, "done": 9, "crashed": 0, "breaker": "closed"}
    assert shown._workers([idle, worker]) == (
        "ingest 9 done; compaction 3 done, 1 busy, 2 crashed, circuit breaker open"
    )
    model = {"name": "a/b", "requests": 7, "retries": 2, "errors": {"auth": 1}}
    assert shown._model(model) == "a/b: 7 requests, 2 tried again; failed: 1 auth"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (errno.EROFS, "Read-only file system"),
        (errno.EACCES, "Permission denied"),
        (errno.EMFILE, "Too many open files"),
    ],
)
def test_a_state_folder_that_can_t_be_written_costs_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, words: str
) -> None:
    state = tmp_path / "state"
    state.mkdir()

    def refuse(*_args: object, **_more: object) -> int:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(disk, "open_", refuse)
    for words_ in (("chat", "-m", "hello"), ("serve", "--port", "0")):
        told = failed(run(*words_, "--state", state))
        assert str(state) in told
        assert words in told
        assert told.endswith("choose another with --state")


def test_a_session_s_file_that_finds_no_descriptor_is_a_typed_error_and_another_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = "agent:main:cli:dm:other"
    real_open = disk.open_

    def scarce(path: Any, *args: Any, **more: Any) -> int:
        if keys.encode(other) in str(path):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(path))
        return real_open(path, *args, **more)

    async def main() -> None:
        async with hosted(tmp_path, Play(), RealClock()) as host:
            monkeypatch.setattr(disk, "open_", scarce)
            with pytest.raises(PerdureError, match="Too many open files"):
                await host.send(other, "hello")
            assert (await ask(host, "hello")).stop == "stop"

    real(main)


def test_a_stale_serve_json_is_no_host(tmp_path: Path) -> None:
    from perdure.edges.state import state_folder

    folder = state_folder(tmp_path)
    served.write(folder, served.Served("http://127.0.0.1:9", "token", 2**22 + 1))
    assert served.read(folder) is None

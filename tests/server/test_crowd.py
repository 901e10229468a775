"""Many clients at once, and the command itself as a process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import httpx2
import pytest

from helpers_host import Play, real
from helpers_serve import following, serving, upto
from perdure.edges.models.reply import say

CLIENTS = 200


def test_two_hundred_clients_follow_two_hundred_sessions(tmp_path: Path) -> None:
    keys = [f"agent:main:cli:dm:{n}" for n in range(CLIENTS)]
    play = Play()
    for key in keys:
        play.then(say("a b c d e f g h", chunks=8), key=key)

    async def main() -> None:
        async with serving(tmp_path, play) as found, found.client() as client:
            texts: dict[str, str] = {}
            ready = anyio.Semaphore(0)

            async def follow(key: str) -> None:
                async with following(found, f"/v1/sessions/{key}") as stream:
                    await upto(stream, "ready")
                    ready.release()
                    seen = await upto(stream, "turn.finished")
                    texts[key] = "".join(e.data["text"] for e in seen if e.name == "text")

            async with anyio.create_task_group() as group:
                for key in keys:
                    group.start_soon(follow, key)
                for _ in keys:
                    await ready.acquire()
                for key in keys:
                    sent = await client.post(f"/v1/sessions/{key}/messages", json={"text": "hi"})
                    assert sent.status_code == 202
            assert texts == dict.fromkeys(keys, "a b c d e f g h")
            assert found.server.shared.hub.lagged == 0

    real(main, "uvloop", seconds=60)


def _started(state: Path, loop: str) -> tuple[subprocess.Popen[bytes], dict[str, str]]:
    code = "from perdure.cli import main; main()"
    command = [
        sys.executable,
        "-c",
        code,
        "serve",
        "--state",
        str(state),
        "--port",
        "0",
        "--loop",
        loop,
        "--json",
    ]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    told = b""
    while b"}" not in told:
        line = process.stdout.readline()
        assert line, process.communicate()
        told += line
    return process, json.loads(told)


@pytest.mark.parametrize("loop", ["uvloop", "trio"])
def test_the_command_serves_until_it_is_told_to_stop(loop: str, tmp_path: Path) -> None:
    process, told = _started(tmp_path / "state", loop)
    with process:
        record = json.loads((tmp_path / "state" / "serve.json").read_bytes())
        assert record["url"] == told["url"]
        headers = {"authorization": f"Bearer {record['token']}"}
        url = f"{told['url']}/v1/sessions/agent:main:cli:dm:me/messages?wait=20"
        with httpx2.Client(headers=headers, timeout=30) as client:
            assert client.post(url, json={"text": "hi"}).json()["stop"] == "stop"
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=20)
        assert process.returncode == 0, errors
    assert not (tmp_path / "state" / "serve.json").exists()

"""A thousand tenants, each with a canary: nobody ever sees another's, wherever they look.

`make canaries` does a million random operations in two processes, each with a host of its own. They call the
API inside the process, with blocking work inline: a socket and a thread know nothing of tenants, and cost
most of a request. The same operations over sockets, with threads, are the first test.
"""

from __future__ import annotations

import json
import os
import random
import re
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from functools import partial
from json import dumps
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from helpers_host import Play, hosted, real
from helpers_serve import serving, tenant, token, upto
from perdure.contracts import Request
from perdure.edges.models.reply import ScriptedReply, say
from perdure.edges.settings import Settings
from perdure.kernel.clock import RealClock
from perdure.kernel.io import IoPolicy
from perdure.server.app import application
from perdure.server.app import serving as serving_of
from perdure.testing.serving import Served

FULL = os.environ.get("PERDURE_CANARIES") == "full"
TENANTS, OVER_SOCKETS, AT_ONCE = 1_000, 5_000 if FULL else 700, 8
PARTS, INSIDE = (2, 500_000) if FULL else (1, 1_500)
RENEWED = 1 / 8  # of the sessions that are named: a history of some dozens of messages
STAY = 20  # operations at most in one session before the next
CANARY = re.compile(rb"canary-(t\d+)-")
KEYS = re.compile(rb"agent:agent-(t\d+):")


class Echo(Play):
    """Says again what it was told, canary included; sees what it is asked."""

    async def __call__(self, body: dict[str, Any], request: Request) -> ScriptedReply:
        name = request.session.split(":")[1].removeprefix("agent-")
        assert set(CANARY.findall(request.body)) <= {name.encode()}
        last = body["messages"][-1]["content"]
        return say(f"you said {last if isinstance(last, str) else last[-1]['text']}")


class Looker:
    """One of many clients that do random things as random tenants."""

    def __init__(self, client: httpx2.AsyncClient | Inside, seed: int | str, stay: int = 1) -> None:
        self.client, self.random, self._stay = client, random.Random(seed), stay
        self._left, self._at = 0, ("", "")
        self.acts: list[Callable[[str, str], Awaitable[None]]] = [
            self.say, self.say, self.say, self.look, self.read, self.list, self.export, self.pry, self.name,
        ]  # fmt: skip

    async def one(self) -> None:
        """One operation of one tenant, who does some more in the same session."""
        if not self._left:
            name = f"t{self.random.randrange(TENANTS)}"
            self._at = name, f"agent:agent-{name}:cli:dm:{self.random.randrange(2)}"
            self._left = self.random.randint(1, self._stay)
        self._left -= 1
        await self.random.choice(self.acts)(*self._at)

    async def ask(self, name: str, method: str, path: str, **more: Any) -> Any:
        """A request; whatever is answered holds no foreign canary."""
        answer = await self.client.request(method, path, headers=bearer(name), **more)
        assert set(CANARY.findall(answer.content)) <= {name.encode()}, (name, path, answer.text)
        assert answer.status_code < 500, answer.text
        return answer

    async def say(self, name: str, key: str) -> None:
        text = f"canary-{name}-{self.random.getrandbits(32):x}"
        answer = await self.ask(name, "POST", f"/v1/sessions/{key}/messages?wait=30", json={"text": text})
        told = answer.json()
        if told.get("stop") == "aborted" or answer.status_code in (409, 429):
            return  # the same tenant began a new session meanwhile, from elsewhere
        assert told["reply"].startswith(f"you said canary-{name}-"), answer.text

    async def look(self, name: str, key: str) -> None:
        await self.ask(name, "GET", f"/v1/sessions/{key}")

    async def read(self, name: str, key: str) -> None:
        await self.ask(name, "GET", f"/v1/sessions/{key}/entries?scope=all")

    async def list(self, name: str, key: str) -> None:
        told = (await self.ask(name, "GET", "/v1/sessions")).json()["sessions"]
        assert all(row["key"].startswith(f"agent:agent-{name}:") for row in told)

    async def export(self, name: str, key: str) -> None:
        await self.ask(name, "GET", f"/v1/sessions/{key}/export")

    async def name(self, name: str, key: str) -> None:
        if self.random.random() < RENEWED:
            await self.ask(name, "POST", f"/v1/sessions/{key}/new")
        await self.ask(name, "POST", f"/v1/sessions/{key}/rename", json={"name": f"canary-{name}-name"})

    async def pry(self, name: str, key: str) -> None:
        """What is another's is not there, whatever is asked of it."""
        other = f"agent:agent-t{(int(name[1:]) + 1) % TENANTS}:cli:dm:0"
        if self.random.random() < 0.1:
            path = self.random.choice(("/v1/status?deep=1", "/metrics"))
            assert (await self.ask(name, "GET", path)).status_code == 403
            return
        what, method, body = self.random.choice(PRYING)
        answer = await self.ask(
            name, method, f"/v1/sessions/{other}{what}", **({"json": body} if body else {})
        )
        assert answer.status_code == 404, (what, answer.text)


PRYING: list[tuple[str, str, Any]] = [
    ("", "GET", None), ("/entries", "GET", None), ("/export", "GET", None), ("/events", "GET", None),
    ("/messages", "POST", {"text": "let me in"}), ("/command", "POST", {"line": "/status"}),
    ("/switch", "POST", {"entry": "a"}), ("/fork", "POST", {"key": "agent:main:cli:dm:x"}),
    ("/rename", "POST", {"name": "mine"}), ("/compact", "POST", {}), ("/undo", "POST", {}),
    ("/truncate", "POST", {}), ("/abort", "POST", {}), ("/new", "POST", {}),
    ("", "DELETE", None), ("/approvals", "GET", None),
    ("/outbox", "GET", None), ("/schedules", "GET", None), ("/schedules/a", "DELETE", None),
    ("/schedules", "POST", {"message": "a", "every": "4h"}),
    ("/approvals", "POST", {"id": "a", "allow": True}), ("/model", "POST", {"model": "a/b"}),
    ("/label", "POST", {"entry": "a", "text": "b"}),
]  # fmt: skip


class Answered:
    """What the API answered inside the process."""

    def __init__(self) -> None:
        self.status_code, self.content = 0, b""

    @property
    def text(self) -> str:
        return self.content.decode(errors="replace")

    def json(self) -> Any:
        return json.loads(self.content)


class Inside:
    """The API without a socket: the ASGI application, asked as hypercorn asks it."""

    def __init__(self, app: Any, host: bytes) -> None:
        self._app, self._host = app, host

    async def request(self, method: str, path: str, *, headers: dict[str, str], json: Any = None) -> Answered:
        """One request and its whole answer."""
        body = b"" if json is None else dumps(json).encode()
        found = Answered()
        pieces: list[bytes] = []

        async def send(message: Any) -> None:
            found.status_code = message.get("status", found.status_code)
            pieces.append(message.get("body", b""))

        asked = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Any:
            if not asked:
                await anyio.sleep_forever()
            return asked.pop()

        if json is not None:
            headers = {**headers, "content-type": "application/json", "content-length": f"{len(body)}"}
        await self._app(self._scope(method, path, headers), receive, send)
        found.content = b"".join(pieces)
        return found

    async def follow(self, path: str, headers: dict[str, str], told: Callable[[bytes], None]) -> None:
        """A stream, piece by piece, until it is cancelled."""

        async def send(message: Any) -> None:
            told(message.get("body", b""))

        await self._app(self._scope("GET", path, headers), anyio.sleep_forever, send)

    def _scope(self, method: str, path: str, headers: dict[str, str]) -> dict[str, Any]:
        bare, _, query = path.partition("?")
        told = [(b"host", self._host), *((k.encode(), v.encode()) for k, v in headers.items())]
        return {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method,
            "scheme": "http", "path": bare, "raw_path": bare.encode(), "query_string": query.encode(),
            "root_path": "", "headers": told, "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2),
            "state": {}, "extensions": {},
        }  # fmt: skip


def bearer(name: str) -> dict[str, str]:
    """The header of who asks."""
    return {"authorization": f"Bearer {token(name)}"}


EVERYBODY = tuple(tenant(f"t{n}", f"agent-t{n}") for n in range(TENANTS))


async def _listen(found: Served, name: str, seen: list[int]) -> None:
    """All of a tenant's events, for as long as it lasts."""
    async with found.follow("/v1/events", token=token(name)) as stream:
        await upto(stream, "ready")
        seen.append(0)
        async for event in stream:
            seen[0] += 1
            assert event.data["key"].startswith(f"agent:agent-{name}:"), event
            assert set(CANARY.findall(repr(event).encode())) <= {name.encode()}, event


async def _work(client: httpx2.AsyncClient | Inside, operations: int, seed: str, stay: int = 1) -> None:
    """So many operations, by some who look at once."""
    left = iter(range(operations))

    async def work(number: int) -> None:
        looker = Looker(client, f"{seed}-{number}", stay)
        for _ in left:
            await looker.one()

    async with anyio.create_task_group() as working:
        for number in range(AT_ONCE):
            working.start_soon(work, number)


def _nothing_foreign(state: Path) -> None:
    """In any file: a tenant's folder holds its own canary at most, what is everybody's holds none."""
    assert not CANARY.findall((state / "runtime.log").read_bytes())
    seen = 0
    for path in state.rglob("*"):
        if path.is_file():
            found = set(CANARY.findall(path.read_bytes()))
            owner = path.relative_to(state / "sessions").parts[0] if "sessions" in path.parts else ""
            mine = {owner.removeprefix("agent-").encode()} if owner else set()
            if not path.name.startswith("index.sqlite"):
                assert found <= mine, (path, found - mine)
            seen += bool(found)
    assert seen > 1
    with closing(sqlite3.connect(state / "index.sqlite")) as index:
        for key, name in index.execute("select key, name from sessions"):
            found = set(CANARY.findall((name or "").encode()))
            assert found <= {key.split(":")[1].removeprefix("agent-").encode()}, (key, name)


def test_no_tenant_ever_sees_the_canary_of_another_over_sockets(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            serving(tmp_path, Echo(), tenants=EVERYBODY, most_awake=200) as found,
            found.client() as client,
            anyio.create_task_group() as listening,
        ):
            for n in range(0, TENANTS, 100):
                listening.start_soon(_listen, found, f"t{n}", [])
            await _work(client, OVER_SOCKETS, "sockets")
            for path in ("/metrics", "/v1/status"):
                told = await client.get(path)
                assert told.status_code == 200
                assert not CANARY.findall(told.content)
            listening.cancel_scope.cancel()

    real(main, seconds=900 if FULL else 120)
    _nothing_foreign(tmp_path / "state")


@pytest.mark.parametrize("part", range(PARTS))
def test_nor_in_a_million_operations(tmp_path: Path, part: int) -> None:
    async def main() -> None:
        play = Echo()
        host = hosted(
            tmp_path, play, RealClock(), settings=Settings(tenants=EVERYBODY), io=IoPolicy(virtual=True),
            most_awake=200, accounting=False,
        )  # fmt: skip
        async with host, anyio.create_task_group() as listening:
            shared = serving_of(host, "the operator's own token", {})
            leave = host.services.events.subscribe("server", shared.hub.told)
            client = Inside(application(shared), b"127.0.0.1")
            heard = 0

            def hear(name: str, piece: bytes) -> None:
                nonlocal heard
                heard += 1
                assert set(CANARY.findall(piece)) <= {name.encode()}, piece
                assert set(KEYS.findall(piece)) <= {name.encode()}, piece

            for n in range(0, TENANTS, 100):
                name = f"t{n}"
                listening.start_soon(client.follow, "/v1/events", bearer(name), partial(hear, name))
            await _work(client, INSIDE, f"inside-{part}", STAY)
            for path in ("/metrics", "/v1/status?deep=1"):
                told = await client.request(
                    "GET", path, headers={"authorization": "Bearer the operator's own token"}
                )
                assert told.status_code == 200
                assert not CANARY.findall(told.content)
            assert heard
            leave()
            listening.cancel_scope.cancel()

    real(main, seconds=86_400 if FULL else 120)
    _nothing_foreign(tmp_path / "state")

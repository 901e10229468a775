"""A thousand tenants, each with a canary: nobody ever sees another's, wherever they look.

`make canaries` does a million random operations.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import httpx2

from helpers_host import Play, real
from helpers_serve import serving, tenant, token, upto
from perdure.contracts import Request
from perdure.edges.models.reply import ScriptedReply, say
from perdure.testing.serving import Served

FULL = os.environ.get("PERDURE_CANARIES") == "full"
TENANTS, OPERATIONS, AT_ONCE = 1_000, 1_000_000 if FULL else 1_000, 8
CANARY = re.compile(rb"canary-(t\d+)-")


class Echo(Play):
    """Says again what it was told, canary included; sees what it is asked."""

    async def __call__(self, body: dict[str, Any], request: Request) -> ScriptedReply:
        name = request.session.split(":")[1].removeprefix("agent-")
        assert set(CANARY.findall(request.body)) <= {name.encode()}
        last = body["messages"][-1]["content"]
        return say(f"you said {last if isinstance(last, str) else last[-1]['text']}")


class Looker:
    """One of many clients that do random things as random tenants."""

    def __init__(self, found: Served, client: httpx2.AsyncClient, seed: int) -> None:
        self.found, self.client, self.random = found, client, random.Random(seed)
        self.acts: list[Callable[[str, str], Awaitable[None]]] = [
            self.say, self.say, self.say, self.look, self.read, self.list, self.export, self.pry, self.name,
        ]  # fmt: skip

    async def one(self) -> None:
        """One operation of one tenant."""
        name = f"t{self.random.randrange(TENANTS)}"
        await self.random.choice(self.acts)(name, f"agent:agent-{name}:cli:dm:{self.random.randrange(2)}")

    async def ask(self, name: str, method: str, path: str, **more: Any) -> httpx2.Response:
        """A request; whatever is answered holds no foreign canary."""
        headers = {"authorization": f"Bearer {token(name)}"}
        answer = await self.client.request(method, path, headers=headers, **more)
        assert set(CANARY.findall(answer.content)) <= {name.encode()}, (name, path, answer.text)
        assert answer.status_code < 500, answer.text
        return answer

    async def say(self, name: str, key: str) -> None:
        text = f"canary-{name}-{self.random.getrandbits(32):x}"
        answer = await self.ask(name, "POST", f"/v1/sessions/{key}/messages?wait=30", json={"text": text})
        assert answer.json()["reply"].startswith(f"you said canary-{name}-"), answer.text

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
        await self.ask(name, "POST", f"/v1/sessions/{key}/rename", json={"name": f"canary-{name}-name"})

    async def pry(self, name: str, key: str) -> None:
        """What is another's is not there, whatever is asked of it."""
        other = f"agent:agent-t{(int(name[1:]) + 1) % TENANTS}:cli:dm:0"
        what, method, body = self.random.choice(PRYING)
        answer = await self.ask(
            name, method, f"/v1/sessions/{other}{what}", **({"json": body} if body else {})
        )
        assert answer.status_code == 404, (what, answer.text)
        for path in ("/v1/status?deep=1", "/metrics"):
            assert (await self.ask(name, "GET", path)).status_code == 403


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


async def _listen(found: Served, name: str, seen: list[int]) -> None:
    """All of a tenant's events, for as long as it lasts."""
    async with found.follow("/v1/events", token=token(name)) as stream:
        await upto(stream, "ready")
        seen.append(0)
        async for event in stream:
            seen[0] += 1
            assert event.data["key"].startswith(f"agent:agent-{name}:"), event
            assert set(CANARY.findall(repr(event).encode())) <= {name.encode()}, event


def test_no_tenant_ever_sees_the_canary_of_another(tmp_path: Path) -> None:
    tenants = tuple(tenant(f"t{n}", f"agent-t{n}") for n in range(TENANTS))

    async def main() -> None:
        async with (
            serving(tmp_path, Echo(), tenants=tenants, most_awake=200) as found,
            found.client() as client,
            anyio.create_task_group() as listening,
        ):
            for n in range(0, TENANTS, 100):
                listening.start_soon(_listen, found, f"t{n}", [])
            left = iter(range(OPERATIONS))

            async def work(seed: int) -> None:
                looker = Looker(found, client, seed)
                for _ in left:
                    await looker.one()

            async with anyio.create_task_group() as working:
                for seed in range(AT_ONCE):
                    working.start_soon(work, seed)
            for path in ("/metrics", "/v1/status"):
                told = await client.get(path)
                assert told.status_code == 200
                assert not CANARY.findall(told.content)
            listening.cancel_scope.cancel()

    real(main, seconds=86_400 if FULL else 120)
    assert not CANARY.findall((tmp_path / "state" / "runtime.log").read_bytes())

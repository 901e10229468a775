"""Clients that go on whatever becomes of their server, and keep their own record of what it told them.

A sender posts one message after the other, each again with the same key until it is acknowledged. A
follower keeps an event stream open and resumes from the last id it was given.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import dataclass, field

import anyio
import httpx2

from helpers_serve import token
from perdure.testing.serving import Events

PAUSE = 0.01  # seconds before a refused or lost request is tried again
PATIENCE = 60.0  # seconds that all of that may take
MISTAKES = frozenset({400, 401, 403, 404, 409, 413, 415, 422})


def question(mid: str) -> str:
    """What a message says: the same each time it is sent."""
    return f"question {mid}: " + "and more words " * (4, 40, 40, 160)[int(mid[1:]) % 4]


@dataclass
class Followed:
    """What one event stream told over all connections."""

    path: str
    last: str = ""
    entries: list[tuple[str, str]] = field(default_factory=list)  # (key, entry), as they came
    known: dict[str, str] = field(default_factory=dict)  # key: the latest entry
    unanswered: set[str] = field(default_factory=set)  # keys whose last message is no final answer
    ready: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)


@dataclass
class Sent:
    """What one sender has sent. `acked`: message ids, in the order in which they were sent."""

    key: str
    sender: str
    acked: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)


class Clients:
    """All clients of a server on a port of ours. `facts` counts what they were told in this life of it."""

    def __init__(self, port: int, name: str, rng: random.Random) -> None:
        self.port, self._rng = port, rng
        self._headers = {"authorization": f"Bearer {token(name)}"}
        self.followed: list[Followed] = []
        self.sent: list[Sent] = []
        self.facts = 0
        self.posting = True
        self._number = 0

    # --- senders ----------------------------------------------------------------------------------

    async def send(self, sent: Sent) -> None:
        """Post until that is over; now and then an old message again, as a lost answer makes clients do."""
        self.sent.append(sent)
        async with self.http() as client:
            while self.posting:
                self._number += 1
                mid = f"m{self._number:06}"
                await self.post(client, sent, mid)
                sent.acked.append(mid)
                if self._rng.random() < 0.1:
                    again = self._rng.choice(sent.acked[-200:])
                    told = await self.post(client, sent, again)
                    if not told["repeated"]:
                        sent.faults.append(f"{again} was taken twice")
                await anyio.sleep(self._rng.random() * 0.1)

    async def post(
        self, client: httpx2.AsyncClient, sent: Sent, mid: str, wait: float | None = None
    ) -> dict[str, object]:
        """Post a message until it is acknowledged; the answer."""
        wait = self._rng.choice((0, 0, 2)) if wait is None else wait
        path = f"/v1/sessions/{sent.key}/messages" + (f"?wait={wait:g}" if wait else "")
        body = {"text": question(mid), "sender": sent.sender}
        with anyio.fail_after(PATIENCE):
            while True:
                try:
                    answer = await client.post(path, json=body, headers={"idempotency-key": mid})
                except httpx2.TransportError:
                    sent.counts["lost"] += 1
                else:
                    self.facts += 1
                    sent.counts[str(answer.status_code)] += 1
                    if answer.status_code in (200, 202):
                        return dict(answer.json())
                    if answer.status_code in MISTAKES or answer.status_code == 500:
                        raise AssertionError(f"{mid}: {answer.status_code} {answer.text}")
                await anyio.sleep(PAUSE)

    def http(self) -> httpx2.AsyncClient:
        """A client of the server, with its token."""
        url = f"http://127.0.0.1:{self.port}"
        return httpx2.AsyncClient(base_url=url, headers=self._headers, timeout=30.0)

    # --- followers --------------------------------------------------------------------------------

    async def follow(self, followed: Followed) -> None:
        """Follow until cancelled; now and then the connection is closed for no reason."""
        self.followed.append(followed)
        while True:
            await self.visit(followed, self._rng.randrange(20, 400))
            followed.counts["visits"] += 1
            await anyio.sleep(PAUSE)

    async def visit(self, followed: Followed, most: int = 1_000_000, until: str = "") -> bool:
        """One connection, for so many events at most or until one of that name. Whether it was had."""
        headers = self._headers | ({"last-event-id": followed.last} if followed.last else {})
        try:
            async with await anyio.connect_tcp("127.0.0.1", self.port) as stream:
                events = Events(stream)
                await events.ask(f"127.0.0.1:{self.port}", f"{followed.path}/events", headers)
                if events.status != 200:
                    followed.counts[str(events.status)] += 1
                    return False
                async for event in events:
                    most -= 1
                    self._take(followed, event.name, event.data)
                    followed.last = event.id or followed.last
                    if most <= 0 or event.name == until:
                        return True
        except (OSError, anyio.BrokenResourceError, StopAsyncIteration):
            return False
        return False

    def _take(self, followed: Followed, name: str, data: dict[str, object]) -> None:
        self.facts += 1
        followed.counts[name] += 1
        if name == "ready":
            followed.ready += 1
        elif name == "resync" and data["key"] is not None:
            known = followed.known.get(str(data["key"]), "")
            if data["after"] != known:
                followed.faults.append(f"resync after {data['after']}, and not {known}")
        elif name == "entry":
            key, entry = str(data["key"]), str(data["entry"])
            followed.entries.append((key, entry))
            followed.known[key] = entry
            (followed.unanswered.discard if _final(data) else followed.unanswered.add)(key)
        elif name == "failed":
            followed.faults.append(json.dumps(data))


def _final(data: dict[str, object]) -> bool:
    message = data["message"]
    return isinstance(message, dict) and message["role"] == "assistant" and message["stopReason"] == "stop"

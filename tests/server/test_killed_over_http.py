"""SIGKILL under load from HTTP clients, whose own record is held against the transcripts.

`PERDURE_HTTP_KILLS=100` (`make kill`) prints what happened; four deaths by default.
"""

from __future__ import annotations

import os
import random
import socket
import time
from collections import Counter
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from helpers_forks import FORKS, ensure_forks
from helpers_host import real, session_path
from helpers_http_clients import Clients, Followed, Sent
from helpers_killed_server import TENANT, Life, hosting
from helpers_serve import until
from perdure.edges.session.decode import decode_entry
from perdure.edges.session.history import History
from perdure.edges.session.own import facts_of
from perdure.kernel.run import Backend
from perdure.records import Assistant, User
from perdure.server.since import whole

KILLS = int(os.environ.get("PERDURE_HTTP_KILLS", "4"))
KEYS = [f"agent:main:cli:dm:{n}" for n in range(6)]
LOOPS: tuple[Backend, ...] = ("asyncio", "trio", "uvloop")
EARLY = 0.2  # of the lives end while they start
AGAIN = 20  # messages of each sender that are sent once more at the end


class Machine:
    """Where a host lives again and again. Its port stays ours: bound by us too, without listening."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self._folder, self._rng, self.lives = folder, rng, 0
        self.ready = False  # it takes requests
        self._place = socket.socket()
        self._place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._place.bind(("127.0.0.1", 0))
        self.port = self._place.getsockname()[1]
        self.times: list[float] = []  # seconds from the start of a process to its first request

    async def start(self, most: float = 60.0) -> None:
        """A new process, until it takes requests or for so long. Durability and loop alternate."""
        begun, number = time.monotonic(), self.lives
        life = Life(
            str(self._folder),
            self.port,
            LOOPS[number // 2 % 3],
            ("process", "power")[number % 2],
            self._rng.choice((3, 64)),
        )
        self._told, told = FORKS.Pipe(duplex=False)
        orders, self._orders = FORKS.Pipe(duplex=False)
        self._process = FORKS.Process(target=hosting, args=(life, told, orders))
        self._process.start()
        self.lives, self.ready = self.lives + 1, False
        told.close()
        orders.close()
        self.ready = await anyio.to_thread.run_sync(self._told.poll, most)
        if self.ready:
            self._told.recv_bytes()  # EOFError: it did not start
            self.times.append(time.monotonic() - begun)

    async def kill(self) -> None:
        """As it is."""
        self._process.kill()
        assert await self._end() == -9

    async def stop(self) -> None:
        """In order."""
        self._orders.close()
        assert await self._end() == 0

    async def _end(self) -> int | None:
        await anyio.to_thread.run_sync(self._process.join, 60)
        code = self._process.exitcode
        self._process.close()
        self._orders.close()
        self._told.close()
        return code

    def close(self) -> None:
        """Give the port back."""
        self._place.close()


def check_messages(folder: Path, clients: Clients) -> None:
    """Each sender's messages: all of them, each once, in the order in which they were acknowledged."""
    for key in KEYS:
        found: dict[str, list[str]] = {sent.sender: [] for sent in clients.sent if sent.key == key}
        for _, raw in sorted(History(session_path(folder, key)).records()):
            entry = decode_entry(raw)
            facts = facts_of(entry) if entry.type == "message" else None
            if facts is not None and facts.origin is not None:
                found[facts.origin.sender.rpartition(":")[2]].append(facts.origin.mid)
        for sent in clients.sent:
            if sent.key == key:
                assert found[sent.sender] == sent.acked, (key, sent.sender)


def check_answers(folder: Path) -> None:
    """No message is left without an answer, and no answer has no message."""
    for key in KEYS:
        asked = 0
        for item in whole(session_path(folder, key)):
            asked += isinstance(item.message, User)
            if isinstance(item.message, Assistant) and item.message.stop == "stop":
                assert asked, f"{key}: {item.entry} answers nothing new"
                asked = 0
        assert not asked, f"{key}: {asked} without an answer"


def check_tools(folder: Path) -> None:
    """No call ran twice."""
    marks = Counter((folder / "marks").read_text().split())
    assert [mark for mark, count in marks.items() if count > 1] == []


def check_streams(folder: Path, clients: Clients) -> None:
    """Each stream told each message of its sessions once, in their order."""
    for followed in clients.followed:
        assert not followed.faults, (followed.path, followed.faults)
        for key in KEYS:
            told = [entry for of, entry in followed.entries if of == key]
            if told or key in followed.path or followed.path == "/v1":
                kept = [item.entry for item in whole(session_path(folder, key))]
                assert told == kept, (followed.path, key, set(kept) ^ set(told), len(told), len(kept))


async def die(machine: Machine, clients: Clients, rng: random.Random) -> None:
    """Live until clients were told so many things, and a moment more; at once where it only starts."""
    if machine.ready:
        clients.facts, goal = 0, rng.randrange(30, 900)
        await until(lambda: clients.facts >= goal, 60)
        await anyio.sleep(rng.random() * 0.03)
    await machine.kill()


async def story(folder: Path, clients: Clients, machine: Machine, rng: random.Random) -> None:
    """Deaths under load, one after the last acknowledgement, and an end in order."""
    await machine.start()
    async with anyio.create_task_group() as following:
        for path in ("/v1", *(f"/v1/sessions/{key}" for key in KEYS)):
            following.start_soon(clients.follow, Followed(path))
        await until(lambda: all(each.last for each in clients.followed))
        async with anyio.create_task_group() as sending:
            for n, key in enumerate((*KEYS, *KEYS)):
                sending.start_soon(clients.send, Sent(key, f"sender{n}"))
            for n in range(KILLS - 1):
                await die(machine, clients, rng)
                early = rng.random() < EARLY and n < KILLS - 3
                await machine.start(rng.random() * 0.3 if early else 60.0)
            clients.posting = False
        await machine.kill()
        await machine.start()
        await until(lambda: not any(each.unanswered for each in clients.followed), 60)
        following.cancel_scope.cancel()
    await machine.stop()
    check_answers(folder)
    await machine.start()
    async with clients.http() as client:
        for sent in clients.sent:
            for mid in sent.acked[-AGAIN:]:
                again = await clients.post(client, sent, mid, 30)
                assert (again["repeated"], again["stop"]) == (True, "stop"), again
    for followed in clients.followed:
        assert await clients.visit(followed, until="ready")
    await machine.stop()


def told(clients: Clients, machine: Machine, folder: Path, seconds: float) -> str:
    """What happened, in a line."""
    posted, streamed = Counter[str](), Counter[str]()
    for sent in clients.sent:
        posted.update(sent.counts)
    for followed in clients.followed:
        streamed.update(followed.counts)
    compactions = sum(session_path(folder, key).read_bytes().count(b'"type":"compaction"') for key in KEYS)
    return (
        f"{KILLS} kills in {seconds:.0f} s, {machine.lives} lives; "
        f"{sum(len(sent.acked) for sent in clients.sent)} messages acknowledged, {dict(posted)}; "
        f"streams {dict(streamed)}; compactions in files {compactions}; "
        f"start {sorted(machine.times)[len(machine.times) // 2]:.2f} s, at most {max(machine.times):.2f} s"
    )


@pytest.fixture(scope="module", autouse=True)
def _forks() -> None:
    ensure_forks()


def test_a_server_killed_under_load_keeps_its_word_to_every_client(tmp_path: Path) -> None:
    rng = random.Random(f"http {KILLS}")
    machine = Machine(tmp_path, rng)
    clients = Clients(machine.port, TENANT, rng)
    begun = time.monotonic()
    try:
        real(lambda: story(tmp_path, clients, machine, rng), seconds=60 + 30 * KILLS)
    finally:
        machine.close()
    print(told(clients, machine, tmp_path, time.monotonic() - begun))  # noqa: T201  # `make kill` shows it
    check_messages(tmp_path, clients)
    check_answers(tmp_path)
    check_tools(tmp_path)
    check_streams(tmp_path, clients)
    assert not [fault for sent in clients.sent for fault in sent.faults]
    assert b"server.bug" not in (tmp_path / "state" / "runtime.log").read_bytes()

"""A workload over several sessions that is cut off, or refused by the disk, at any call that changes it.

Deterministic: virtual time, everything inline, syncs included. `Machine` counts the calls and acts at one.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

from helpers_host import KEY, Fn, Play, hosted, session_path
from helpers_power import Platter
from perdure.contracts import Request
from perdure.edges import disk
from perdure.edges.journal.segment import segments
from perdure.edges.models.reply import ScriptedReply, call, say
from perdure.edges.session.decode import decode_entry
from perdure.edges.session.history import History
from perdure.edges.session.lock import NO_PID
from perdure.edges.session.own import facts_of
from perdure.edges.settings import HostSettings, Settings
from perdure.errors import PerdureError, StorageFailed
from perdure.host import Host
from perdure.kernel.errors import DeadlineExceeded
from perdure.kernel.io import IoPolicy
from perdure.kernel.virtual import VirtualClock
from perdure.records import ModelInfo, Text

Mode: TypeAlias = Literal["process", "power"]
What: TypeAlias = Literal["crash", "torn", "EIO", "ENOSPC"]
KEYS = tuple(f"{KEY}{n}" for n in range(4))
INFO = ModelInfo("scripted", "test", window=200_000, cache_minimum=16)
WORDS = "words upon words that fill a file " * 12
ERRORS = {"EIO": OSError(5, "Input/output error"), "ENOSPC": OSError(28, "No space left on device")}


class Machine:
    """The disk below the host. Dead at call number `at`, or refusing that one call."""

    def __init__(self, state: Path, at: int | None = None, what: What = "crash") -> None:
        self._state, self._at, self._what = f"{state}/", at, what
        self.platter = Platter(state)
        self.count, self.dead = 0, False
        self.seen: list[str] = []

    def __call__(self, op: str, path: str) -> None:
        if not path.startswith(self._state):
            return
        if self.dead:
            raise OSError(5, "this process is dead")
        self.count += 1
        self.seen.append(f"{op} {os.path.basename(path)}")
        if self.count != self._at:
            self.platter(op, path)
            return
        if self._what in ERRORS:
            raise ERRORS[self._what]
        self.dead = True
        death = OSError(5, "this process is dead")
        raise disk.Torn(death) if self._what == "torn" and op == "write" else death

    def buried(self, now_ms: int) -> None:
        """Locks name a process that is gone now; what was half written has the age that virtual time says."""
        for lock in Path(self._state).rglob("*.jsonl.lock"):
            data = lock.read_bytes()
            if data.endswith(b"}"):
                lock.write_bytes(json.dumps(json.loads(data) | {"pid": NO_PID}).encode())
            os.utime(lock, (now_ms / 1000, now_ms / 1000))


class Tale:
    """What the clients know: what was acknowledged, in which order, and which entries were reported."""

    def __init__(self) -> None:
        self.acked: dict[str, list[str]] = {key: [] for key in KEYS}
        self.again: dict[str, list[str]] = {key: [] for key in KEYS}  # found on record when sent again
        self.unsure: dict[str, list[str]] = {key: [] for key in KEYS}
        self.texts: dict[str, str] = {}  # by message id
        self.entries: dict[str, list[str]] = {key: [] for key in KEYS}
        self.runs: Counter[str] = Counter()
        self.untyped: list[BaseException] = []
        self.sent = 0


async def answer(body: dict[str, Any], request: Request) -> ScriptedReply:
    """Two calls for a question that asks for them, else words."""
    last = body["messages"][-1]["content"]
    text = "".join(block.get("text", "") for block in last if block["type"] == "text")
    if "use tools" in text and not any(block["type"] == "tool_result" for block in last):
        stem = f"toolu_{len(body['messages'])}_{request.session[-1:]}"
        return ScriptedReply((Text("looking"), call("mark", f"{stem}a"), call("mark", f"{stem}b")))
    return say(f"done {WORDS}")


class Client:
    """Plays the workload against one host, life after life."""

    def __init__(self, folder: Path, clock: VirtualClock, mode: Mode, machine: Machine, tale: Tale) -> None:
        self.folder, self.clock, self.machine, self.tale = folder, clock, machine, tale
        self.settings = Settings(host=HostSettings(durability=mode, journal_mb=1))
        self.host: Host | None = None

    def new_host(self) -> Host:
        play = Play()
        play.queues = _Endless(answer)  # type: ignore[assignment]

        async def mark(arguments: Mapping[str, Any], context: Any) -> str:
            self.tale.runs[context.call_id] += 1
            await self.clock.sleep(0.1)
            return f"marked {WORDS}"

        return hosted(
            self.folder, play, self.clock, tools=[Fn("mark", mark)], settings=self.settings, info=INFO,
            accounting=False, io=IoPolicy(True, sync=True), most_awake=2, truncate_after=2_048,
        )  # fmt: skip

    async def send(self, key: str, text: str, *, mid: str | None = None, wait: bool = True) -> None:
        """One message; where the disk refuses it, once more when it takes something again."""
        tale = self.tale
        if mid is None:
            tale.sent += 1
            mid = f"m{tale.sent:03}"
        text = tale.texts.setdefault(mid, text)  # sent again, it is the same message
        if mid not in tale.unsure[key]:
            tale.unsure[key].append(mid)
        for _ in range(4):
            if (sent := await self.tried(lambda: self._host.send(key, text, mid=mid))) is not None:
                (tale.again if sent.receipt.repeated else tale.acked)[key].append(mid)
                tale.unsure[key].remove(mid)
                if wait and (reply := await self.tried(lambda: sent.reply(500))) is not None:
                    tale.entries[key] += reply.entries
                return
            if self.machine.dead:
                return
            await self.clock.sleep(7)

    async def command(self, key: str, line: str) -> None:
        await self.tried(lambda: self._host.command(key, line))

    async def tried(self, what: Callable[[], Awaitable[Any]]) -> Any:
        """None where it was refused, which is said by a typed error only."""
        try:
            return None if self.machine.dead else await what()
        except (PerdureError, DeadlineExceeded):
            return None
        except BaseException as error:
            self.tale.untyped.append(error)
            raise

    @property
    def _host(self) -> Host:
        assert self.host is not None
        return self.host

    async def work(self) -> None:
        """All that writes: letters, steering, tools, sleep, compaction, truncation, `/undo`, `/new`."""
        a, b, c, d = KEYS
        await self.send(a, f"use tools please {WORDS}", wait=False)
        await self.clock.sleep(0.05)
        await self.send(a, "steer while it works", wait=False)
        await self.send(a, "and once more", wait=False)
        await self.clock.sleep(5)
        for n in range(4):
            await self.send(b, f"question {n} {WORDS}")
            await self.send(c, f"use tools {n}")  # two awake at most: somebody falls asleep
            await self.send(d, f"hello {n}")
        await self.command(b, "/compact")
        await self.command(b, "/undo")
        await self.send(b, f"after undo {WORDS}")
        await self.command(b, "/compact")
        await self.clock.sleep(30)
        await self.send(b, "after truncation")
        await self.command(c, "/new")
        await self.send(c, "in a new file")
        await self.command(d, "/name d")
        await self.command(d, "/pin never forget")
        await self.send(d, "use tools at last", wait=False)
        await self.clock.sleep(20)

    async def live(self, work: Callable[[], Awaitable[None]]) -> None:
        """One life of the host, to its end or its death. A start that the disk refuses is tried again."""
        for _ in range(5):
            host = self.new_host()
            try:
                async with host:
                    self.host = host
                    await work()
                    if self.machine.dead:
                        host.kill()
                return
            except (StorageFailed, OSError) as error:
                if isinstance(error, OSError) and not self.machine.dead:
                    self.tale.untyped.append(error)
                if self.machine.dead or host.running:
                    return
                await self.clock.sleep(7)

    async def aftermath(self) -> None:
        """The next life: what was not acknowledged is sent again, and every session still answers."""
        for key in KEYS:
            for mid in list(self.tale.unsure[key]):
                await self.send(key, "sent again", mid=mid)
            await self.send(key, "the last one")


class _Endless(dict[str, Any]):
    """A queue that always gives the same answer."""

    def __init__(self, reply: Any) -> None:
        super().__init__()
        self._reply = reply

    def __missing__(self, key: str) -> Any:
        return _Always(self._reply)


class _Always:
    def __init__(self, reply: Any) -> None:
        self._reply = reply

    def popleft(self) -> Any:
        return self._reply

    def __bool__(self) -> bool:
        return True

    def extend(self, more: Any) -> None:
        raise AssertionError("nothing else is played")


def entries(folder: Path, key: str) -> list[tuple[str, bytes]]:
    """All entries of a session's files, those that `/new` put aside included, in the order of their ids."""
    path = session_path(folder, key)
    stem = path.name.removesuffix(".jsonl")
    files = sorted(path.parent.glob(f"{stem}.*.jsonl"))
    return [found for file in (*files, path) if file.exists() for found in sorted(History(file).records())]


def check(folder: Path, tale: Tale) -> None:
    """Nothing acknowledged is lost, doubled or reordered; nothing reported is missing; no tool ran twice."""
    for error in tale.untyped:
        raise AssertionError("an error that is not typed") from error
    for key in KEYS:
        found = entries(folder, key)
        mids = []
        for _, raw in found:
            entry = decode_entry(raw)
            facts = facts_of(entry) if entry.type == "message" else None
            if facts is not None and facts.origin is not None and b'"of":' not in bytes(entry.perdure):
                mids.append(facts.origin.mid)
        assert len(mids) == len(set(mids)), (key, "doubled", mids)
        acked, again = tale.acked[key], tale.again[key]
        assert [mid for mid in mids if mid in acked] == acked, (key, mids, acked)
        assert set(again) <= set(mids), (key, "lost", mids, again)
        missing = set(tale.entries[key]) - {id for id, _ in found}
        assert not missing, (key, "reported as durable", missing)
    assert not [call for call, times in tale.runs.items() if times > 1]


def left(folder: Path) -> list[Path]:
    """Segments of the journal that a clean stop would have retired."""
    return segments(folder / "state" / "journal")

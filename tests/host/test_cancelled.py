"""A host whose program is cancelled, at any point of its life: nothing stays behind, no letter is lost."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import anyio
import anyio.lowlevel
import pytest

from helpers_host import (
    Fn,
    Play,
    calls,
    entries,
    hosted,
    real,
    said_by_users,
    session_path,
    tells,
)
from perdure.contracts import Request
from perdure.edges.models.reply import ScriptedReply, call, say
from perdure.edges.settings import ExecSettings, HostSettings, Settings, ToolSettings
from perdure.edges.tools.builtin import default_tools
from perdure.kernel.clock import RealClock
from perdure.kernel.run import Backend

BOTH: tuple[Backend, ...] = ("asyncio", "trio")
KEYS = tuple(f"agent:main:cli:dm:s{n}" for n in range(5))
Durability = Literal["process", "power"]
Kind = Literal["checkpoint", "ack", "event", "request", "tool"]
After = Literal["waits", "returns", "raises"]
IN_TIME = 15.0  # seconds in which everything ends, also on a slow machine: what hangs, hangs for ever


class Cut:
    """Cancels a scope at the n-th point of one kind."""

    def __init__(self, kind: Kind, n: int) -> None:
        self.kind, self.left, self.scope = kind, n, anyio.CancelScope()
        self.done = anyio.Event()

    def at(self, kind: Kind) -> None:
        if kind == self.kind:
            self.left -= 1
            if self.left == 0:
                self.scope.cancel()
                self.done.set()


def settings(durability: Durability) -> Settings:
    return Settings(host=HostSettings(durability=durability))


def play_of(cut: Cut, keys: tuple[str, ...] = KEYS) -> Play:
    """Turns of a tool call and an answer, each request a point."""

    def tool(body: dict[str, Any], request: Request) -> ScriptedReply:
        cut.at("request")
        return calls("look")

    def answer(body: dict[str, Any], request: Request) -> ScriptedReply:
        cut.at("request")
        return say("seen")

    play = Play()
    for key in keys:
        play.then(*(tool, answer) * 8, key=key)
    return play


async def life(folder: Path, cut: Cut, after: After, durability: Durability) -> set[str]:
    """A host with five writers until the cut; what was acknowledged."""
    acknowledged: set[str] = set()

    async def look(arguments: object, context: object) -> str:
        cut.at("tool")
        await anyio.lowlevel.checkpoint()
        return "a view"

    async def write(host: Any, key: str) -> None:
        for n in range(6):
            text = f"{key}/{cut.kind}{cut.left}/{n}"
            await host.send(key, text, mid=text)
            acknowledged.add(text)
            cut.at("ack")

    async def count() -> None:
        while not cut.done.is_set():
            await anyio.lowlevel.checkpoint()
            cut.at("checkpoint")

    async with anyio.create_task_group() as counting:
        if cut.kind == "checkpoint":
            counting.start_soon(count)
        with cut.scope, suppressed():
            tools = (Fn("look", look),)
            options = {"tools": tools, "settings": settings(durability)}
            async with hosted(folder, play_of(cut), RealClock(), **options) as host:
                host.services.events.subscribe("cut", lambda _event: cut.at("event"))
                with anyio.CancelScope(shield=after != "waits"):  # else: the drain meets the cancellation
                    async with anyio.create_task_group() as group:
                        for key in KEYS:
                            group.start_soon(write, host, key)
                        if after != "waits":
                            await cut.done.wait()
                            group.cancel_scope.cancel()
                if after == "raises":
                    raise Broken
                if after == "waits":
                    await anyio.sleep_forever()
        cut.done.set()
    return acknowledged


class Broken(Exception):
    """The program's own."""


@contextmanager
def suppressed() -> Iterator[None]:
    try:
        yield
    except Broken:
        pass


async def whole(folder: Path, durability: Durability) -> None:
    """The next host, in the same program, has every session at once."""
    assert not list((folder / "state").rglob("*.jsonl.lock"))
    async with hosted(
        folder, Play(), RealClock(), tools=(tells("look"),), settings=settings(durability)
    ) as host:
        for key in KEYS:
            await host.send(key, "and now?", timeout=10)
        assert host.status()["totals"]["parked"] == 0


def lost_or_doubled(folder: Path, acknowledged: set[str]) -> str:
    said: list[str] = []
    kept: set[str] = set()
    for path in filter(Path.exists, (session_path(folder, key) for key in KEYS)):
        said += [text for text in said_by_users(path) if text != "and now?"]
        letters = [e["data"]["content"] for e in entries(path) if e.get("customType") == "perdure.inbox"]
        kept |= {block["text"] for content in letters for block in content}
    lost, doubled = acknowledged - kept - set(said), len(said) - len(set(said))
    return f"lost {sorted(lost)}, {doubled} doubled" if lost or doubled else ""


POINTS: tuple[tuple[Kind, int], ...] = (
    ("checkpoint", 1),  # the start of the host among them
    ("ack", 3),
    ("event", 5),
    ("tool", 1),
    ("checkpoint", 16),
    ("request", 4),
    ("checkpoint", 60),
    ("ack", 8),
    ("tool", 5),
    ("event", 20),
)
"""Five sessions, each with a turn of two requests at least: every point is reached."""


@pytest.mark.parametrize("loop", BOTH)
@pytest.mark.parametrize("after", ["waits", "returns", "raises"])
def test_a_host_cancelled_at_any_point_leaves_no_lock_no_task_and_loses_no_letter(
    tmp_path: Path, loop: Backend, after: After
) -> None:
    async def main() -> None:
        for n, (kind, point) in enumerate(POINTS):
            folder = tmp_path / f"{kind}{point}"
            folder.mkdir()
            durability: Durability = "power" if n % 2 else "process"
            with anyio.fail_after(IN_TIME):
                acknowledged = await life(folder, Cut(kind, point), after, durability)
                await whole(folder, durability)
            assert not lost_or_doubled(folder, acknowledged), (kind, point)

    real(main, loop, 120)


@pytest.mark.parametrize("loop", BOTH)
@pytest.mark.parametrize("ends", ["cancelled", "drained", "broken"])
def test_the_children_of_a_command_die_with_the_host_however_it_ends(
    tmp_path: Path, loop: Backend, ends: Literal["cancelled", "drained", "broken"]
) -> None:
    """The command says through a pipe which processes it has begun, a grandchild in the background too."""
    pipe = tmp_path / "begun"
    os.mkfifo(pipe)
    exec_on = Settings(tools=ToolSettings(exec=ExecSettings(mode="on")))
    command = f"sleep 600 & echo $! $$ > {pipe}; exec sleep 600"
    play = Play()
    play.then(ScriptedReply((call("exec", command=command),)), key=KEYS[0])

    async def main() -> list[int]:
        reader = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
        try:
            with anyio.CancelScope() as scope, suppressed():
                tools = default_tools(exec_on)
                async with hosted(tmp_path, play, RealClock(), tools=tools, settings=exec_on) as host:
                    await host.send(KEYS[0], "go")
                    await anyio.wait_readable(reader)
                    if ends == "cancelled":
                        scope.cancel()
                    elif ends == "drained":
                        await host.drain(0.0)
                    else:
                        raise Broken
            return [int(pid) for pid in os.read(reader, 100).split()]
        finally:
            os.close(reader)

    pids = real(main, loop)
    assert len(pids) == 2
    assert not [pid for pid in pids if running(pid)]
    assert not list((tmp_path / "state").rglob("*.jsonl.lock"))


def running(pid: int) -> bool:
    """Whether it still runs; one that was killed may take its time on a loaded machine."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        return not select.select([descriptor], [], [], 10)[0]
    finally:
        os.close(descriptor)

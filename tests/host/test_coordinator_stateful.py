"""A real session under a faulty summariser: trigger × failure × interleaving, in virtual time.

Hypothesis drives a host in a thread of its own, one rule at a time; between rules nothing runs, for the
host's loop waits for the next one. `PERDURE_COORDINATIONS` says how many stories are played. What is
watched stands outside the session: the engine that is asked to compact, the memory that is flushed, the
model that is called, and the files.
"""

from __future__ import annotations

import json
import os
import queue
import tempfile
import threading
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from helpers_host import KEY, Fn, Play, entries, hosted, session_path, text_of, virtual
from perdure.actors import compaction
from perdure.actors.messages import Sleep
from perdure.actors.services import Timing
from perdure.contracts import EngineContext, EngineInfo, Request
from perdure.edges.models.reply import ScriptedReply, call, fail, say
from perdure.edges.session.history import History
from perdure.edges.session.tail import open_session
from perdure.edges.settings import CompactionSettings, Settings
from perdure.errors import PerdureError
from perdure.host import Host, Sent
from perdure.kernel.virtual import VirtualClock
from perdure.plugins.engines.legacy import LegacyEngine
from perdure.records import Items, ModelInfo, Text

LARGE = ModelInfo("scripted", "test", window=10_000, cache_minimum=16)
TINY = ModelInfo("small", "tiny", window=6_000, cache_minimum=16)
WORDS = "the pump in row seven leaks again and nobody has looked at it since Tuesday; "
FOCUS = "the pump"  # marks a compaction that a person commanded
MOST = 3

SUMMARIES: dict[str, Any] = {
    "good": None,
    "empty": fail("empty"),
    "unreachable": fail("server"),
    "unauthorised": fail("auth"),
    "silent": fail("stall"),
    "slow": say("The pump was talked about. " * 8, chunks=8, pace=20.0),
    "late": say("The pump was talked about. " * 8, latency=70.0),
    "too long": say(WORDS * 3_000),
    "bug": ZeroDivisionError("a bug"),
    "overflows": fail("overflow"),
}
ANSWERS: dict[str, Any] = {
    "short": lambda n: say(f"answer {n}"),
    "long": lambda n: say(f"answer {n}. {WORDS * 60}"),
    "calls": lambda n: ScriptedReply(
        (Text("looking"), call("look", f"a{n}", n=n), call("look", f"b{n}", n=n))
    ),
    "slow": lambda n: say(f"answer {n}", latency=25.0),
    "overflow": lambda n: fail("overflow"),
    "broken": lambda n: fail("invalid_request"),
}


class Watch(LegacyEngine):
    """The legacy engine, which counts who asks it to compact."""

    info = EngineInfo("watch", "Watches", passive=True)

    def __init__(self, world: World) -> None:
        self.world = world

    async def compact(self, context: EngineContext, delegate: Any, *, force: bool, instructions: str) -> Any:
        world = self.world
        commanded = FOCUS in instructions
        world.row = 0 if commanded else world.row
        world.row += 1
        world.at_once += 1
        world.check(world.at_once == 1, "two compactions at once")
        world.check(world.row <= MOST, f"{world.row} attempts without an accepted call")
        world.check(commanded or not world.manual, "a manual trigger fired by itself")
        try:
            return await delegate()
        except Exception:
            raise
        except BaseException:  # stopped: it counts as none
            world.row -= 1
            raise
        finally:
            world.at_once -= 1


class World:
    """The host, its clock, and what was promised so far."""

    def __init__(self, folder: Path, manual: bool, seed: int) -> None:
        self.folder, self.manual, self.seed = folder, manual, seed
        self.play = Play(summary=self.summarise)
        self.answers: list[str] = []
        self.summary, self.flush, self.crashes = "good", "well", 0
        self.at_once = self.row = self.count = self.news = 0
        self.noted: set[str] = set()  # entries that memory has been shown
        self.forgetful = False  # memory was broken, or slow, at some time
        self.sent: list[tuple[str, Sent]] = []
        self.wrong: list[str] = []
        self.host: Host
        self.clock: VirtualClock
        self.play.then(*[self.answer] * 10_000)

    def check(self, holds: bool, what: str) -> None:
        if not holds:
            self.wrong.append(what)

    async def open(self, clock: VirtualClock) -> None:
        self.clock = clock
        trigger = "manual" if self.manual else "auto"
        self.host = hosted(
            self.folder,
            self.play,
            clock,
            info=LARGE,
            tools=[Fn("look", self.look)],
            settings=Settings(compaction=CompactionSettings(trigger=trigger)),
            models={TINY.ref: TINY},
            factories={"small": lambda info: self.play.model(clock, info)},
            engine=Watch(self),
            flush=self.note,
            timing=Timing(retries=1, retry_base=1.0, model_idle=60, summary=100, flush=10),
            truncate_after=20_000,
        )
        await self.host.__aenter__()
        for _ in range(4):
            await self.send(5)
            await clock.sleep(5)

    # --- the cast ---------------------------------------------------------------------------------

    def answer(self, body: dict[str, Any], request: Request) -> ScriptedReply:
        kind = self.answers.pop(0) if self.answers else "long"
        self.count += 1
        if kind not in ("overflow", "broken"):
            self.row = min(self.row, 1 if self.at_once else 0)
        return ANSWERS[kind](self.count)  # type: ignore[no-any-return]

    def summarise(self, body: dict[str, Any], request: Request) -> ScriptedReply:
        reply = SUMMARIES[self.summary]
        if reply is None:
            return say(f"The pump leaks, and this is summary {self.count} of what was said about it.")
        if isinstance(reply, BaseException):
            raise reply
        return reply  # type: ignore[no-any-return]

    async def look(self, arguments: Any, context: Any) -> str:
        await self.clock.sleep(1 + arguments["n"] % 3)
        return WORDS * (1 + 30 * (arguments["n"] % 4))

    async def note(self, context: EngineContext, items: Items) -> str:
        self.noted |= {item.entry for item in items}
        if self.flush == "slow":
            await self.clock.sleep(60)
        if self.flush == "broken":
            raise OSError("no memory")
        return f"- noted {len(items)} messages"

    # --- the acts ---------------------------------------------------------------------------------

    async def send(self, size: int) -> None:
        mid = f"m{len(self.sent) + self.news:04}"
        try:
            sent = await self.host.send(KEY, f"{mid}: {WORDS * size}", mid=mid)
        except PerdureError as error:
            self.check("tokens" in str(error), f"refused: {error}")
            self.news += 1
            return
        self.sent.append((mid, sent))

    async def command(self, line: str) -> None:
        self.host.kernel.start("asker", self._command, line)
        await self.clock.sleep(0.5)

    async def _command(self, line: str) -> None:
        try:
            answer = await self.host.command(KEY, line)
            self.check("\n" not in answer, f"{line}: {answer}")
        except PerdureError:
            pass  # closed, or busy: told in words

    async def finish(self) -> None:
        """Everything comes to rest; then the promises are looked at."""
        self.answers[:] = ["short"] * 100
        await self.clock.sleep(20_000)
        for mid, sent in self.sent:
            try:
                reply = await sent.reply(1)
                told = reply.text or reply.errors or reply.stop == "aborted"
                self.check(bool(told), f"{mid}: an end without a word")
            except PerdureError as error:
                self.check("new session" in str(error), f"{mid}: {error}")
        session = self.host.directory.awake.get(KEY)
        self.check(session is None or session.at_ease, "it never rests")
        await self.host.__aexit__(None, None, None)
        self.check(self.host.left_whole, "not left whole")
        errors = {kind for model in self.play.models for kind in model.errors}
        self.check(errors <= {"overflow", "empty", "server", "auth", "invalid"}, f"requests: {errors}")
        self._files()

    def _files(self) -> None:
        path = session_path(self.folder)
        if not path.exists():
            return
        said: list[str] = []
        for file in (*self.host.files.earlier(KEY), path):
            said += [f"{p.letter.mid}:" for p in open_session(file).pending]
            kept = [(e["firstKeptEntryId"], e["summary"]) for e in entries(file) if e["type"] == "compaction"]
            self.check(all(a != b for a, b in pairwise(kept)), "two equal compactions")
            lost = set(_covered(file)) - self.noted
            self.check(self.forgetful or not lost, f"lost before memory was shown it: {lost}")
            said += [text for _, raw in History(file).records() if (text := _user(raw))]
        for mid, _ in self.sent:
            stood = sum(text.startswith(f"{mid}:") for text in said)
            self.check(stood == 1, f"{mid} stands {stood} times")


def _covered(file: Path) -> list[str]:
    """Messages that the latest compaction, and those before it, have taken out of the view."""
    found = [json.loads(raw) for _, raw in History(file).records()]
    latest = next((e for e in reversed(found) if e["type"] == "compaction"), None)
    kept = None if latest is None else latest["firstKeptEntryId"]
    messages = sorted(e["id"] for e in found if e["type"] == "message")
    return [id for id in messages if kept is not None and id < min(kept, latest["id"])]


def _user(raw: bytes) -> str:
    entry = json.loads(raw)
    if entry["type"] == "message" and entry["message"]["role"] == "user":
        return text_of(entry["message"])
    return ""


class Coordinating(RuleBasedStateMachine):
    """Rules are acts; each runs to its end in the host's thread."""

    @initialize(manual=st.sampled_from([False, False, False, True]), seed=st.integers(0, 3))
    def begin(self, manual: bool, seed: int) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.world = World(Path(self.folder.name), manual, seed)
        self.acts: queue.Queue[Callable[[], Awaitable[None]] | None] = queue.Queue()
        self.done: queue.Queue[BaseException | None] = queue.Queue()
        self.real_plan = compaction.planned
        compaction.planned = self.planned
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()
        self._wait()

    def _run(self) -> None:
        try:
            virtual(self._main, "asyncio", self.world.seed)
        except BaseException as error:
            self.done.put(error)

    async def _main(self, clock: VirtualClock) -> None:
        await self.world.open(clock)
        self.done.put(None)
        while (act := self.acts.get()) is not None:
            await act()
            self.done.put(None)
        await self.world.finish()
        self.done.put(None)

    def _wait(self) -> None:
        error = self.done.get(timeout=60)
        if error is not None:
            raise error
        assert self.world.wrong == []

    def _do(self, act: Callable[[], Awaitable[None]]) -> None:
        self.acts.put(act)
        self._wait()

    def planned(self, *args: Any, **options: Any) -> Any:
        """A worker that crashes as often as it was told to."""
        if self.world.crashes:
            self.world.crashes -= 1
            raise MemoryError("the worker crashed")
        return self.real_plan(*args, **options)

    @rule(size=st.sampled_from([0, 1, 5, 20, 60]))
    def send(self, size: int) -> None:
        self._do(lambda: self.world.send(size))

    @rule(kinds=st.lists(st.sampled_from(sorted(ANSWERS)), min_size=1, max_size=5))
    def the_model_will_answer(self, kinds: list[str]) -> None:
        self.world.answers += kinds

    @rule(kind=st.sampled_from(sorted(SUMMARIES)))
    def summaries_are(self, kind: str) -> None:
        self.world.summary = kind

    @rule(kind=st.sampled_from(["well", "well", "slow", "broken"]))
    def memory_is(self, kind: str) -> None:
        self.world.flush = kind
        self.world.forgetful |= kind != "well"

    @rule(times=st.integers(1, 3))
    def the_worker_will_crash(self, times: int) -> None:
        self.world.crashes = times

    @rule(seconds=st.sampled_from([0.0, 0.1, 1.0, 12.0, 45.0, 130.0, 400.0]))
    def time_passes(self, seconds: float) -> None:
        self._do(lambda: self.world.clock.sleep(seconds))

    @rule()
    def compact(self) -> None:
        self._do(lambda: self.world.command(f"/compact {FOCUS}"))

    @rule()
    def abort(self) -> None:
        async def act() -> None:
            session = self.world.host.directory.awake.get(KEY)
            ready = session is not None and session.compacting._staged is not None
            await self.world.host.abort(KEY)
            if ready and session is not None and session.compacting.state.running is None:
                self.world.row -= 1  # stopped though its summary was made: it counts as none

        self._do(act)

    @rule(ref=st.sampled_from([TINY.ref, LARGE.ref]))
    def choose(self, ref: str) -> None:
        self._do(lambda: self.world.command(f"/model {ref}"))

    @rule()
    def sleep(self) -> None:
        async def act() -> None:
            self.world.host.directory.ref(KEY).post(Sleep())
            await self.world.clock.sleep(0.1)

        self._do(act)

    @precondition(lambda self: len(self.world.sent) > 2)
    @rule()
    def new(self) -> None:
        async def act() -> None:
            await self.world.command("/new")
            self.world.row = 0

        self._do(act)

    def teardown(self) -> None:
        if not hasattr(self, "thread"):
            return
        try:
            if self.thread.is_alive():
                self.acts.put(None)
                self._wait()
                self.thread.join(30)
                assert not self.thread.is_alive()
        finally:
            compaction.planned = self.real_plan
            self.folder.cleanup()


EXAMPLES = int(os.environ.get("PERDURE_COORDINATIONS", "8"))
Coordinating.TestCase.settings = settings(max_examples=EXAMPLES, stateful_step_count=20, deadline=None)
TestCoordinating = Coordinating.TestCase

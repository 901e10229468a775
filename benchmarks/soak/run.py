"""Plays the soak: one host, one process, virtual time; samples every virtual hour, checks all the while."""

from __future__ import annotations

import json
import signal
import time
from collections import Counter
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import anyio

from benchmarks.soak import crowd, invariants
from benchmarks.soak.cast import Look, answer
from perdure.actors.budgeting import Budget
from perdure.actors.budgeting import budget as share
from perdure.edges.models.accounting import Accounting
from perdure.edges.models.scripted import ScriptedModel
from perdure.edges.resident import rss_bytes
from perdure.edges.session import keys
from perdure.edges.settings import LogSettings, Settings
from perdure.errors import Busy
from perdure.events import Event, Notice, TurnFinished
from perdure.host import Host
from perdure.kernel.virtual import VirtualClock
from perdure.records import ModelInfo, Record, Usage

WINDOW = 16_000  # tokens: small, so that a week holds several compactions of most sessions
TRUNCATE_AFTER = 64 * 1024
START = 1_767_225_600_000
HOUR = 3600.0
REDELIVERED = 97


class Plan(Record):
    """How much is played, and under which budget; `state`: where the session files go."""

    sessions: int
    days: int
    turns: int  # stop after so many; 0: none
    memory_mb: int
    state: str
    progress: str = ""  # a file that gets a line each virtual hour
    most: int = 1_000  # turns of one session in one day
    probed: int = 400  # of so many turns, one is followed by a sleep, a waking and a comparison


class Soak:
    """One run. `problems` must stay empty; `samples` are what the plots show."""

    def __init__(self, plan: Plan, budget: Budget | None = None) -> None:
        self.plan, self._bounds = plan, budget
        self.clock = VirtualClock(1, START)
        self.problems: list[str] = []
        self.samples: list[dict[str, Any]] = []
        self.counts: Counter[str] = Counter()
        self.usage = Usage()
        self.said = [0] * plan.sessions  # messages acknowledged, by session
        self.live = 0
        self.stopped = ""
        self.began = time.perf_counter()
        self.cpu = time.process_time()
        self.model: ScriptedModel
        self.host: Host

    def problem(self, text: str) -> None:
        """Something that must never happen."""
        self.counts["violations"] += 1
        if len(self.problems) < 100:
            self.problems.append(text)
            self._note({"problem": text})

    # --- the week -----------------------------------------------------------------------------------

    async def play(self) -> None:
        """All of it, or until it is stopped; then every file is read."""
        folder = Path(self.plan.state)
        (folder / "workspace").mkdir(parents=True, exist_ok=True)
        info = ModelInfo("scripted", "soak", window=WINDOW, cache_minimum=256)
        self.model = ScriptedModel(info, answer, self.clock, accounting=Accounting())
        self.model._provider.accounting.text("warm")  # type: ignore[union-attr]  # its vocabulary is no growth
        self.host = Host(
            folder,
            settings=settings(),
            model=self.model,
            tools=(Look(),),
            clock=self.clock,
            most_awake=1_000_000,
            budget=self._bounds or share(self.plan.memory_mb, 0, rss_bytes()),
            truncate_after=TRUNCATE_AFTER,
            workspace=folder / "workspace",
            shown_workspace="/workspace",
            environ={},
        )
        async with self.host as host:
            host.services.events.subscribe("soak", self._told)
            self._sample()
            await host.kernel.gather("soak", self._crowd, self._clockwork)
            self._sample()
        self.counts["refused_requests"] = self.model.refused
        if self.model.refused or self.model.errors:
            self.problem(f"the model refused {self.model.refused} requests, errors: {self.model.errors}")
        self._read_all()

    async def _crowd(self) -> None:
        for at, n, day in crowd.bursts(self.plan.sessions, self.plan.days):
            await self.clock.sleep(max(0.0, at - self.clock.now()))
            if self.stopped:
                break
            self.live += 1
            self.host.kernel.start(f"user {n}", partial(self._burst, n, day), on_end=self._ended)
        while self.live:
            await self.clock.sleep(60.0)
        self.stopped = self.stopped or "the week is over"

    def _ended(self, job: Any, outcome: Any) -> None:
        self.live -= 1
        if type(outcome).__name__ not in ("Returned", "Cancelled"):
            self.problem(f"{job.key}: {outcome!r}")

    async def _clockwork(self) -> None:
        while not self.stopped or self.live:
            await self.clock.sleep(HOUR)
            self._sample()

    async def _burst(self, n: int, day: int) -> None:
        key = crowd.key_of(n)
        for turn in islice(crowd.burst(n, day), self.plan.most):
            if self.stopped:
                return
            await self.clock.sleep(turn.pause)
            sent = [await self._send(key, n, text) for text in turn.texts]
            for each in sent:
                reply = await each.reply(86_400)
                if reply.stop not in ("stop", "length"):
                    self.problem(f"{key}: a turn ended {reply.stop}: {reply.errors[:1]}")
            turns = self.counts["turns"]
            if turns % self.plan.probed == 0:
                self.counts["probes"] += await invariants.slept_and_woke(self.host, key, self.problem)
            if self.plan.turns and turns >= self.plan.turns:
                self.stopped = self.stopped or f"{self.plan.turns:,} turns were asked for"

    async def _send(self, key: str, n: int, text: str) -> Any:
        mid = f"{n}-{self.said[n]}"
        while True:
            try:
                sent = await self.host.send(key, text, mid=mid)
                break
            except Busy as busy:
                self.counts["busy"] += 1
                await self.clock.sleep(busy.retry_after or 5.0)
        self.said[n] += 1
        self.counts["messages"] += 1
        if self.counts["messages"] % REDELIVERED == 0:
            again = await self.host.send(key, text, mid=mid)
            self.counts["redelivered"] += 1
            if not again.receipt.repeated:
                self.problem(f"{key}: a redelivered id was taken as new")
        return sent

    def _told(self, event: Event) -> None:
        match event:
            case TurnFinished(_, reply):
                self.counts["turns"] += 1
                self.counts["model_calls"] += reply.steps
                self.usage = self.usage + reply.usage
            case Notice(_, "compaction", text):
                self.counts["compactions"] += text.startswith("Compacted")
            case Notice(_, "truncation"):
                self.counts["truncations"] += 1

    # --- what is looked at --------------------------------------------------------------------------

    def _sample(self) -> None:
        memory, stats = self.host.services.memory, self.host.kernel.stats()
        awake, usage = len(self.host.directory.awake), self.usage
        row = {
            "day": round(self.clock.now() / crowd.DAY, 4),
            "seconds": round(time.perf_counter() - self.began, 1),
            "cpu": round(time.process_time() - self.cpu, 1),
            "rss": rss_bytes(),
            "owned": memory.total,
            "most_owned": memory.most,
            "awake": awake,
            "asleep": self.host.directory.known - awake,
            "turns": self.counts["turns"],
            "read": usage.cache_read,
            "prompt": usage.prompt,
            "compactions": self.counts["compactions"],
            "fds": invariants.descriptors(),
            "jobs": stats.jobs,
            "violations": self.counts["violations"],
        }
        bounds = memory.budget
        if 0 < bounds.process < row["rss"]:
            self.counts["over_the_line"] += 1
            self.problem(f"day {row['day']}: {row['rss'] >> 20} MB resident, {bounds.process >> 20} allowed")
        if memory.total > bounds.sessions + bounds.reserve:
            self.problem(f"day {row['day']}: {memory.total >> 20} MB owned")
        if row["fds"] > awake + 64:
            self.problem(f"day {row['day']}: {row['fds']} descriptors, {awake} awake")
        self.samples.append(row)
        self._note(row)

    def _note(self, row: dict[str, Any]) -> None:
        if self.plan.progress:
            with open(self.plan.progress, "a", encoding="utf-8") as out:
                out.write(json.dumps(row) + "\n")

    def _read_all(self) -> None:
        sessions = Path(self.plan.state) / "sessions"
        for n in range(self.plan.sessions):
            if self.said[n]:
                path = sessions / keys.relative_path(crowd.key_of(n))
                mids = [f"{n}-{k}" for k in range(self.said[n])]
                self.counts["entries"] += invariants.on_disk(path, mids, self.problem)
                self.counts["files_read"] += 1
                self.counts["bytes"] += path.stat().st_size


def settings() -> Settings:
    """All defaults; the log keeps warnings only, as it would else be larger than the sessions."""
    return Settings(log=LogSettings(level="warning"))


def run(plan: Plan, loop: str = "asyncio", budget: Budget | None = None) -> Soak:
    """Play it to its end, or to a signal, which ends it in good order."""
    soak = Soak(plan, budget)

    def stop(signum: int, _frame: object) -> None:
        soak.stopped = signal.Signals(signum).name

    before = {each: signal.signal(each, stop) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        options = {"use_uvloop": loop == "uvloop"} if loop != "trio" else {}
        anyio.run(soak.play, backend="trio" if loop == "trio" else "asyncio", backend_options=options)
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    return soak

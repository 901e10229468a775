"""Random trees of subagents: what every node is to do, the answers for it, and what its files must say."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from helpers_host import INFO, KEY, START, Play, accepted, session_path
from helpers_subagents import letters, nursery, quiet, relatives, task_of
from perdure.actors.messages import Command, Sleep
from perdure.contracts import Request
from perdure.edges.models.reply import ScriptedReply, call, fail, say
from perdure.edges.session.decode import decode_entry, entry_message
from perdure.edges.session.history import History
from perdure.edges.session.kin import Kin
from perdure.edges.session.links import keyed
from perdure.edges.session.own import facts_of
from perdure.edges.spend import Amount
from perdure.host import Host
from perdure.kernel.virtual import VirtualClock
from perdure.records import Assistant, ModelInfo

WORDS = ["lemon", "tree", "row", "seven", "needs", "water", "and", "a", "stake", "before", "thursday"]
TINY = ModelInfo("scripted", "tiny", window=24_000, max_output=2_000, cache_minimum=16)
KINDS = ("well", "well", "well", "talks", "fails", "hangs", "dear", "silent", "waits")


@dataclass
class Node:
    """One node: how it behaves once its children have begun, and those."""

    name: str
    kind: str
    below: list[Node] = field(default_factory=list)
    asked: int = 0  # children that it has begun, or tried to


def planted(seed: int, nodes: int, wide: int = 5) -> list[Node]:
    """A random tree, its root first."""
    rng = random.Random(seed)
    made = [Node("n0", "well")]
    while len(made) < nodes:
        parent = rng.choice(made)
        if len(parent.below) < wide:
            made.append(Node(f"n{len(made)}", rng.choice(KINDS)))
            parent.below.append(made[-1])
    for node in made:
        if node.below and node.kind == "dear" and rng.random() < 0.8:  # what has no grant cuts no branch off
            node.kind = "well"
    return made


class Forest(Play):
    """Answers every session by its node: its children first, two at a time, then what its kind does."""

    def __init__(self, seed: int, nodes: list[Node]) -> None:
        super().__init__()
        self.rng = random.Random(seed)
        self.nodes = {node.name: node for node in nodes}
        self.of: dict[str, str] = {KEY: "n0"}

    async def __call__(self, body: dict[str, Any], request: Request) -> ScriptedReply:
        if request.session not in self.of:
            if not (task := task_of(body)):
                return await super().__call__(body, request)
            self.of[request.session] = task
        if request.session.partition("#")[2] or "#" in request.session:
            return await super().__call__(body, request)
        return self.answer(self.nodes[self.of[request.session]])

    def answer(self, node: Node) -> ScriptedReply:
        """The next step of a node."""
        wait = self.rng.choice([0.1, 0.5, 2.0])
        if node.asked < len(node.below):
            return self._spawn(node, wait)
        match node.kind:
            case "talks":
                return say(" ".join(self.rng.choices(WORDS, k=1_500)), latency=wait)
            case "fails":
                return fail("auth", latency=wait)
            case "hangs":
                return (
                    say("never", latency=100_000.0) if self.rng.random() < 0.5 else say("at last", latency=90)
                )
            case "dear":
                return ScriptedReply((call("sessions_list"),), latency=wait)
            case "silent":
                return say("NO_REPLY", latency=wait)
            case "waits" if self.rng.random() < 0.6:
                return ScriptedReply((call("sessions_wait", timeoutSeconds=20),), latency=wait)
            case _:
                return say(f"{node.name} is done", latency=wait)

    def _spawn(self, node: Node, wait: float) -> ScriptedReply:
        some = node.below[node.asked : node.asked + 2]
        node.asked += len(some)
        told = [call("sessions_spawn", **self._arguments(each)) for each in some]
        return ScriptedReply(tuple(told), latency=wait)

    def _arguments(self, node: Node) -> dict[str, Any]:
        told: dict[str, Any] = {"task": node.name, "runTimeoutSeconds": self.rng.choice([300, 600, 900])}
        told["mode"] = self.rng.choice(["isolated", "isolated", "projected", "forked"])
        if node.kind == "dear":
            told["maxTokens"] = self.rng.choice([4_000, 20_000])
        return told


# --- a host that has a hard time ------------------------------------------------------------------


class World:
    """Drives a forest through lives of the host. `kills`: how many of them end by a kill."""

    def __init__(self, folder: Path, seed: int, nodes: int, kills: int) -> None:
        self.folder, self.rng, self.kills = folder, random.Random(seed), kills
        self.play = Forest(seed, planted(seed, nodes))
        self.lives = 0

    async def run(self, clock: VirtualClock) -> None:
        for life in range(self.kills + 1):
            self.lives += 1
            host = self._host(clock)
            async with host:
                if not life:
                    await host.send(KEY, "grow", mid="grow")
                if life < self.kills:
                    await self._trouble(host, clock, self.rng.randrange(5, 40))
                    host.kill()
                else:
                    await self._trouble(host, clock, 60)
                    await quiet(host, clock, 20_000)
                    assert host.services.family.open == {}
                    assert not host.services.spending._under_way

    def _host(self, clock: VirtualClock) -> Host:
        limits: dict[str, Any] = {"max_depth": 64, "max_children": 5, "max_total": 100_000}
        return nursery(self.folder, self.play, clock, info=TINY, timeout_seconds=3_600.0, **limits)

    async def _trouble(self, host: Host, clock: VirtualClock, times: int) -> None:
        """Sleeps and compactions of whoever is awake, while time passes."""
        for _ in range(times):
            await clock.sleep(self.rng.choice([0.2, 1.0, 3.0]))
            awake = list(host.directory.awake)
            if not awake:
                continue
            for key in self.rng.sample(awake, min(3, len(awake))):
                if self.rng.random() < 0.5:
                    host.directory.ref(key).post(Sleep())
                else:
                    done = clock.waiter("a compaction")
                    host.directory.ref(key).post(Command("compact", "", done))


# --- what must hold -------------------------------------------------------------------------------


def sessions(folder: Path) -> list[str]:
    """Every session of the tree that has a file."""
    return sorted(key for key, _ in keyed(folder / "state" / "sessions"))


def said(folder: Path, key: str, run: str) -> int:
    """Tokens of all answers in a child's past that are its own: a forked one's begin with its task."""
    total, own = 0, False
    for _, raw in sorted(History(session_path(folder, key)).records()):
        entry = decode_entry(raw)
        if entry.type != "message":
            continue
        facts = facts_of(entry)
        own = own or (facts is not None and facts.origin is not None and facts.origin.mid == run)
        message = entry_message(entry)
        if own and isinstance(message, Assistant) and message.usage is not None:
            total += message.usage.prompt + message.usage.output
    return total


def check(world: World) -> Counter[str]:
    """One result a child, no grant left open, and budgets that add up; how the children ended."""
    folder, counts = world.folder, Counter[str]()
    there = sessions(folder)
    for key in there:
        known = relatives(folder, key)
        assert known.open == (), (key, "open", known.open)
        told = Counter(run for _, run, _ in letters(folder, key))
        assert not [run for run, times in told.items() if times > 1], (key, "told twice")
        for kin in known.children:
            counts[_one(folder, key, kin, told, there)] += 1
        if known.own is not None:
            _own(folder, key, known.own, known.ended_spent)
    assert world.play.refused == 0
    accepted((bodies[-1] for bodies in world.play.bodies.values()), TINY)
    return counts


def _one(folder: Path, key: str, kin: Kin, told: Counter[str], there: list[str]) -> str:
    ending = kin.ending
    assert ending is not None
    rejected = ending.state == "rejected"
    assert told[kin.grant.run] == (0 if rejected else 1), (key, kin, "results")
    if rejected:
        assert kin.grant.child not in there
        return ending.state
    if ending.state in ("lost", "swept") and kin.grant.child not in there:
        return ending.state
    own = relatives(folder, kin.grant.child).own
    assert own is not None
    assert own.ending is not None, (key, kin)
    assert own.told
    assert (own.ending.state, own.ending.spent) == (ending.state, ending.spent), (key, own, ending)
    return ending.state


def _own(folder: Path, key: str, own: Kin, below: Amount) -> None:
    assert own.ending is not None
    spent, grant = own.ending.spent, own.grant
    assert spent.tokens >= below.tokens + said(folder, key, grant.run), (key, spent, below)
    if grant.tokens:
        assert spent.tokens <= grant.tokens + TINY.window + TINY.max_output, (key, spent, grant)


__all__ = ["INFO", "START", "Forest", "Node", "World", "check", "planted"]

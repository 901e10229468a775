"""One session replayed under one engine in a 32k window, with planted facts; or what an engine call costs.

python -m benchmarks.subjects.engines FOLDER replay ENGINE FILE|synthetic
python -m benchmarks.subjects.engines FOLDER call
python -m benchmarks.subjects.engines FOLDER retrieval CHUNKS
"""

from __future__ import annotations

import random
import sys
from functools import partial
from pathlib import Path
from typing import Any

import anyio

from benchmarks import planting
from benchmarks.measure import cpu, fresh, median, report, wall
from perdure.actors.calling import call
from perdure.host import Host
from perdure.plugins.engines.retrieval.engine import Retrieval
from perdure.records import Assistant, Item, Items, Text, User
from perdure.replay.importer import convert
from perdure.replay.player import Player
from perdure.replay.steps import DEFAULT_SESSION
from perdure.testing.lending import FakeRuntime, engine_context

WINDOW = 32_768
CALLS, ROUNDS = 2_000, 7
QUESTIONS, BATCH = 40, 256


def replayed(folder: Path, engine: str, source: str) -> dict[str, float]:
    """Tokens, cost and answers of one recording."""
    scenario = planting.synthetic(120, WINDOW) if source == "synthetic" else convert(source).scenario
    player = Player(planting.planted(scenario), folder, window=WINDOW, engine=engine)
    began = wall()
    done: dict[str, Any] = anyio.run(player.play)
    seen = player.watch.of(DEFAULT_SESSION)
    used, aside = seen.usage, seen.aside
    found = planting.answers(done["failures"])
    return {
        "refused": sum(each["refused_requests"] for each in done["sessions"]),
        "overflows": seen.overflows,
        "requests": seen.requests,
        "compactions": seen.compactions,
        "tokens": used.prompt + aside.prompt,
        "cached": used.cache_read / max(1, used.prompt),
        "output": used.output + aside.output,
        "cost": used.cost_usd + aside.cost_usd,
        "shown": found.shown / len(planting.FACTS),
        "kept": found.kept / len(planting.FACTS),
        "elsewhere": found.elsewhere / len(planting.ELSEWHERE),
        "seconds": wall() - began,
    }


async def calling(folder: Path) -> dict[str, float]:
    """CPU microseconds of a call behind the bulkhead, and of the same call of the object, turn about."""

    async def assemble(context: object, messages: Items) -> Items:
        return messages

    direct, called = [], []
    async with Host(folder / "state", environ={}) as host:
        for _ in range(ROUNDS):
            began = cpu()
            for _ in range(CALLS):
                await assemble(None, ())
            direct.append((cpu() - began) / CALLS)
            began = cpu()
            for _ in range(CALLS):
                await call(host.services, "k", "bench", assemble, None, (), seconds=30.0, returns=tuple)
            called.append((cpu() - began) / CALLS)
    return {"direct_us": min(direct) * 1e6, "called_us": min(called) * 1e6}


async def retrieving(folder: Path, chunks: int) -> dict[str, float]:
    """CPU milliseconds of a question, of a further step, and of indexing an entry, early and late."""
    say = _Words(7)
    runtime = FakeRuntime(folder / "store")
    engine, costs = Retrieval(runtime), []
    for start in range(0, chunks, BATCH):
        items = tuple(say.item(n) for n in range(start, min(chunks, start + BATCH)))
        began = cpu()
        await engine.ingest_batch(engine_context(runtime), items)
        costs.append((cpu() - began) / len(items))
    view = tuple(say.item(n) for n in range(chunks - 2_000, chunks))
    asked, steps = [], []
    for n in range(QUESTIONS):
        text = say.text(10)
        now = (*view, Item(f"q{n:015}", User((Text(text),))))
        context = engine_context(runtime, budget=WINDOW * 3 // 4, prompt=text)
        for took in (asked, steps):
            began = cpu()
            await engine.assemble(context, now)
            took.append(cpu() - began)
    tenth = max(1, len(costs) // 10)
    return {
        "asked_ms": median(asked) * 1e3,
        "step_ms": median(steps) * 1e3,
        "early_ms": median(costs[1 : tenth + 1]) * 1e3,
        "late_ms": median(costs[-tenth:]) * 1e3,
    }


class _Words:
    """Sentences of made-up words; the frequent ones are frequent, as in a language."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        letters = "abcdefghijklmnoprstuvw"
        self._words = [
            "".join(self._random.choices(letters, k=self._random.randint(3, 9))) for _ in range(20_000)
        ]
        self._weights = [1 / (n + 1) for n in range(len(self._words))]

    def text(self, words: int) -> str:
        return " ".join(self._random.choices(self._words, self._weights, k=words))

    def item(self, n: int) -> Item:
        blocks = (Text(self.text(40)),)
        return Item(f"{n:016x}", Assistant(blocks) if n % 2 else User(blocks))


def main() -> None:
    folder, what, *more = sys.argv[1:]
    here = fresh(folder)
    if what == "replay":
        report(**replayed(here, *more))
    elif what == "call":
        report(**anyio.run(calling, here))
    else:
        report(**anyio.run(partial(retrieving, here, int(more[0]))))


if __name__ == "__main__":
    main()

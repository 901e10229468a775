"""The same work behind a short and behind a long history, turn about in one process.

    python -m benchmarks.subjects.flat FOLDER LOOP step|turn FEW MANY

Both histories are compacted and have the same live view. `step` is the pure pipeline from stored entries to
request bytes, `turn` a persisted turn of a hosted session with an instant model.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import anyio

from benchmarks import histories
from benchmarks.measure import cpu, fresh, median, report
from benchmarks.subjects.defences import MODEL, environment, prepare
from benchmarks.subjects.turn import QUIET, Instant, turn, write_history
from perdure.context.pipeline import Scratch
from perdure.context.tokens.estimator import Estimator
from perdure.edges.session import keys
from perdure.edges.session.tail import open_session
from perdure.host import Host
from perdure.kernel.run import backend_options
from perdure.records import Item, Items

PAIRS, WARM = 60, 5


class View:
    """A view that grows by a step at a time."""

    def __init__(self, items: Items) -> None:
        self._items, self._mix, self._count = items, histories.Mix(5), 0
        self._scratch, self._estimator = Scratch(), Estimator(MODEL.ref)

    def step(self) -> float:
        """CPU seconds of preparing the request that follows one more answer and result."""
        answer, result = self._mix.step()
        self._count += 1
        more = (Item(f"a{self._count}", answer), Item(f"r{self._count}", result))
        self._items = (*self._items, *more)
        began = cpu()
        made = prepare(self._items, environment(2_000_000), {}, self._scratch, self._estimator)
        took = cpu() - began
        self._estimator = self._estimator.learn(made.size, made.fixed_tokens, made.forecast)
        return took


def steps(folder: Path, sizes: tuple[int, int]) -> list[list[float]]:
    """Times of both views, turn about."""
    views = []
    for size in sizes:
        path = folder / f"{size}.jsonl"
        write_history(path, size, bounded=True)
        views.append(View(open_session(path).items))
    found = [[view.step() for view in views] for _ in range(PAIRS)]
    return [list(times) for times in zip(*found[WARM:], strict=True)]


async def turns(folder: Path, sizes: tuple[int, int], out: list[list[float]]) -> None:
    """Times of both sessions of one host, turn about."""
    names = [f"agent:main:bench:dm:of{size}" for size in sizes]
    for name, size in zip(names, sizes, strict=True):
        write_history(folder / "sessions" / keys.relative_path(name), size, bounded=True)
    async with Host(folder, settings=QUIET, model=Instant(), workspace=folder, environ={}) as host:
        for n in range(PAIRS):
            for place, name in enumerate(names):
                began = cpu()
                await turn(host, name)
                if n >= WARM:
                    out[place].append(cpu() - began)


if __name__ == "__main__":
    place, loop, what, few, many = sys.argv[1:]
    folder, sizes = fresh(place), (int(few), int(many))
    times: list[list[float]] = [[], []]
    if what == "step":
        times = steps(folder, sizes)
    else:
        backend, options = backend_options(loop)  # type: ignore[arg-type]  # one of the three, from the area
        anyio.run(partial(turns, folder, sizes, times), backend=backend, backend_options=options)
    small, large = map(median, times)
    report(few_ms=small * 1e3, many_ms=large * 1e3, ratio=large / small)

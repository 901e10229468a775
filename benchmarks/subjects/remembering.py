"""Searching many chunks: all nine stages, and the vectors alone, against brute force over the same vectors.

    python -m benchmarks.subjects.remembering FOLDER bit|float CHUNKS

The chunks are of 12,000 made-up words, as unequally frequent as words are, 60 to a chunk; a query is six
words of one of them. The floor is one matrix product over all vectors in memory, and the ten best of it.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np

from benchmarks.measure import cpu, fresh, median, report
from perdure.plugins.search.chunks import Piece
from perdure.plugins.search.searcher import Searcher
from perdure.plugins.search.stages import Stages
from perdure.plugins.search.store import Store

WORDS, LENGTH, QUERIES, BEST = 12_000, 60, 40, 10
SCOPE, NOW_MS = "agent", 1_767_600_000_000
SYLLABLES = [first + second for first in "bdfklmnrst" for second in "aeio"]


def texts(count: int, seed: int = 7) -> list[str]:
    """So many chunks."""
    dice = random.Random(seed)
    words = ["".join(dice.choices(SYLLABLES, k=dice.randint(2, 4))) for _ in range(WORDS)]
    weights = [1 / (rank + 10) for rank in range(WORDS)]
    return [" ".join(dice.choices(words, weights, k=LENGTH)) for _ in range(count)]


def fill(store: Store, said: list[str]) -> float:
    """Put them in; seconds."""
    began = cpu()
    for at in range(0, len(said), 500):
        pieces = [Piece(text, line, line, at=NOW_MS) for line, text in enumerate(said[at : at + 500], 1)]
        store.replace(SCOPE, f"memory/{at:07}.md", pieces)
    return cpu() - began


def main(folder: str, kind: Literal["bit", "float"], count: int) -> None:
    said = texts(count)
    store = Store(fresh(folder) / "store.sqlite", vectors=kind, sync=False)
    filled = fill(store, said)
    dice = random.Random(11)
    sources = [dice.randrange(count) for _ in range(QUERIES)]
    queries = [" ".join(dice.sample(said[at].split(), 6)) for at in sources]
    searcher, stages = Searcher(store), Stages()
    searcher.search(SCOPE, queries[0], stages, NOW_MS)
    whole = [_ms(partial(searcher.search, SCOPE, query, stages, NOW_MS)) for query in queries]
    near = [_ms(partial(store.nearest, SCOPE, query, BEST)) for query in queries]
    ids = [chunk.id for chunk in store.chunks(SCOPE)]
    vectors = store.vectors(ids)
    matrix = np.stack([vectors[id] for id in ids])
    floor = [_ms(partial(_brute, store, matrix, query)) for query in queries]
    exact = [{ids[at] for at in _brute(store, matrix, query)} for query in queries]
    found = [{id for id, _ in store.nearest(SCOPE, query, BEST)} for query in queries]
    answers = [searcher.search(SCOPE, query, stages, NOW_MS).found for query in queries]
    report(
        fill_s=filled,
        whole_ms=median(whole),
        near_ms=median(near),
        floor_ms=median(floor),
        recall=100
        * sum(len(one & other) for one, other in zip(exact, found, strict=True))
        / (BEST * QUERIES),
        answered=100
        * sum(
            said[at] in {each.chunk.text for each in told} for at, told in zip(sources, answers, strict=True)
        )
        / QUERIES,
        megabytes=_size(store.path) / 1e6,
    )


def _brute(store: Store, matrix: np.ndarray, query: str) -> list[int]:
    scores = matrix @ store.embedder.embed([query])[0]
    best = np.argpartition(-scores, BEST)[:BEST]
    return [int(at) for at in best[np.argsort(-scores[best])]]


def _ms(work: Callable[[], object]) -> float:
    began = cpu()
    work()
    return 1_000 * (cpu() - began)


def _size(path: Path) -> int:
    return sum(each.stat().st_size for each in path.parent.iterdir())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))

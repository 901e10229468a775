"""A server freezes again after a long collection, and sees all again before what it can't free grows."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from perdure.kernel.pauses import LONG, MOST, Pauses


class Collections:
    """Collections as long as they are told to be."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pauses = Pauses(lambda: self.now)

    def one(self, seconds: float, generation: int = 2) -> None:
        self.pauses._called("start", {"generation": generation})
        self.now += seconds
        self.pauses._called("stop", {"generation": generation})


@pytest.fixture
def server() -> Iterator[Collections]:
    made = Collections()
    before = gc.get_freeze_count()
    made.pauses.freeze()
    yield made
    gc.unfreeze()
    assert before == 0, "a test before left the heap frozen"


def test_what_came_since_the_start_is_frozen_after_a_long_collection(server: Collections) -> None:
    kept = [[n] for n in range(1_000)]
    before = gc.get_freeze_count()
    server.one(LONG * 2)
    assert gc.get_freeze_count() >= before + len(kept)
    assert server.pauses.line()["frozen_again"] == 1


@pytest.mark.parametrize(("seconds", "generation"), [(LONG / 2, 2), (LONG * 2, 1), (LONG * 2, 0)])
def test_short_collections_and_young_generations_freeze_nothing(
    server: Collections, seconds: float, generation: int
) -> None:
    server.one(seconds, generation)
    assert server.pauses.frozen_again == 0


def test_a_cycle_among_the_frozen_is_freed_once_as_much_again_was_frozen(server: Collections) -> None:
    class Cycle:
        pass

    gone: list[int] = []
    cycle = Cycle()
    cycle.itself = cycle  # type: ignore[attr-defined]
    weakref.finalize(cycle, gone.append, 1)
    server.one(LONG * 2)  # all that came since the start is seen: 0.1 s
    del cycle
    gc.collect()
    assert not gone
    for _ in range(MOST):
        server.one(LONG * 2)
    assert gc.get_freeze_count()
    server.one(LONG * 2)
    assert not gc.get_freeze_count()
    gc.collect()
    assert gone
    server.one(LONG * 2)
    assert gc.get_freeze_count()


def test_a_library_host_never_freezes_the_heap_of_its_program() -> None:
    made = Collections()
    for _ in range(10):
        made.one(LONG * 2)
    assert gc.get_freeze_count() == 0

"""Dividing a long history for a summariser."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from helpers_compaction import histories, weigh
from helpers_messages import items, user
from perdure.context.compaction.batches import boundaries
from perdure.context.compaction.stages import (
    chunk_by_tokens,
    chunk_limit,
    split_by_share,
    stages,
)
from perdure.records import Items


def test_a_small_window_still_gets_chunks_that_hold_messages() -> None:
    assert chunk_limit(16_000, 0.15) > 1_000
    assert chunk_limit(200_000, 0.4) == 80_000 - 4_096


def test_what_fits_one_chunk_is_not_divided() -> None:
    stored = items(*[user("x" * 400)] * 10)
    assert stages(stored, 1_000, weigh) == (stored,)
    assert len(stages(stored, 999, weigh)) == 2


def test_three_messages_are_never_divided() -> None:
    assert len(stages(items(*[user("x" * 400)] * 3), 10, weigh)) == 1


@given(histories(), st.integers(1, 5), st.integers(1, 900))
def test_every_division_keeps_all_messages_in_order_and_no_part_splits_a_batch(
    stored: Items, parts: int, most: int
) -> None:
    for division in (split_by_share(stored, parts, weigh), chunk_by_tokens(stored, most, weigh)):
        assert tuple(item for part in division for item in part) == stored
        assert all(division)
    free, at = boundaries(stored), 0
    for part in split_by_share(stored, parts, weigh):
        at += len(part)
        assert free[at] or at == len(stored)

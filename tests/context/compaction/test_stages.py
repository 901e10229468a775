"""Dividing a long history, against the reference's recorded arithmetic."""

from __future__ import annotations

from math import isfinite
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers_compaction import histories, weigh
from helpers_conformance import cases, ident, number
from helpers_messages import items, user, view
from perdure.context.compaction.batches import boundaries
from perdure.context.compaction.stages import (
    adaptive_ratio,
    chunk_by_tokens,
    chunk_limit,
    oversized,
    split_by_share,
    stages,
)
from perdure.records import Items

FILE = "compaction_math"


def usable(*functions: str) -> list[dict[str, Any]]:
    """Cases with messages that the session format allows and an outcome that is no error."""
    return [case for case in cases(FILE, *functions) if "chunks" in case["expected"] and sound(case)]


def sound(case: dict[str, Any]) -> bool:
    sizes = [number(case["params"][name]) for name in ("parts", "maxTokens") if name in case["params"]]
    return all(map(isfinite, sizes)) and all(
        isinstance(m, dict) and (isinstance(m.get("content"), list) or m.get("role") == "user")
        for m in case["input"]["messages"]
    )


def tags(chunks: tuple[Items, ...]) -> list[list[str]]:
    return [[item.entry for item in chunk] for chunk in chunks]


@pytest.mark.parametrize("case", usable("splitMessagesByTokenShare"), ids=ident)
def test_parts_have_equal_tokens_and_whole_batches_as_recorded(case: dict[str, Any]) -> None:
    parts = int(number(case["params"].get("parts", 2)))
    ours = tags(split_by_share(view(case["input"]["messages"]), parts, weigh))
    assert ours == case["expected"]["chunks"]


@pytest.mark.parametrize("case", usable("chunkMessagesByMaxTokens"), ids=ident)
def test_chunks_fit_with_the_margin_as_recorded(case: dict[str, Any]) -> None:
    most = int(number(case["params"]["maxTokens"]))
    assert tags(chunk_by_tokens(view(case["input"]["messages"]), most, weigh)) == case["expected"]["chunks"]


@pytest.mark.parametrize("case", cases(FILE, "computeAdaptiveChunkRatio"), ids=ident)
def test_the_chunk_share_falls_as_messages_grow_as_recorded(case: dict[str, Any]) -> None:
    window = int(number(case["params"]["contextWindow"]))
    assert adaptive_ratio(view(case["input"]["messages"]), window, weigh) == pytest.approx(case["expected"])


@pytest.mark.parametrize("case", cases(FILE, "isOversizedForSummary"), ids=ident)
def test_what_is_too_large_to_summarise_is_so_as_recorded(case: dict[str, Any]) -> None:
    window = int(number(case["params"]["contextWindow"]))
    (item,) = view([case["input"]["message"]])
    assert oversized(item, window, weigh) == case["expected"]


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

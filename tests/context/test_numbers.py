"""The numbers of the design, resolved for windows large and small."""

from __future__ import annotations

import inspect
from itertools import pairwise

import pytest

from perdure.context import numbers
from perdure.context.numbers import limits
from perdure.errors import ConfigError


def test_the_lines_of_a_window_of_128k_are_those_the_design_prints() -> None:
    line = limits(128_000)
    assert (line.total_chars, line.overflow_chars, line.single_chars) == (384_000, 460_800, 128_000)
    assert (line.total, line.overflow) == (96_000, 115_200)
    assert (line.threshold, line.kept_tail, line.soft_line) == (108_000, 20_000, 104_000)
    assert (line.bootstrap_file_chars, line.bootstrap_total_chars) == (20_000, 76_800)


def test_a_small_window_takes_quarters_instead_of_fixed_reserves() -> None:
    line = limits(32_000)
    assert (line.threshold, line.kept_tail, line.soft_line, line.idle_line) == (24_000, 8_000, 22_000, 16_000)
    assert line.identifiers == 1_600


def test_no_line_is_drawn_below_a_thousand_chars() -> None:
    assert limits(1).total_chars == limits(1).single_chars == 1_024


def test_a_kept_tail_that_reaches_the_threshold_is_refused_with_both_numbers() -> None:
    with pytest.raises(ConfigError, match=r"43,000.*20,000"):
        limits(200_000, threshold=20_000, kept_tail=43_000)


def test_a_window_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="positive"):
        limits(0)


def test_every_number_says_why_it_is_what_it_is() -> None:
    source = inspect.getsource(numbers)
    lines = [line for line in source.splitlines() if line.strip()]
    bare = [
        line
        for line, after in pairwise(lines)
        if line[:1].isupper() and " = " in line and not after.startswith('"""')
    ]
    assert bare == []

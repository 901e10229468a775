"""How near the forecast of the next whole prompt is to its real size, and that the bound holds.

By real usage of recorded sessions, and by a reference tokenizer on texts of our own.
"""

from __future__ import annotations

from functools import cache

import pytest

from helpers_prompts import KINDS, SESSIONS, VERBATIM, Errors, played, recorded, recorded_calls, talk
from perdure.context.tokens.estimator import Estimator

MEDIAN, P99 = 0.02, 0.08


@cache
def spoken(kind: str) -> Errors:
    errors = Errors()
    played(talk(kind, 60), errors)
    return errors


@cache
def on_record(name: str) -> Errors:
    errors, estimator = Errors(), Estimator()
    for n, (size, real) in enumerate(recorded_calls(name)):
        errors.add(n, estimator, size, 0, real)
        estimator = estimator.learn(size, 0, real)
    return errors


@pytest.mark.parametrize("kind", KINDS)
def test_the_next_prompt_is_foretold_in_every_kind_of_text(kind: str) -> None:
    errors = spoken(kind)
    assert errors.at(0.5) <= MEDIAN, errors.line()
    assert errors.at(0.99) <= P99, errors.line()


@pytest.mark.parametrize("kind", KINDS)
def test_no_prompt_is_larger_than_the_number_that_the_lines_are_held_against(kind: str) -> None:
    assert not spoken(kind).broken


@pytest.mark.parametrize("kind", ["mixed", "base64", "cjk"])
def test_it_holds_too_where_the_guard_cuts_results_in_a_small_window(kind: str) -> None:
    errors = Errors()
    played(talk(kind, 38), errors, window=48_000)
    assert errors.at(0.5) <= MEDIAN, errors.line()
    assert errors.at(0.99) <= P99, errors.line()
    assert not errors.broken


@recorded
@pytest.mark.parametrize("name", VERBATIM if SESSIONS else ())
def test_real_models_prompts_are_foretold_and_the_bound_holds(name: str) -> None:
    errors = on_record(name)
    assert len(errors.errors) > 100
    assert errors.at(0.5) <= MEDIAN, errors.line()
    assert errors.at(0.99) <= P99, errors.line()
    assert not errors.broken

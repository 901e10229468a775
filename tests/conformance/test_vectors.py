"""Every kept vector of the reference: ours is what was recorded, or right by a rule of departure."""

from __future__ import annotations

import pytest

from conformance.adapters import ADAPTERS
from conformance.runner import KEPT, files, kept, outcomes, stem

VECTORS = [(stem(path), case["id"]) for path in files(KEPT) for case in kept(stem(path))]


@pytest.mark.parametrize(("name", "ident"), VECTORS, ids=[ident for _, ident in VECTORS])
def test_ours_is_what_was_recorded_or_right_by_a_rule(name: str, ident: str) -> None:
    _, why = outcomes(name)[ident]
    assert not why, why


def test_every_file_of_vectors_has_its_adapter_and_every_adapter_its_file() -> None:
    assert {stem(path) for path in files(KEPT)} == set(ADAPTERS)

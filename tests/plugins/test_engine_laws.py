"""The laws that decide whether a session survives its engine; all of them by `perdure engines check NAME`."""

from __future__ import annotations

import pytest

from perdure.plugins.shipped import ENGINES
from perdure.testing.conformance import examine
from perdure.testing.laws import LAWS
from perdure.testing.laws.law import Law

GROUPS = {
    "similarity": ("pairs",),
    "cross-session": ("isolation",),
    "retrieval": ("redelivery", "isolation", "bootstrap"),
}


@pytest.mark.parametrize(
    ("engine", "law"),
    [
        pytest.param(engine, law, id=f"{engine}-{law.id}")
        for engine, groups in GROUPS.items()
        for law in LAWS
        if law.group in groups
    ],
)
def test_a_law_of_engines_is_kept(engine: str, law: Law) -> None:
    for loop in law.loops:
        assert examine(ENGINES[engine], law, loop, settings={}, deadline=10.0) == ""

"""An engine in another process keeps the laws as if it were here: one of each kind of call."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from perdure.contracts import EngineInfo
from perdure.plugins.process import ProcessEngine
from perdure.testing.conformance import examine
from perdure.testing.laws import LAWS

TESTS = str(Path(__file__).parents[1])
PROGRAM = f"""
import sys; sys.path.insert(0, {TESTS!r})
from perdure.plugins.remote import serve
from testing.reference import Reference
serve(Reference)
"""
CHOSEN = (
    "redelivery.restart", "pairs.compacted", "maintain.faithful", "subagents.rollback",
    "dispose.leaves-nothing", "hostile.texts", "concurrency.same-session", "time.virtual",
    "cancellation.others",
)  # fmt: skip


def far() -> ProcessEngine:
    return ProcessEngine(EngineInfo("far", "Far", owns_compaction=True), [sys.executable, "-c", PROGRAM])


@pytest.mark.parametrize("id", CHOSEN)
def test_a_law_is_kept_from_another_process(id: str) -> None:
    law = next(law for law in LAWS if law.id == id)
    for loop in law.loops:
        assert examine(far, law, loop, settings={}, deadline=10) == ""

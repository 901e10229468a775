"""The laws of context engines: correct engines keep them all, a faulty one breaks those about its fault."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from perdure.contracts import Assembled, EngineInfo
from perdure.plugins.actor import ActorEngine
from perdure.plugins.engines.legacy import LegacyEngine
from perdure.testing import conformance
from perdure.testing.conformance import check, examine
from perdure.testing.laws import GROUPS, LAWS, Law
from testing.mutants import MUTANTS
from testing.reference import Reference

BY_ID = {law.id: law for law in LAWS}
HURRY = 1.0  # seconds of a call


def nobody(message: Any) -> None:
    """An actor that knows no message."""


CORRECT: dict[str, Callable[..., Any]] = {
    "legacy": LegacyEngine,
    "the reference": Reference,
}


def test_there_are_at_least_sixty_laws_each_with_a_sentence_and_a_source() -> None:
    assert len(LAWS) >= 60
    assert len({law.id for law in LAWS}) == len({law.sentence for law in LAWS}) == len(LAWS)
    assert all(law.source and law.sentence[0].isupper() | (law.sentence[0] == "`") for law in LAWS)
    assert len({law.group for law in LAWS}) == len(GROUPS)


@pytest.mark.parametrize("name", CORRECT)
def test_a_correct_engine_keeps_every_law(name: str) -> None:
    assert [finding for finding in check(CORRECT[name]) if not finding.kept] == []


@pytest.mark.parametrize("name", MUTANTS)
def test_a_faulty_engine_breaks_the_laws_about_its_fault(name: str) -> None:
    factory, laws = MUTANTS[name]
    for law in laws:
        assert broken(factory, BY_ID[law]), f"{law} did not catch {name}"


def broken(factory: Callable[..., Any], law: Law) -> str:
    """Why, on any of its loops."""
    loops = (examine(factory, law, loop, settings={}, deadline=HURRY) for loop in law.loops)
    return next(filter(None, loops), "")


def test_every_law_catches_a_faulty_engine() -> None:
    assert len(MUTANTS) >= 30
    caught = {law for _, laws in MUTANTS.values() for law in laws}
    assert sorted(BY_ID.keys() - caught) == []


def test_a_broken_law_says_what_was_expected_what_happened_and_where() -> None:
    factory, _ = MUTANTS["AnswersAList"]
    told = broken(factory, BY_ID["assemble.answers"])
    assert told == "expected `assemble` to answer Assembled; it answered list, in the history `text`"


def test_an_engine_that_holds_its_loop_for_good_costs_its_law_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate = threading.Event()

    class Stuck(LegacyEngine):
        async def assemble(self, context: Any, messages: Any) -> Assembled:
            gate.wait(10)
            return Assembled(messages)

    monkeypatch.setattr(conformance, "PATIENCE", 0)
    monkeypatch.setattr(conformance, "DEADLINE", 0.3)
    told = broken(Stuck, BY_ID["assemble.empty"])
    gate.set()
    assert told == "expected every call to come back; one holds its loop and did not"


def test_an_actor_that_knows_nothing_is_a_correct_engine() -> None:
    def actor() -> ActorEngine:
        return ActorEngine(EngineInfo("actor", "Actor"), nobody)

    laws = [law for law in LAWS if law.group in ("shape", "compaction", "subagents", "concurrency")]
    assert [finding for finding in check(actor, laws) if not finding.kept] == []


def test_plain_methods_are_engines_too() -> None:
    class Plain:
        info = EngineInfo("plain", "Plain")

        def ingest(self, context: Any, item: Any) -> bool:
            return False

        def assemble(self, context: Any, messages: Any) -> Any:
            return Assembled(messages)

        async def compact(self, context: Any, delegate: Any, *, force: bool, instructions: str) -> Any:
            return await delegate()

    laws = [law for law in LAWS if law.group in ("shape", "assemble", "concurrency")]
    assert [finding for finding in check(Plain, laws) if not finding.kept] == []

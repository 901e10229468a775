"""The runner tells what is wrong with ours and with a file of vectors, and rules swallow nothing."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conformance import (
    cache,
    compaction_calls,
    compaction_sizes,
    guard,
    limit_history,
    prune,
    repair_pairing,
    sanitize,
    session_context,
    truncate_tool_result,
    truncation,
    validate_turns,
)
from conformance.__main__ import main
from conformance.adapters import ADAPTERS
from conformance.rules import Departure, Differs, Function, fails, holds, same
from conformance.runner import cases, judge, outcomes, run
from perdure.context.changed import Changed
from perdure.context.results.shorten import Cut
from perdure.records import Items

VECTOR = {"id": "cache-1", "fn": "stripSystemPromptCacheBoundary", "input": {"text": "x"}, "params": {}}


def folder(tmp_path: Path, name: str, *rows: object) -> Path:
    text = "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows)
    if name.endswith(".gz"):
        (tmp_path / name).write_bytes(gzip.compress(text.encode()))
    else:
        (tmp_path / name).write_text(text)
    return tmp_path


# --- the command ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["cache.jsonl", "cache.jsonl.gz"])
def test_a_folder_that_agrees_ends_with_zero(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(folder(tmp_path, name, VECTOR | {"expected": "x"}))]) == 0
    assert f"{name}: 1 cases, 1 as recorded" in capsys.readouterr().out


def test_each_failing_id_has_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = VECTOR | {"expected": "y"}
    assert main([str(folder(tmp_path, "cache.jsonl", wrong, wrong | {"id": "cache-2"}))]) == 1
    out = capsys.readouterr().out.splitlines()
    assert out[:2] == ["cache-1: result: 'x' instead of 'y'", "cache-2: result: 'x' instead of 'y'"]


@pytest.mark.parametrize(
    ("name", "row", "told"),
    [
        ("other.jsonl", VECTOR, "other: there is no adapter for this file"),
        (
            "cache.jsonl",
            VECTOR | {"fn": "f", "expected": 1},
            "cache-1: there is no adapter for the function f",
        ),
        ("cache.jsonl", VECTOR, "cache line 1: no case: expected missing"),
        ("cache.jsonl", "[1]", "cache line 1: no case: id, fn"),
        ("cache.jsonl", "{", "cache line 1: no JSON"),
        ("cache.jsonl", VECTOR | {"input": None, "expected": 1}, "cache-1: TypeError"),
    ],
)
def test_what_can_not_be_judged_has_failed(
    tmp_path: Path, name: str, row: object, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(folder(tmp_path, name, row))]) == 1
    assert capsys.readouterr().out.startswith(told)


def test_a_folder_without_vectors_is_a_mistake_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path / "none")]) == 2
    assert main([str(tmp_path)]) == 2
    assert [line.split(": ")[0] for line in capsys.readouterr().out.splitlines()] == ["conformance"] * 2


def test_a_broken_archive_fails_its_file_only(tmp_path: Path) -> None:
    (tmp_path / "cache.jsonl.gz").write_bytes(b"\x1f\x8bnone")
    report = run(tmp_path / "cache.jsonl.gz")
    assert list(report.failed) == ["cache"]


# --- rules ----------------------------------------------------------------------------------------


def departures() -> list[tuple[str, str, Departure]]:
    return [
        (name, fn, departure)
        for name, known in ADAPTERS.items()
        for fn, function in known.items()
        for departure in function.departures
    ]


def test_every_rule_of_departure_has_a_reason() -> None:
    assert all(departure.name and len(departure.reason) > 10 for _, _, departure in departures())


def rules_met(name: str, fn: str) -> list[str]:
    """The rule of departure of each kept case of a function, empty where it was compared."""
    return [outcomes(name)[case["id"]][0] for case in cases(name, fn)]


def test_no_rule_covers_more_than_its_share() -> None:
    """Of a function that is compared at all: no rule takes most of it, and much of it is compared."""
    for name, known in ADAPTERS.items():
        for fn in known:
            found = rules_met(name, fn)
            if "" not in found or len(found) < 10:
                continue
            most = Counter(rule for rule in found if rule).most_common(1)
            assert all(count <= 0.55 * len(found) for _, count in most), (fn, most)
            assert found.count("") >= 0.2 * len(found), fn


def test_functions_without_a_counterpart_are_few_and_known() -> None:
    alone = {fn for name, known in ADAPTERS.items() for fn in known if all(rules_met(name, fn) or [""])}
    assert alone == {
        "calculateMaxToolResultChars",
        "estimateToolResultReductionPotential",
        "estimateContextTokens",
        "pruneHistoryForContextShare",
        "shouldPreemptivelyCompactBeforePrompt",
        "SessionManager.ops",
    }


def test_a_departure_asserts_its_right_value_and_is_no_skip() -> None:
    def wrong(_case: dict[str, Any]) -> None:
        same(1, 2, "value")

    function = Function(lambda case: None, (Departure("name", "a good reason", lambda case: True, wrong),))
    assert judge({"f": function}, {"fn": "f"}) == ("", "value: 1 instead of 2")


def test_statements_fail_when_they_are_false() -> None:
    with pytest.raises(Differs, match="not so: x"):
        holds(False, "x")
    with pytest.raises(Differs, match="call: 1, but the reference throws"):
        fails(lambda: 1)


# --- broken implementations -----------------------------------------------------------------------


def unchanged(items: Items, *_: Any, **__: Any) -> Changed:
    return Changed(items)


def first_lost(items: Items, *_: Any, **__: Any) -> Changed:
    return Changed(items[1:])


def half(items: Items, *_: Any, **__: Any) -> tuple[Items, ...]:
    return (items[: len(items) // 2], items[len(items) // 2 :])


GUARD = "installToolResultContextGuard.transformContext"
BROKEN: list[tuple[str, str, Any, str, Callable[..., Any]]] = [
    ("cache", "normalizeStructuredPromptSection", cache.boundary, "normalise", lambda text: text.strip()),
    (
        "cache", "promptCacheObservation(sequence)",
        cache.Observation, "complete", lambda self, read: (self, None),
    ),
    ("limit_history", "limitHistoryTurns", limit_history, "limit", unchanged),
    ("limit_history", "getHistoryLimitFromSessionKey", limit_history, "history_limit", lambda *_: 50),
    ("validate_turns", "validateAnthropicTurns", validate_turns, "validate", unchanged),
    ("validate_turns", "validateGeminiTurns", validate_turns, "validate", unchanged),
    ("repair_pairing", "repairToolUseResultPairing", repair_pairing, "repair", unchanged),
    ("repair_pairing", "repairToolUseResultPairing", repair_pairing, "repair", first_lost),
    ("sanitize", "sanitizeToolCallIdsForCloudCodeAssist", sanitize, "normalise", unchanged),
    ("sanitize", "stripToolResultDetails", sanitize, "strip", unchanged),
    ("sanitize", "dropThinkingBlocks", sanitize, "settle", unchanged),
    ("sanitize", "sanitizeGoogleTurnOrdering", sanitize, "validate", unchanged),
    ("sanitize", "sanitizeSessionHistory+validateReplayTurns", sanitize, "sanitize", unchanged),
    ("prune", "pruneContextMessages", prune, "prune", unchanged),
    ("prune", "computeEffectiveSettings", prune, "pruning", lambda settings, model: None),
    ("guard_newestfirst_derived", GUARD, guard, "guard", unchanged),
    ("guard_2026_4_5", GUARD, guard, "guard", unchanged),
    (
        "truncate_tool_result", "truncateToolResultText",
        truncate_tool_result, "plan_cut", lambda body, budget: Cut(max(0, budget)),
    ),
    (
        "truncate_tool_result", "truncateToolResultMessage",
        truncate_tool_result, "render", lambda result, decision: result,
    ),
    (
        "truncation", "truncateSessionAfterCompaction",
        truncation, "plan", lambda nodes, ties: truncation.Plan(reason="no entries to remove"),
    ),
    (
        "session_context", "repairSessionFileIfNeeded",
        session_context.mend.__globals__, "_records", lambda line, starts: iter(()),
    ),
    (
        "session_context", "SessionManager.open+buildSessionContext",
        session_context, "open_session", lambda path: session_context.load(path).opened("a"),
    ),
    ("compaction_math", "estimateTokens", compaction_sizes.Estimator, "item", lambda self, item: 1),
    (
        "compaction_math", "splitMessagesByTokenShare",
        compaction_sizes, "split_by_share", lambda items, parts, weigh: half(items),
    ),
    (
        "compaction_math", "chunkMessagesByMaxTokens",
        compaction_sizes, "chunk_by_tokens", lambda items, most, weigh: half(items),
    ),
    ("compaction_math", "findCutPoint", compaction_sizes, "cut", lambda view, keep, weigh, free: 0),
    ("compaction_math", "prepareCompaction", compaction_sizes.plan.__globals__, "cut", lambda *_: 0),
    ("compaction_math", "shouldPreemptivelyCompactBeforePrompt", compaction_sizes, "guard", unchanged),
    (
        "compaction_math", "serializeConversation(convertToLlm)",
        compaction_calls, "serialize", lambda items: "",
    ),
    (
        "compaction_math", "summarizeInStages",
        compaction_calls.Fold, "_staged", compaction_calls.Fold._partial,
    ),
]  # fmt: skip


@pytest.mark.parametrize(("name", "fn", "where", "what", "broken"), BROKEN)
def test_a_broken_implementation_fails_a_case(
    name: str,
    fn: str,
    where: Any,
    what: str,
    broken: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if isinstance(where, dict):
        monkeypatch.setitem(where, what, broken)
    else:
        monkeypatch.setattr(where, what, broken)
    assert any(judge(ADAPTERS[name], case)[1] for case in cases(name, fn))

"""Vectors made with the reference: what it reads from a file, we read; where it is wrong, we are right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from helpers_sessions import line
from perdure.context.dag import Graph
from perdure.edges.session.decode import decode_message
from perdure.edges.session.load import Loaded, load
from perdure.edges.session.tail import open_session
from perdure.errors import UnreadableFile
from perdure.records import Assistant, BranchSummary, Custom, Message, Summary, ToolResult, User

VECTORS = Path(__file__).parents[2] / "data/conformance/session_context.jsonl"
CASES = [json.loads(row) for row in VECTORS.read_bytes().splitlines()]
OPEN = [case for case in CASES if case["fn"] == "SessionManager.open+buildSessionContext"]
AFTER_OPS = [c for c in CASES if c["fn"] == "SessionManager.ops" and c["expected"]["file_after"]]
HARDENED = [c for c in CASES if c["fn"] == "hardenManualCompactionBoundary"]
ROLES: dict[type, str] = {
    User: "user",
    Assistant: "assistant",
    ToolResult: "toolResult",
    Summary: "compactionSummary",
    BranchSummary: "branchSummary",
    Custom: "custom",
}


def name(case: dict[str, Any]) -> str:
    return f"{case['id'][-4:]} {case['note'].split(' ;')[0]}"


# --- where the reference is wrong -----------------------------------------------------------------
# Each rule is a predicate on the input, so that it holds for cases nobody has seen.


def first_record_is_a_header(text: str) -> bool:
    for row in text.lstrip("\ufeff").split("\n"):
        try:
            value = json.loads(row)
        except ValueError:
            continue
        return isinstance(value, dict) and value.get("type") == "session" and isinstance(value.get("id"), str)
    return False


def missing_parents(text: str, branch: list[str]) -> set[str]:
    """Parents that stand nowhere, of entries the reference ends its branch at."""
    by_id = {entry.get("id"): entry for entry in records(text)}
    parents = [by_id[id].get("parentId") for id in branch[:1] if id in by_id]
    return {parent for parent in parents if parent is not None and parent not in by_id}


def records(text: str) -> list[dict[str, Any]]:
    found = []
    for row in text.split("\n"):
        try:
            value = json.loads(row)
        except ValueError:
            continue
        if isinstance(value, dict) and value.get("type") != "session":
            found.append(value)
    return found


def opened_leaf(case: dict[str, Any]) -> str | None:
    """The leaf a case moves to, as the operations of the reference name it."""
    return (case["params"].get("leafOp") or {}).get("branch")


def expected_messages(case: dict[str, Any]) -> list[Message]:
    made = [decode_message(line(m)) for m in case["expected"]["context"]["messages"]]
    return [message for message in made if message is not None]


def assert_same_view(case: dict[str, Any], loaded: Loaded, to_ours: dict[str, str]) -> None:
    want = case["expected"]
    leaf = None if (branched := opened_leaf(case)) is None else to_ours.get(branched, branched)
    view, opened = loaded.view(leaf), loaded.opened(leaf)
    assert view.leaf == to_ours.get(want["leafId"], want["leafId"])
    assert [to_ours.get(id, id) for id in want["branch"]] == [loaded.nodes[at].id for at in view.path]
    assert [item.message for item in opened.items] == expected_messages(case)
    assert opened.settings.thinking == want["context"]["thinkingLevel"]
    model = want["context"]["model"] or {}
    assert (opened.settings.provider, opened.settings.model) == (model.get("provider"), model.get("modelId"))
    assert opened.name == want["sessionName"]
    assert loaded.labels() == {to_ours.get(k, k): v for k, v in want["labels"].items()}
    if not branched:
        assert open_session(loaded.path) == opened


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "vector.jsonl"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    return path


@pytest.mark.parametrize("case", OPEN, ids=name)
def test_a_file_reads_as_in_the_reference_or_better(case: dict[str, Any], tmp_path: Path) -> None:
    text, want = case["input"]["file_text"], case["expected"]
    if text is None:  # departure: the reference makes a session up in memory; reading must not
        with pytest.raises(UnreadableFile, match="there is no such file"):
            load(tmp_path / "vector.jsonl")
        return
    path = write(tmp_path, text)
    before = path.read_bytes()
    if not first_record_is_a_header(text):
        _assert_overwritten_files_are_kept(path, text)
    elif "error" in want and opened_leaf(case):
        with pytest.raises(KeyError):
            load(path).view(opened_leaf(case))
    elif "error" in want or "leafId" not in want:
        _assert_a_bad_line_costs_itself(path, text)
    elif missing := missing_parents(text, want["branch"]):
        _assert_bridged(path, missing, case)
    elif (case["params"].get("leafOp") or {}).get("reset") or case["note"].startswith("leaf reset"):
        assert load(path).graph.view(None).path == ()
    else:
        loaded = load(path)
        assert_same_view(case, loaded, _ids(want, loaded))
    assert path.read_bytes() == before


def _ids(want: dict[str, Any], loaded: Loaded) -> dict[str, str]:
    """Ids the reference made up for version 1, as ours (from byte offsets)."""
    if loaded.header.version >= 2:
        return {}
    return dict(zip((entry["id"] for entry in want["entries"]), (n.id for n in loaded.nodes), strict=True))


def _assert_overwritten_files_are_kept(path: Path, text: str) -> None:
    """Departure: the reference overwrites these files. We read what is there, or refuse; both in one line."""
    if not records(text):
        with pytest.raises(UnreadableFile) as refused:
            load(path)
        assert str(path) in str(refused.value)
        assert "\n" not in str(refused.value)
        return
    loaded = load(path)
    assert loaded.problems[0].kind == "bad_header"
    assert [node.id for node in loaded.nodes] == [entry["id"] for entry in records(text)]


def _assert_a_bad_line_costs_itself(path: Path, text: str) -> None:
    """Departure: the reference throws, or loses its leaf, over one line that is no entry or no message."""
    good = [e for e in records(text) if e.get("type") != "message" or isinstance(e.get("message"), dict)]
    opened = load(path).opened()
    assert [item.entry for item in opened.items] == [entry["id"] for entry in good]
    assert open_session(path) == opened


def _assert_bridged(path: Path, missing: set[str], case: dict[str, Any]) -> None:
    """Departure: the reference drops all history before a hole. We bridge it, visibly."""
    loaded = load(path)
    leaf = opened_leaf(case)
    opened = loaded.opened(leaf)
    assert leaf is not None or open_session(path) == opened
    if opened.compaction is not None and not opened.gaps:  # the hole lies in what the summary covers
        assert [item.message for item in opened.items] == expected_messages(case)
        return
    assert {gap.missing for gap in opened.gaps} == missing
    for gap in opened.gaps:
        at = loaded.graph.by_id[gap.child]
        assert gap.bridged_to == (loaded.nodes[at - 1].id if at else None)
    assert [item.message.kind for item in opened.items if isinstance(item.message, Custom)].count(
        "perdure.gap"
    ) == 1
    assert opened.entries[0].parent is None


@pytest.mark.parametrize("case", AFTER_OPS, ids=name)
def test_what_the_reference_wrote_reads_with_its_leaf_and_roles(case: dict[str, Any], tmp_path: Path) -> None:
    opened = open_session(write(tmp_path, case["expected"]["file_after"]))
    assert [ROLES[type(item.message)] for item in opened.items] == case["expected"]["context_roles"]
    assert opened.leaf == case["expected"]["leafId"]


@pytest.mark.parametrize("case", HARDENED, ids=name)
def test_a_hardened_boundary_keeps_nothing_before_it(case: dict[str, Any], tmp_path: Path) -> None:
    after = case["expected"]["file_after"]
    opened = open_session(write(tmp_path, case["input"]["file_text"] if after == "(unchanged)" else after))
    assert opened.leaf == case["expected"].get("leafId")


def test_an_unknown_leaf_is_an_error_not_another_leaf() -> None:
    """Departure: the reference silently takes the last entry for an id it doesn't know."""
    with pytest.raises(KeyError):
        Graph([]).view("zz")

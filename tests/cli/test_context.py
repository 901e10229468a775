"""`perdure context`: the whole request, the account of every entry, and the typed overflow."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import perdure.looking.context as showing
import perdure.looking.covered as covering
from helpers_cli import failed, fingerprint, run
from helpers_sessions import STAMP, assistant, calls, compaction, entry, result, user, write
from perdure.actors.resolver import HostResolver
from perdure.context.tokens.estimator import Estimator, Measure
from perdure.edges import state as state_folder
from perdure.edges.config import load
from perdure.edges.models import catalog
from perdure.edges.models.strict import validate
from perdure.edges.session.facts import Checkpoint
from perdure.edges.session.lines import checkpoint_line
from perdure.edges.session.tail import open_session
from perdure.edges.tools.builtin import default_tools
from perdure.looking.memory import remembering
from perdure.looking.resolving import resolve
from perdure.looking.target import Target

KEY = "agent:main:cli:dm:local"


def compacted(path: Path) -> Path:
    """Two compactions; the second covers the first, and keeps from `e5` on."""
    entries = [
        *(
            user("e0", None, "the first words"),
            assistant("e1", "e0"),
            user("e2", "e1"),
            assistant("e3", "e2"),
        ),
        compaction("c1", "e3", "e2"),
        *(user("e4", "c1"), assistant("e5", "e4", "kept words"), compaction("c2", "e5", "e5")),
        *(user("e6", "c2"), assistant("e7", "e6")),
    ]
    return write(path, entries)


def report(*words: Any) -> Any:
    ran = run("context", *words, "--json")
    assert ran.code == 0, ran.err
    return ran.json


def fates(told: Any) -> dict[str, str]:
    return {row["entry"]: row["decision"] for row in told["ledger"] if row["entry"]}


def test_the_contract_has_all_its_keys(tmp_path: Path) -> None:
    told = report(compacted(tmp_path / "s.jsonl"), "--window", "32000")
    assert set(told) >= {"window", "budget", "request", "ledger", "problems"}
    assert told["window"] == 32000
    assert set(told["budget"]) == {"identity", "knowledge", "history", "tools", "total", "limit"}
    assert set(told["request"]) >= {"model", "system", "tools", "messages", "max_tokens"}
    assert all(set(row) >= {"entry", "decision", "rule", "tokens", "zone"} for row in told["ledger"])
    sources = told["budget"]
    assert sources["total"] == sum(sources[name] for name in ("identity", "knowledge", "history", "tools"))


def test_the_stand_in_for_the_next_message_is_marked(tmp_path: Path) -> None:
    told = report(compacted(tmp_path / "s.jsonl"))
    made = [row for row in told["ledger"] if row["decision"] == "synthesised"]
    assert len(made) == 1
    assert made[0]["tokens"] > 0
    assert told["request"]["messages"][-1]["role"] == "user"


def test_a_message_that_is_given_is_the_last_of_the_request(tmp_path: Path) -> None:
    told = report(compacted(tmp_path / "s.jsonl"), "-m", "and what about the lids?")
    assert "and what about the lids?" in json.dumps(told["request"]["messages"][-1])
    assert not [row for row in told["ledger"] if row["decision"] == "synthesised"]


def test_entries_under_a_summary_are_listed_as_covered(tmp_path: Path) -> None:
    told = report(compacted(tmp_path / "s.jsonl"))
    found = fates(told)
    assert {name for name, fate in found.items() if fate == "covered"} == {"e0", "e1", "e2", "e3", "c1", "e4"}
    assert {name for name, fate in found.items() if fate == "in"} == {"c2", "e5", "e6", "e7"}
    sent = json.dumps(told["request"])
    assert "kept words" in sent
    assert "the first words" not in sent


def test_why_names_the_compaction_that_covers_an_entry(tmp_path: Path) -> None:
    file = compacted(tmp_path / "s.jsonl")
    first, later = (report(file, "--why", name)["ledger"] for name in ("e0", "e4"))
    assert [row["decision"] for row in first + later] == ["covered", "covered"]
    assert "summarised by c1" in first[0]["rule"]
    assert "c2" in first[0]["rule"]
    assert later[0]["rule"].endswith("summarised by c2")
    assert "summarised by c1" in run("context", file, "--why", "e0").out


def test_why_tells_an_entry_of_another_branch_from_none(tmp_path: Path) -> None:
    file = write(tmp_path / "s.jsonl", [user("a", None), user("side", "a"), assistant("b", "a")])
    assert "another branch" in failed(run("context", file, "--why", "side"))
    assert "no entry" in failed(run("context", file, "--why", "nowhere"))
    assert "no entry" in failed(run("context", file, "--why", ""))


def test_a_later_compaction_may_bring_back_what_an_earlier_one_covered(tmp_path: Path) -> None:
    entries = [user("e0", None), assistant("e1", "e0"), user("e2", "e1"), compaction("c1", "e2", "e2")]
    file = write(tmp_path / "s.jsonl", [*entries, assistant("e3", "c1"), compaction("c2", "e3", "e1")])
    found = fates(report(file))
    assert (found["e0"], found["e1"], found["e2"]) == ("covered", "in", "in")


def test_every_entry_of_the_branch_is_accounted_for(tmp_path: Path) -> None:
    entries = [
        user("a", None),
        entry("model_change", "m", "a", provider="p", modelId="x"),
        *(calls("b", "m", "k1", "k2"), result("c", "b", "k1"), result("d", "c", "nobody")),
        assistant("e", "d", stopReason="error", errorMessage="overloaded"),
        entry("custom", "f", "e", customType="x.y", data={}),
        assistant("g", "f", ""),
    ]
    told = report(write(tmp_path / "s.jsonl", entries))
    assert set(fates(told)) == {"a", "m", "b", "c", "d", "e", "f", "g"}
    assert all(row["rule"] for row in told["ledger"])


def test_a_long_list_of_covered_entries_is_cut_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = [user("e0", None), *(assistant(f"e{n}", f"e{n - 1}") for n in range(1, 40))]
    file = write(tmp_path / "s.jsonl", [*entries, compaction("c", "e39", "e39")])
    monkeypatch.setattr(covering, "MOST_LISTED", 10)
    rows = [row for row in report(file)["ledger"] if row["decision"] == "covered"]
    assert [row["entry"] for row in rows] == ["", *(f"e{n}" for n in range(29, 39))]
    assert "29 older entries" in rows[0]["rule"]


@pytest.mark.parametrize("most", [5, 10_000])
def test_a_gigantic_file_is_read_from_its_end_with_the_same_outcome(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(covering, "MOST_LISTED", most)
    file = compacted(tmp_path / "s.jsonl")
    whole = [row for row in report(file)["ledger"] if row["entry"]]
    monkeypatch.setattr(covering, "SMALL_FILE", 0)
    assert [row for row in report(file)["ledger"] if row["entry"]] == whole


def test_a_view_far_beyond_the_window_is_read_in_part_and_marked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = [user("e0", None), *(assistant(f"e{n}", f"e{n - 1}", "some words " * 80) for n in range(1, 60))]
    file = write(tmp_path / "s.jsonl", entries)
    monkeypatch.setattr(showing, "LEAST_READ", 10_000)
    monkeypatch.setattr(showing, "PER_TOKEN", 1)
    told = report(file, "--window", "9000")
    assert [problem["kind"] for problem in told["problems"]] == ["unread"]
    assert 5 < len(fates(told)) < 20


def test_what_cannot_fit_is_a_typed_overflow_with_its_floor(tmp_path: Path) -> None:
    file = write(tmp_path / "s.jsonl", [user("a", None, "many words " * 20_000), assistant("b", "a")])
    ran = run("context", file, "--window", "16000", "--json")
    assert ran.code == 1
    told = ran.json
    assert told["request"] is None
    problem = next(row for row in told["problems"] if row["kind"] == "overflow")
    assert problem["tokens"] > problem["limit"]
    assert problem["floor"]
    assert sum(problem["floor"].values()) < problem["tokens"]
    assert set(fates(told)) == {"a", "b"}
    human = run("context", file, "--window", "16000")
    assert human.code == 1
    assert "overflow" in human.out


def test_a_next_message_that_alone_is_too_large_is_its_own_floor(tmp_path: Path) -> None:
    file = write(tmp_path / "s.jsonl", [user("a", None), assistant("b", "a")])
    ran = run("context", file, "--window", "8000", "--json", "-m", "word " * 20_000)
    problem = next(row for row in ran.json["problems"] if row["kind"] == "overflow")
    assert problem["floor"]["newest turn"] > problem["limit"]


def test_an_empty_next_message_is_refused_as_a_host_would(tmp_path: Path) -> None:
    assert "empty" in failed(run("context", compacted(tmp_path / "s.jsonl"), "-m", " "))


@pytest.mark.parametrize("window", ["0", "-5"])
def test_a_window_that_is_none_is_refused(tmp_path: Path, window: str) -> None:
    assert "window" in failed(run("context", compacted(tmp_path / "s.jsonl"), f"--window={window}"))


def test_a_model_nobody_knows_is_refused_with_those_that_are(tmp_path: Path) -> None:
    assert "scripted" in failed(run("context", compacted(tmp_path / "s.jsonl"), "--model", "acme/one"))


def test_the_recorded_model_is_only_noted(tmp_path: Path) -> None:
    file = write(tmp_path / "s.jsonl", [user("a", None), assistant("b", "a", provider="acme", model="one")])
    told = report(file)
    assert told["recorded_model"] == "acme/one"
    assert told["request"]["model"] == catalog.SCRIPTED.id


def test_no_file_of_a_recorded_folder_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    for name in ("AGENTS.md", "SOUL.md", "MEMORY.md"):
        (folder / name).write_text("the words of a stranger")
    header = {"type": "session", "version": 3, "id": "s", "timestamp": STAMP, "cwd": str(folder)}
    told = report(write(tmp_path / "s.jsonl", [user("a", None), assistant("b", "a")], header=header))
    assert "the words of a stranger" not in json.dumps(told["request"])


# --- keys -----------------------------------------------------------------------------------------


def hosted(state: Path) -> Path:
    """A session of a state folder whose configuration names a workspace."""
    workspace = state.parent / "desk"
    workspace.mkdir(parents=True)
    (workspace / "AGENTS.md").write_text("house rule: knock first")
    file = state / "sessions" / "main" / "agent+main+cli+dm+local.jsonl"
    file.parent.mkdir(parents=True)
    agent, channel = f'[agents.main]\nworkspace = "{workspace}"\n', "[channels.cli]\ndm_history_limit = 1\n"
    (state / "perdure.toml").write_text(f'{agent}{channel}[tools]\ndeny = ["write"]\n')
    return compacted(file)


def test_a_key_has_the_workspace_limits_and_tools_of_its_configuration(tmp_path: Path) -> None:
    hosted(tmp_path / "state")
    told = report(KEY, "--state", tmp_path / "state")
    assert "house rule: knock first" in json.dumps(told["request"]["system"])
    assert "write" not in [tool["name"] for tool in told["request"]["tools"]]
    assert "kept words" not in json.dumps(told["request"]["messages"])


def test_the_same_file_by_its_path_has_none_of_that(tmp_path: Path) -> None:
    told = report(hosted(tmp_path / "state"), "--state", tmp_path / "state")
    assert "house rule" not in json.dumps(told["request"])
    assert "write" in [tool["name"] for tool in told["request"]["tools"]]
    assert "kept words" in json.dumps(told["request"]["messages"])


def test_a_key_is_resolved_as_a_host_would(tmp_path: Path) -> None:
    file = hosted(tmp_path / "state")
    folder = state_folder.state_folder(tmp_path / "state")
    settings = load(state=folder.root)
    found, _ = resolve(Target(file, KEY), open_session(file), settings, folder)
    info = catalog.resolve(catalog.default_ref({}))
    memory = remembering(settings, folder)
    tools = {tool.spec.name: tool for tool in (*default_tools(settings), *memory.tools)}
    words = memory.guidance
    host = HostResolver(settings, folder, default=info, factories={}, tools=tools, guidance=words)
    assert found == host.environment(KEY, host.model_for(KEY, None), "off")


def test_looking_makes_no_folder_and_changes_no_byte(tmp_path: Path) -> None:
    hosted(tmp_path / "state")
    (tmp_path / "state" / "perdure.toml").unlink()
    before = fingerprint(tmp_path)
    for words in (
        ("context", KEY),
        ("context", KEY, "--json"),
        ("sessions", "show", KEY),
        ("sessions", "list"),
    ):
        assert run(*words, "--state", tmp_path / "state").code == 0
    for words in (("status",), ("status", "--deep"), ("config", "check")):
        assert run(*words, "--state", tmp_path / "state").code == 0
    assert fingerprint(tmp_path) == before


def test_the_state_folder_of_the_environment_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hosted(tmp_path / "state")
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "state"))
    assert "house rule" in json.dumps(report(KEY)["request"]["system"])


def test_a_wrong_setting_is_named(tmp_path: Path) -> None:
    hosted(tmp_path / "state")
    (tmp_path / "state" / "perdure.toml").write_text("[models]\nwindow = 'wide'\n")
    assert "models.window" in failed(run("context", KEY, "--state", tmp_path / "state"))


# --- requests -------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["scripted", "claude-sonnet-4-5", "claude-sonnet-5-5"])
def test_a_request_is_one_the_provider_takes(tmp_path: Path, model: str) -> None:
    rows = [user("a", None), calls("b", "a", "k1", "k2"), result("c", "b", "k2"), assistant("d", "c", "")]
    told = report(write(tmp_path / "s.jsonl", rows), "--model", model)
    validate(told["request"], model=catalog.resolve(model))


def test_the_total_is_the_number_that_is_used_when_it_is_calibrated_too(tmp_path: Path) -> None:
    rows = [user("e0", None, "x" * 999), calls("e1", "e0", "k"), result("e2", "e1", "k")]
    rows += [assistant("e3", "e2", "0123 {}" * 99)]
    told = report(write(tmp_path / "s.jsonl", rows))
    dense = Estimator("scripted/scripted").learn(Measure(1_000, 1_000, 10_000), 0, 2_000)
    learned = Checkpoint(leaf="e3", learned=(dense,), session="s1")
    note = checkpoint_line("k", "e3", 1, learned).rstrip(b"\n")
    more = report(write(tmp_path / "c.jsonl", [*rows, note]))
    assert told["tokens"] == told["budget"]["total"]
    assert more["tokens"] == more["budget"]["total"] > told["tokens"]


def test_a_person_is_shown_the_budget_by_source_its_lines_and_what_gives_way_first(tmp_path: Path) -> None:
    file = write(tmp_path / "s.jsonl", [user("e0", None), calls("e1", "e0", "k"), result("e2", "e1", "k")])
    told = report(file)
    out = run("context", file).out
    for name in ("identity", "knowledge", "history", "tools"):
        assert f"{name} {told['budget'][name]:,} (" in out
    assert f"before the guard {told['view_tokens']:,}: compaction at {told['threshold']:,}" in out
    assert f"no request over {told['budget']['limit']:,}" in out
    assert "first to go: tools, history, knowledge" in out


def test_a_made_up_result_has_its_size(tmp_path: Path) -> None:
    file = write(tmp_path / "s.jsonl", [user("a", None), calls("b", "a", "k1", "k2"), user("c", "b")])
    made = [row for row in report(file)["ledger"] if row["entry"] == "b" and row["decision"] == "synthesised"]
    assert [row["tokens"] > 20 for row in made] == [True, True]


def test_entries_that_no_model_is_shown_are_counted_for_a_person(tmp_path: Path) -> None:
    rows = [user("a", None), entry("custom", "b", "a", customType="x.y", data={}), assistant("c", "b")]
    file = write(tmp_path / "s.jsonl", rows)
    assert "left_out: 1 of them" in run("context", file).out
    assert "left_out:" not in run("context", file, "--why", "b").out


@pytest.mark.parametrize("window", ["1", "100", "280", "1000"])
def test_a_window_too_small_for_anything_is_an_overflow_in_one_line(tmp_path: Path, window: str) -> None:
    ran = run("context", compacted(tmp_path / "s.jsonl"), "--window", window, "--json")
    problem = next(found for found in ran.json["problems"] if found["kind"] == "overflow")
    assert (ran.code, ran.json["request"]) == (1, None)
    assert problem["limit"] <= int(window) < problem["tokens"]
    assert ran.json["tokens"] == ran.json["budget"]["total"] == problem["tokens"]
    assert ran.json["budget"]["limit"] == problem["limit"]
    shown = run("context", tmp_path / "s.jsonl", "--window", window).out
    assert shown.count("newest turn") == 1


def recorded() -> list[Path]:
    """Session files of pi and OpenClaw in the folder that PERDURE_SESSIONS names."""
    root = os.environ.get("PERDURE_SESSIONS")
    if not root:
        return []
    return sorted(path for path in Path(root).glob("*.jsonl") if path.name.startswith(("pi-", "oc-")))


@pytest.mark.skipif(not recorded(), reason="PERDURE_SESSIONS names no folder of recorded sessions")
@pytest.mark.parametrize("window", [16_000, 32_000, 200_000, 1_000_000])
@pytest.mark.parametrize("file", recorded(), ids=lambda path: path.stem)
def test_a_recorded_session_gives_a_sound_request_or_the_typed_overflow(file: Path, window: int) -> None:
    before = fingerprint(file.parent)
    ran = run("context", file, "--window", str(window), "--json")
    told = ran.json
    kinds = [problem["kind"] for problem in told["problems"]]
    if told["request"] is None:
        assert (ran.code, kinds.count("overflow")) == (1, 1)
    else:
        assert (ran.code, kinds.count("overflow")) == (0, 0)
        validate(told["request"])
    assert fingerprint(file.parent) == before


@pytest.mark.parametrize(
    ("ref", "keys"),
    [
        ("openai/gpt-4.1", {"model", "input", "instructions", "tools", "max_output_tokens", "store"}),
        ("mistral/mistral-large-latest", {"model", "messages", "tools", "max_tokens", "stream"}),
        ("ollama/qwen3:8b", {"model", "messages", "tools", "max_tokens", "stream", "stream_options"}),
    ],
)
def test_the_request_is_the_very_body_of_the_models_own_api(ref: str, keys: set[str], tmp_path: Path) -> None:
    told = report(compacted(tmp_path / "s.jsonl"), "--model", ref)
    info = catalog.resolve(ref)
    assert set(told["request"]) >= keys
    assert (told["model"], told["window"]) == (ref, info.window)
    validate(told["request"], model=info)


def test_a_configured_server_is_a_model_like_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = """
        [models.providers.box]
        base_url = "http://10.0.0.5:8000/v1"
        window = 64000
        [models.providers.box.models."qwen/qwen3"]
        window = 128000
        price_input = 1
    """
    (tmp_path / "perdure.toml").write_text(text)
    path = compacted(tmp_path / "s.jsonl")
    for ref, window in (("box/any", 64_000), ("box/qwen/qwen3", 128_000)):
        told = report(path, "--model", ref, "--state", tmp_path)
        assert (told["window"], told["request"]["model"]) == (window, ref.removeprefix("box/"))
    monkeypatch.setenv("PERDURE_MODELS__PROVIDERS__BOX__WINDOW", "70000")
    assert report(path, "--model", "box/any", "--state", tmp_path)["window"] == 70_000


FAMILIES = [
    "google/gemini-3-pro-preview",
    "amazon-bedrock/anthropic.claude-sonnet-4-5-v1:0",
    "openai/gpt-5.2",
    "mistral/mistral-large-latest",
]


@pytest.mark.skipif(not recorded(), reason="PERDURE_SESSIONS names no folder of recorded sessions")
@pytest.mark.parametrize("model", FAMILIES)
@pytest.mark.parametrize("file", recorded(), ids=lambda path: path.stem)
def test_a_recorded_session_gives_a_request_that_each_family_takes(file: Path, model: str) -> None:
    told = run("context", file, "--model", model, "--window", "1000000", "--json").json
    validate(told["request"], model=catalog.resolve(model))


@pytest.mark.parametrize("model", FAMILIES)
def test_a_session_gives_a_request_in_the_format_of_the_models_api(tmp_path: Path, model: str) -> None:
    told = run("context", compacted(tmp_path / "s.jsonl"), "--model", model, "--json").json
    validate(told["request"], model=catalog.resolve(model))
    assert told["model"] == model

"""`perdure config check`: findings with file, key and what would be accepted."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers_cli import failed, run


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_a_sound_file_has_no_findings(tmp_path: Path) -> None:
    file = write(tmp_path / "perdure.toml", '[models]\ndefault = "anthropic/claude-sonnet-4-5"\n')
    ran = run("config", "check", file)
    assert (ran.code, "nothing is wrong" in ran.out) == (0, True)
    assert run("config", "check", file, "--json").json["findings"] == []


def test_a_trigger_that_nothing_registers_is_found(tmp_path: Path) -> None:
    file = write(tmp_path / "perdure.toml", '[plugins.slots]\ncompaction_trigger = "nope"\n')
    ran = run("config", "check", file)
    assert ran.code == 1
    assert "unknown trigger 'nope' (accepted: auto, manual)" in ran.out


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('[plugins]\nshadow = "nope"\n', "plugins.shadow: unknown context engine 'nope'"),
        ("[plugins.config.losless]\na = 1\n", "unknown plugin 'losless'; did you mean lossless?"),
        ("[plugins.config.lossless]\nnope = 1\n", "plugins.config.lossless.nope: unknown key"),
        ('[plugins.config.memory-vector]\nduplicate = "x"\n', "plugins.config.memory-vector.duplicate: "),
    ],
)
def test_what_a_plugin_is_told_wrongly_is_found_without_a_trace(tmp_path: Path, text: str, told: str) -> None:
    ran = run("config", "check", write(tmp_path / "perdure.toml", text))
    assert ran.code == 1
    assert told in ran.out
    assert [path.name for path in tmp_path.iterdir()] == ["perdure.toml"]


def test_findings_name_file_key_and_accepted_values(tmp_path: Path) -> None:
    file = write(tmp_path / "perdure.toml", "[models]\ncache = 'warm'\nwindwo = 5\n")
    ran = run("config", "check", file)
    assert ran.code == 1
    assert len(ran.out.splitlines()) == 2
    assert f"{file}: models.cache" in ran.out
    assert "long, none, short" in ran.out
    assert "did you mean window?" in ran.out
    told = run("config", "check", file, "--json").json
    assert told["ok"] is False
    assert {row["key"] for row in told["findings"]} == {"models.cache", "models.windwo"}
    assert all(set(row) == {"source", "key", "problem", "accepted"} for row in told["findings"])


def test_the_file_of_the_state_folder_is_checked(tmp_path: Path) -> None:
    write(tmp_path / "perdure.toml", "nonsense")
    assert run("config", "check", "--state", tmp_path).code == 1


def test_no_file_means_the_defaults(tmp_path: Path) -> None:
    ran = run("config", "check", "--state", tmp_path)
    assert (ran.code, "defaults are in force" in ran.out) == (0, True)


@pytest.mark.parametrize("content", [b"\xff\xfe\0", b"a = ", b"[x" * 3000, b"a" * 2_000_000])
def test_what_is_no_toml_is_a_finding(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "perdure.toml").write_bytes(content)
    ran = run("config", "check", tmp_path / "perdure.toml")
    assert (ran.code, ran.err, len(ran.out.splitlines())) == (1, "", 1)


def test_a_named_file_that_is_none_is_a_mistake(tmp_path: Path) -> None:
    assert "no such file" in failed(run("config", "check", tmp_path / "none.toml"))
    assert "not a regular file" in failed(run("config", "check", tmp_path))


def test_models_nobody_knows_are_found(tmp_path: Path) -> None:
    file = write(
        tmp_path / "perdure.toml", '[models]\ndefault = "acme/one"\n[agents.bot]\nmodel = "acme/two"\n'
    )
    ran = run("config", "check", file)
    assert ran.code == 1
    assert "models.default" in ran.out
    assert "agents.bot.model" in ran.out


def test_a_wrong_setting_of_the_environment_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_MODELS__WINDOW", "wide")
    ran = run("config", "check", "--state", tmp_path)
    assert ran.code == 1
    assert "models.window" in ran.out


def findings(file: Path) -> dict[str, tuple[str, str]]:
    told = run("config", "check", file, "--json").json
    return {row["key"]: (row["problem"], row["accepted"]) for row in told["findings"]}


def test_a_wrong_model_gets_the_nearest_names_and_json_all_of_them(tmp_path: Path) -> None:
    file = write(tmp_path / "perdure.toml", '[models]\ndefault = "claude-sonet-4-5"\n')
    problem, accepted = findings(file)["models.default"]
    assert "claude-sonet-4-5" in problem
    assert accepted.startswith("anthropic/claude-sonnet-4-5, ")
    assert len(run("config", "check", file).out) < 400
    assert "anthropic/claude-3-haiku" in run("config", "check", file, "--json").json["known"]["models"]


def test_engines_and_tools_nobody_knows_are_found(tmp_path: Path) -> None:
    text = """
        [plugins.slots]
        contextEngine = "legasy"
        [tools]
        allow = ["read", "exec", "recall", "raed", "mcp__files__open"]
        deny = ["shell"]
    """
    found = findings(write(tmp_path / "perdure.toml", text))
    assert set(found) == {"plugins.slots.context_engine", "tools.allow", "tools.deny"}
    assert "did you mean legacy?" in found["plugins.slots.context_engine"][0]
    assert "'raed'; did you mean read?" in found["tools.allow"][0]
    assert "mcp__SERVER__TOOL" in found["tools.deny"][1]


def test_workspaces_that_are_no_folders_are_found(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "there").mkdir()
    text = f"""
        [tools]
        workspace = "{tmp_path}/none"
        [agents.a]
        workspace = "{tmp_path}/file"
        [agents.b]
        workspace = "{tmp_path}/there"
    """
    found = findings(write(tmp_path / "perdure.toml", text))
    assert {key: problem.rpartition(": ")[2] for key, (problem, _) in found.items()} == {
        "tools.workspace": "no such folder",
        "agents.a.workspace": "not a folder",
    }


def test_servers_whose_address_is_missing_or_none_are_found(tmp_path: Path) -> None:
    text = """
        [models.providers.box]
        window = 64000
        [models.providers.other]
        base_url = "10.0.0.5:8000/v1"
        api = "smoke"
        [models.providers.ollama]
        window = 64000
    """
    file = write(tmp_path / "perdure.toml", text)
    assert findings(file)["models.providers.other.api"][1].count("openai-") == 2
    file = write(tmp_path / "perdure.toml", text.replace('api = "smoke"', ""))
    found = findings(file)
    assert set(found) == {"models.providers.box.base_url", "models.providers.other.base_url"}
    assert "missing" in found["models.providers.box.base_url"][0]
    assert "does not begin with http" in found["models.providers.other.base_url"][0]

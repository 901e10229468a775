"""`perdure engines`: which there are, and whether one keeps the laws."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers_cli import failed, run
from perdure.cli import engines

FAULTY = """
from perdure.plugins.engines.legacy import LegacyEngine

class Faulty(LegacyEngine):
    async def assemble(self, context, messages):
        return None

class Picky(LegacyEngine):
    def __init__(self, lent):
        assert lent.settings == {"colour": "red"}

number = 5
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"mine_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(FAULTY)
    monkeypatch.chdir(tmp_path)
    return name


def test_the_list_tells_whose_an_engine_is_and_which_is_chosen(tmp_path: Path) -> None:
    found = run("engines", "list", "--state", tmp_path, "--json").json
    assert found["slot"] == {"context_engine": "legacy", "known": True}
    legacy = next(line for line in found["engines"] if line["id"] == "legacy")
    assert legacy == {
        "id": "legacy", "owner": "core", "from": "perdure", "selected": True, "default": True, "health": None
    }  # fmt: skip
    assert "legacy" in run("engines", "list", "--state", tmp_path).out


def test_an_engine_that_is_chosen_and_not_there_is_told(tmp_path: Path) -> None:
    (tmp_path / "perdure.toml").write_text('[plugins.slots]\ncontext_engine = "nope"\n')
    ran = run("engines", "list", "--state", tmp_path)
    assert ran.code == 1
    assert "'nope', which is not there: legacy stands in" in ran.err
    assert run("engines", "list", "--state", tmp_path, "--json").json["slot"]["known"] is False


def test_a_running_host_tells_how_its_engines_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = {"engines": [{"id": "legacy", "state": "quarantined", "calls": 7}, {"shadow": {}}]}
    monkeypatch.setattr(engines, "running", lambda state: object())
    monkeypatch.setattr(engines, "asked", lambda at, ask: told)
    found = run("engines", "list", "--state", tmp_path, "--json").json
    line = next(line for line in found["engines"] if line["id"] == "legacy")
    assert line["health"] == {"state": "quarantined", "calls": 7}
    assert "state quarantined, calls 7" in run("engines", "list", "--state", tmp_path).out


def test_an_engine_that_keeps_the_laws_is_well(tmp_path: Path) -> None:
    ran = run("engines", "check", "legacy", "--law", "shape", "--state", tmp_path)
    assert ran.code == 0
    assert "ok     shape.required" in ran.out
    assert ran.out.endswith("legacy: all laws are kept\n")


def test_a_broken_law_is_a_line_and_exit_one(module: str) -> None:
    ran = run("engines", "check", f"{module}:Faulty", "--law", "assemble.empty", "--law", "shape.info")
    assert ran.code == 1
    assert "BROKEN assemble.empty" in ran.out
    assert "expected `assemble` to answer Assembled; it answered NoneType" in ran.out
    assert ran.out.endswith("2 checks, 1 broken\n")


def test_the_findings_as_json(module: str) -> None:
    ran = run("engines", "check", f"{module}:Faulty", "--law", "assemble.empty", "--json")
    assert ran.code == 1
    assert ran.json["laws"] == [{
        "law": "assemble.empty", "sentence": "A view of nothing is answered", "loop": "asyncio",
        "kept": False, "source": "case: a session's first moment",
        "broken": "expected `assemble` to answer Assembled; it answered NoneType",
    }]  # fmt: skip
    assert {k: v for k, v in ran.json.items() if k != "laws"} == {
        "engine": f"{module}:Faulty", "ok": False, "checked": 1, "broken": 1
    }  # fmt: skip


def test_an_engine_gets_its_own_settings(module: str, tmp_path: Path) -> None:
    name = f"{module}:Picky"
    (tmp_path / "perdure.toml").write_text(f'[plugins.config."{name}"]\ncolour = "red"\n')
    assert run("engines", "check", name, "--law", "shape.info", "--state", tmp_path).code == 0


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["nope"], "context engine 'nope' is not known: one of"),
        (["no_module:Thing"], "no_module: can't be imported"),
        (["MODULE:Nothing"], "has no factory 'Nothing'"),
        (["MODULE:number"], "has no factory 'number'"),
        (["legacy", "--law", "nope"], "--law nope: no such law: one of the groups shape,"),
        (["legacy", "--deadline", "0"], "--deadline 0: give seconds, more than 0"),
    ],
)
def test_a_mistake_costs_one_clear_line(arguments: list[str], told: str, module: str) -> None:
    words = [word.replace("MODULE", module) for word in arguments]
    assert told in failed(run("engines", "check", *words))

"""The scenarios of this repository: they load, stay small, and expect something; their README is whole."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from perdure.replay import steps
from perdure.replay.scenario import dump, load, parse

FOLDER = Path(__file__).parents[2] / "scenarios"
FILES = sorted(FOLDER.glob("*.jsonl"))
README = (FOLDER / "README.md").read_text(encoding="utf-8")


def test_there_are_scenarios() -> None:
    assert len(FILES) >= 7


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_each_scenario_is_whole_small_and_expects_that_nothing_is_lost(path: Path) -> None:
    scenario = load(path)
    assert parse(dump(scenario), path.name) == scenario
    assert path.stat().st_size < 100_000
    last = scenario.steps[-1]
    assert isinstance(last, steps.ExpectStep)
    assert (last.lost, last.refused) == (0, 0)
    assert path.name in README


def test_the_readme_names_every_step_field_and_fault() -> None:
    words = {str(kind.__struct_config__.tag) for kind in get_args(steps.Step)}
    words |= {field for kind in get_args(steps.Step) for field in kind.__struct_fields__}
    words |= {*steps.Header.__struct_fields__, *steps.Call.__struct_fields__, *get_args(steps.Fault)}
    words |= {*get_args(steps.When), *get_args(steps.Kind)}
    assert sorted(word for word in words if word not in README) == []


def test_the_example_of_the_readme_is_a_scenario() -> None:
    example = README.split("```json\n")[1].split("```")[0]
    assert len(parse(example.encode(), "README.md").steps) == 5

"""Every reported fault of an area has a test that asserts what is right for it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from helpers_cases import names

ID = re.compile(r"(?<![A-Za-z])([A-Za-z]{2}\d{2})(?!\d)")
HERE = Path(__file__).parent
AREAS = sorted({path.stem.split("_")[1] for path in HERE.glob("test_*.py") if path != Path(__file__)})


@pytest.mark.parametrize("area", AREAS)
def test_each_case_of_an_area_is_named_by_a_test_of_it(area: str) -> None:
    files = (HERE / f"test_{area}.py", *HERE.glob(f"test_{area}_*.py"))  # an area may have several
    named = {name.upper() for path in files for name in ID.findall(path.read_text(encoding="utf-8"))}
    assert named >= set(names(area))

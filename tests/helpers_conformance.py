"""Golden vectors of the reference program, as they were recorded: one JSON object a line, compressed."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "data" / "conformance"


def cases(name: str, *functions: str) -> list[dict[str, Any]]:
    """All cases of a file, or those of some functions."""
    with gzip.open(FOLDER / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        found = [json.loads(line) for line in lines]
    return [case for case in found if not functions or case["fn"] in functions]


def ident(case: dict[str, Any]) -> str:
    """The name of a case in a test report."""
    return str(case["id"])


def number(value: Any) -> float:
    """A JavaScript number, those included that JSON can't hold."""
    return float(value["$js"].replace("Infinity", "inf")) if isinstance(value, dict) else float(value)

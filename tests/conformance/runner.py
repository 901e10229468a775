"""Runs folders of vectors: a line for each case that fails, a summary for each file."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from conformance.adapters import ADAPTERS
from conformance.rules import Case, Function

KEPT = Path(__file__).parent.parent / "data" / "conformance"
_ENDINGS = (".jsonl", ".jsonl.gz")
_FIELDS = ("id", "fn", "input", "params", "expected")


@dataclass
class Report:
    """What became of one file's cases."""

    name: str
    passed: int = 0
    departed: Counter[str] = field(default_factory=Counter)
    failed: dict[str, str] = field(default_factory=dict)

    def lines(self) -> Iterator[str]:
        """One line for each failure, then the counts."""
        yield from (f"{ident}: {why}" for ident, why in self.failed.items())
        departed = sum(self.departed.values())
        yield (
            f"{self.name}: {self.passed + departed + len(self.failed)} cases, {self.passed} as recorded, "
            f"{departed} by a rule of departure, {len(self.failed)} failed"
        )
        yield from (f"    {count:4} {rule}" for rule, count in self.departed.most_common())


def files(folder: Path) -> list[Path]:
    """The files of vectors in a folder."""
    return sorted(path for path in folder.iterdir() if path.is_file() and path.name.endswith(_ENDINGS))


def lines(path: Path) -> Iterator[tuple[int, str]]:
    """Lines with their numbers, blank ones left out."""
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
        for at, line in enumerate(file, 1):
            if line.strip():
                yield at, line.decode("utf-8", "surrogatepass")


def stem(path: Path) -> str:
    """The name by which an adapter is known."""
    return path.name.split(".jsonl")[0]


def run(path: Path, adapters: Mapping[str, Mapping[str, Function]] = ADAPTERS) -> Report:
    """Judge every case of a file. Nothing in it can stop the run; what can't be judged has failed."""
    report = Report(path.name)
    known = adapters.get(stem(path))
    if known is None:
        report.failed[stem(path)] = "there is no adapter for this file of vectors"
        return report
    try:
        for at, line in lines(path):
            _take(report, known, f"{stem(path)} line {at}", line)
    except (OSError, EOFError, UnicodeDecodeError) as error:
        report.failed[stem(path)] = f"can't be read: {error}"
    return report


def _take(report: Report, known: Mapping[str, Function], place: str, line: str) -> None:
    try:
        case = json.loads(line)
    except ValueError as error:
        report.failed[place] = f"no JSON: {error}"
        return
    missing = [name for name in _FIELDS if not isinstance(case, dict) or name not in case]
    if missing:
        report.failed[place] = f"no case: {', '.join(missing)} missing"
        return
    rule, why = judge(known, case)
    if why:
        ident = str(case["id"])
        report.failed[f"{ident} ({place})" if ident in report.failed else ident] = why
    elif rule:
        report.departed[rule] += 1
    else:
        report.passed += 1


def judge(known: Mapping[str, Function], case: Case) -> tuple[str, str]:
    """The rule of departure a case fell under, if any, and why it failed, if it did."""
    function = known.get(case["fn"])
    if function is None:
        return "", f"there is no adapter for the function {case['fn']}"
    try:
        return function.judge(case), ""
    except AssertionError as error:
        return "", str(error) or "an assertion failed"
    except Exception as error:
        return "", f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


@cache
def kept(name: str) -> tuple[Case, ...]:
    """The cases of a file that is kept with the tests."""
    path = next(path for path in files(KEPT) if stem(path) == name)
    return tuple(json.loads(line) for _, line in lines(path))


def cases(name: str, *functions: str) -> list[Case]:
    """The kept cases of a file, or those of some functions."""
    return [case for case in kept(name) if not functions or case["fn"] in functions]


@cache
def outcomes(name: str) -> dict[str, tuple[str, str]]:
    """For each kept case of a file the rule it fell under, and why it failed; judged once."""
    return {case["id"]: judge(ADAPTERS[name], case) for case in kept(name)}

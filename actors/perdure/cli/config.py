"""`perdure config check`: everything wrong with a perdure.toml, and what would be accepted."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from perdure.cli.output import emit, fail, say
from perdure.edges import state as state_folder
from perdure.edges.config import check, load
from perdure.edges.models import catalog
from perdure.edges.schema import Finding
from perdure.edges.settings import Settings
from perdure.errors import ConfigError


def run(file: Path | None, *, state: Path | None, as_json: bool) -> int:
    """Print the findings; 1 if there are any, 2 where the named file isn't there."""
    named = file or _told(os.environ.get("PERDURE_CONFIG"))
    path = named or state_folder.state_folder(state).config
    if named is not None and not named.is_file():
        fail(f"{named}: {'not a regular file' if named.exists() else 'no such file'}: name a perdure.toml")
    there = os.path.lexists(path)
    findings = list(check(path)) if there else []
    findings += [] if findings else list(_deeper(path if there else None))
    if as_json:
        emit(
            {"file": str(path), "exists": there, "ok": not findings, "findings": [_dict(f) for f in findings]}
        )
    else:
        _print(path, there, findings)
    return 1 if findings else 0


def _told(name: str | None) -> Path | None:
    return Path(name).expanduser() if name else None


def _print(path: Path, there: bool, findings: list[Finding]) -> None:
    for finding in findings:
        say(str(finding))
    if not findings:
        say(f"{path}: {'nothing is wrong' if there else 'no such file: the defaults are in force'}")


def _dict(finding: Finding) -> dict[str, Any]:
    return {
        "source": finding.source,
        "key": finding.key,
        "problem": finding.problem,
        "accepted": finding.accepted,
    }


def _deeper(path: Path | None) -> Iterator[Finding]:
    """What only shows when the layers are put together: the environment, and names of models."""
    try:
        settings = load(path)
    except ConfigError as error:
        yield Finding("the environment", "", str(error).removeprefix("the environment: "))
        return
    for key, ref in _models(settings):
        try:
            catalog.resolve(ref)
        except ConfigError:
            known = ", ".join(("scripted", *catalog.known()))
            yield Finding(str(path or "the environment"), key, f"unknown model {ref!r}", known)


def _models(settings: Settings) -> Iterator[tuple[str, str]]:
    named = [("models.default", settings.models.default), ("compaction.model", settings.compaction.model)]
    named += [(f"agents.{agent.name}.model", agent.model) for agent in settings.agents]
    return ((key, ref) for key, ref in named if ref)

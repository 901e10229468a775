"""`perdure engines`: the context engines that can be chosen, and one of them against the laws."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from perdure.cli.output import emit, one_line, say, table, warn
from perdure.cli.remote.address import running
from perdure.cli.remote.client import asked
from perdure.context.text.plural import counted
from perdure.edges import state as state_folder
from perdure.edges.config import load
from perdure.edges.settings import Settings, SlotSettings
from perdure.errors import UsageError
from perdure.plugins.registry import CORE, GROUP, Registry
from perdure.testing.conformance import Finding, check
from perdure.testing.finding import factory_of
from perdure.testing.laws import LAWS, Law

Line = dict[str, Any]


def run_list(*, state: Path | None, as_json: bool) -> int:
    """Print them. Exit 1 where the chosen one is none of them."""
    chosen = _settings(state).plugins.slots.context_engine
    at = running(state)
    told = asked(at, lambda remote: remote.get("/v1/status")).get("engines", ()) if at is not None else ()
    health = {line["id"]: {k: v for k, v in line.items() if k != "id"} for line in told if "id" in line}
    registry = Registry()
    lines = [_line(registry, id, chosen, health) for id in registry.ids()]
    known = any(line["selected"] for line in lines)
    if as_json:
        emit({"engines": lines, "slot": {"context_engine": chosen, "known": known}})
    else:
        _show(lines, chosen if not known else "")
    return 0 if known else 1


def _line(registry: Registry, id: str, chosen: str, health: dict[str, Line]) -> Line:
    """`health`: what a running host says of it beside its id; null where none runs, or it isn't in use."""
    point = next((point for point in entry_points(group=GROUP) if point.name == id), None)
    core = registry.owner(id) == CORE
    return {
        "id": id,
        "owner": CORE if core else f"plugin:{id}",
        "from": "perdure" if core or point is None else _origin(point),
        "selected": id == chosen,
        "default": id == SlotSettings().context_engine,
        "health": health.get(id),
    }


def _origin(point: EntryPoint) -> str:
    """The distribution and its version, and what it names."""
    return f"{point.dist.name} {point.dist.version}" if point.dist is not None else point.value


def _show(lines: Sequence[Line], missing: str) -> None:
    rows: list[tuple[str, ...]] = [("engine", "owner", "from", "slot", "health")]
    for line in lines:
        slot = "selected" if line["selected"] else "default" if line["default"] else ""
        health = ", ".join(
            f"{k} {v}" for k, v in (line["health"] or {}).items() if v not in (None, "", 0, [], {})
        )
        rows.append((line["id"], line["owner"], line["from"], slot, one_line(health)))
    say(table(rows))
    if missing:
        warn(f"perdure: the configuration names the engine {missing!r}, which is not there: legacy stands in")


def run_check(name: str, *, laws: list[str], deadline: float, state: Path | None, as_json: bool) -> int:
    """Print a line for each law. Exit 0 where all are kept, else 1."""
    if not deadline > 0:
        raise UsageError(f"--deadline {deadline:g}: give seconds, more than 0")
    factory, chosen, options = factory_of(name), _chosen(laws), _settings(state).plugins.options(name)
    findings = []
    for finding in check(factory, chosen, settings=options, deadline=deadline):
        findings.append(finding)
        if not as_json:
            _tell(finding)
    broken = [finding for finding in findings if not finding.kept]
    if as_json:
        lines = [_dict(finding) for finding in findings]
        emit({"engine": name, "ok": not broken, "checked": len(lines), "broken": len(broken), "laws": lines})
    else:
        kept = f"{counted(len(findings), 'check')}, {len(broken)} broken" if broken else "all laws are kept"
        say(f"{name}: {kept}")
    return int(bool(broken))


def _settings(state: Path | None) -> Settings:
    return load(state=state_folder.state_folder(state).root)


def _chosen(names: list[str]) -> list[Law]:
    """Raises `UsageError` for the name of no law."""
    strange = [name for name in names if not any(name in (law.id, law.group) for law in LAWS)]
    if strange:
        groups = ", ".join(dict.fromkeys(law.group for law in LAWS))
        raise UsageError(f"--law {strange[0]}: no such law: one of the groups {groups}, or GROUP.LAW")
    return [law for law in LAWS if not names or law.id in names or law.group in names]


def _tell(finding: Finding) -> None:
    loop = "" if finding.loop == "asyncio" else f" ({finding.loop})"
    mark = "ok    " if finding.kept else "BROKEN"
    say(f"{mark} {finding.law:26} {finding.sentence}{loop}")
    if not finding.kept:
        say(f"       {finding.broken}")
    sys.stdout.flush()


def _dict(finding: Finding) -> Line:
    return {
        "law": finding.law,
        "sentence": finding.sentence,
        "source": finding.source,
        "loop": finding.loop,
        "kept": finding.kept,
        "broken": finding.broken or None,
    }

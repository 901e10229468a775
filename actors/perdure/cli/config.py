"""`perdure config check`: everything wrong with a perdure.toml, and what would be accepted."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from perdure.actors.memories.chosen import slot_of
from perdure.actors.subagents.tools import SPECS
from perdure.cli.output import emit, fail, say
from perdure.edges import state as state_folder
from perdure.edges.config import check, load
from perdure.edges.models import catalog
from perdure.edges.schema import Finding
from perdure.edges.settings import ExecSettings, Settings, ToolSettings
from perdure.edges.tools.builtin import default_tools
from perdure.errors import ConfigError, UnknownEngine
from perdure.looking.memory import Looked, no_host, remembering
from perdure.plugins.registry import Registry


def run(file: Path | None, *, state: Path | None, as_json: bool) -> int:
    """Print the findings; 1 if there are any, 2 where the named file isn't there."""
    named = file or _told(os.environ.get("PERDURE_CONFIG"))
    path = named or state_folder.state_folder(state).config
    if named is not None and not named.is_file():
        fail(f"{named}: {'not a regular file' if named.exists() else 'no such file'}: name a perdure.toml")
    there = os.path.lexists(path)
    findings = list(check(path)) if there else []
    findings += [] if findings else list(_deeper(path if there else None, state))
    if as_json:
        report = {"file": str(path), "exists": there, "ok": not findings}
        emit(report | {"findings": [_dict(f) for f in findings], "known": known()})
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


# --- what only shows when the layers are put together ---------------------------------------------


def known() -> dict[str, list[str]]:
    """Every name that a setting can give of a model, an engine, a memory, a tool."""
    every = default_tools(ToolSettings(exec=ExecSettings("on")))
    return {
        "models": ["scripted", *catalog.known()],
        "engines": list(Registry().ids()),
        "memories": list(Registry().memories()),
        "triggers": list(Registry().triggers()),
        "tools": [*(tool.spec.name for tool in every), *(spec.name for spec in SPECS)],
    }


def _deeper(path: Path | None, state: Path | None) -> Iterator[Finding]:
    """Wrong values of the environment, and names that are those of nothing."""
    try:
        settings = load(path, state=state_folder.state_folder(state).root)
    except ConfigError as error:
        yield Finding("the environment", "", str(error).removeprefix("the environment: "))
        return
    yield from names_of_nothing(settings, str(path or "the environment"))


def names_of_nothing(settings: Settings, source: str) -> Iterator[Finding]:
    """Models, engines, tools and folders that the settings name and that aren't there."""
    slots = (*_engine(settings), *_memory(settings), *_trigger(settings), *_options(settings))
    for key, problem, accepted in (*_models(settings), *slots, *_tools(settings)):
        yield Finding(source, key, problem, accepted)
    for key, problem in _workspaces(settings):
        yield Finding(source, key, problem, "an existing folder")


def _models(settings: Settings) -> Iterator[tuple[str, str, str]]:
    named = [("models.default", settings.models.default), ("compaction.model", settings.compaction.model)]
    named += [(f"agents.{agent.name}.model", agent.model) for agent in settings.agents]
    for key, ref in named:
        try:
            catalog.resolve(ref or "scripted", settings.models.providers)
        except ConfigError:
            near = ", ".join(catalog.nearest(ref))
            yield key, f"unknown model {ref!r}", f"{near} and others: `--json` lists all"


def _engine(settings: Settings) -> Iterator[tuple[str, str, str]]:
    chosen, ids = settings.plugins.slots.context_engine, known()["engines"]
    for key, id in (("slots.context_engine", chosen), ("shadow", settings.plugins.shadow)):
        if id and id not in ids:
            yield f"plugins.{key}", _unknown("context engine", id, ids), ", ".join(ids)


def _memory(settings: Settings) -> Iterator[tuple[str, str, str]]:
    chosen, ids = slot_of(settings.plugins.slots.memory), known()["memories"]
    if chosen not in ids:
        yield "plugins.slots.memory", _unknown("memory", chosen, ids), ", ".join(ids)


def _trigger(settings: Settings) -> Iterator[tuple[str, str, str]]:
    chosen, ids = settings.plugins.slots.compaction_trigger, known()["triggers"]
    if chosen and chosen not in ids:
        yield "plugins.slots.compaction_trigger", _unknown("trigger", chosen, ids), ", ".join(ids)


def _options(settings: Settings) -> Iterator[tuple[str, str, str]]:
    """What plugins say of their own tables: each is made for it, and calls nothing."""
    registry, root = Registry(), state_folder.state_folder(None).path
    known_ids = {*registry.ids(), *registry.memories()}
    for name in (table.name for table in settings.plugins.config):
        if name not in known_ids:
            names = sorted(known_ids)
            yield f"plugins.config.{name}", _unknown("plugin", name, names), ", ".join(names)
            continue
        lent = Looked(name, root, settings.plugins.options(name), no_host)
        try:
            _make(registry, name, lent)
        except ConfigError as error:
            key, _, problem = str(error).partition(": ")
            yield key, problem, ""
        except Exception as error:  # a plugin that asks for more than its table: the host says what is wrong
            yield f"plugins.config.{name}", f"can't be read without a host: {error}", ""


def _make(registry: Registry, name: str, lent: Looked) -> None:
    with suppress(UnknownEngine):
        registry.create(name, lent)
        return
    registry.memory(name, lent)


def _tools(settings: Settings) -> Iterator[tuple[str, str, str]]:
    unlisted = replace(settings, tools=ToolSettings())
    remembers = remembering(unlisted, state_folder.state_folder(None))
    names = known()["tools"] + [tool.spec.name for tool in remembers.tools]
    for list_name in ("allow", "deny"):
        for name in getattr(settings.tools, list_name):
            if name not in names and not name.startswith("mcp__"):
                problem = _unknown("tool", name, names)
                yield f"tools.{list_name}", problem, f"{', '.join(names)}, mcp__SERVER__TOOL"


def _unknown(what: str, name: str, names: list[str]) -> str:
    close = difflib.get_close_matches(name.lower(), names, n=1)
    return f"unknown {what} {name!r}" + (f"; did you mean {close[0]}?" if close else "")


def _workspaces(settings: Settings) -> Iterator[tuple[str, str]]:
    named = [("tools.workspace", settings.tools.workspace)]
    named += [(f"agents.{agent.name}.workspace", agent.workspace) for agent in settings.agents]
    for key, told in named:
        path = Path(os.path.expanduser(told))
        if told and not path.is_dir():
            yield key, f"{told}: {'not a folder' if path.exists() else 'no such folder'}"
